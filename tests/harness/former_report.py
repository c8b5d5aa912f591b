"""Reads tests/LONG.md back: what it says of each test, so that a run on another machine can go on behind it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

_MINUTES = re.compile(r" in (\d+) minutes")
_PIECES = re.compile(r"^- date: (.+)$", re.MULTILINE)
_ROW = re.compile(r"^\| (\S.*) \| (passed|skipped) \| (\d+) \|(?: (\d+|–) \|)?$", re.MULTILINE)
_SAID = re.compile(r"^\*\*(\S[^\n]*)\*\*\n\n```\n(.*?)\n```$", re.MULTILINE | re.DOTALL)
_FAILED = re.compile(r"^- (tests/.+) \(\w+\)$", re.MULTILINE)


class FormerReport(NamedTuple):
    """`pieces`: of each run, when and on which commit; `passed`: the reports of what need not run again; `failed`: the
    names of what must."""

    seconds: float
    pieces: list[str]
    passed: list[pytest.TestReport]
    failed: set[str]


def read(path: Path) -> FormerReport:
    """The report in `path`, without passed tests whose file has gone. ValueError where it is not one."""
    text = path.read_text()
    minutes, pieces = _MINUTES.search(text), _PIECES.search(text)
    if minutes is None or pieces is None:
        raise ValueError(f"{path} is not a report of make test-long")
    said = dict(_SAID.findall(text))
    failed = set(_FAILED.findall(text))
    passed = [
        _report(name, outcome, float(seconds), piece, said.get(name, ""))
        for name, outcome, seconds, piece in _ROW.findall(text)
        if name not in failed and _exists(path, name)
    ]
    return FormerReport(60.0 * int(minutes[1]), pieces[1].split("; "), passed, failed)


def _exists(path: Path, name: str) -> bool:
    """Whether the test's file has a function of its name; the report is in the folder `tests`."""
    file, _, function = name.partition("::")
    place = path.parent.parent / file
    return place.is_file() and f"def {function.partition('[')[0].rpartition('::')[2]}(" in place.read_text()


def _report(name: str, outcome: str, seconds: float, piece: str, said: str) -> pytest.TestReport:
    sections = [("Captured stdout call", said)] if said else []
    place = (name.partition("::")[0], None, name)
    kind = "passed" if outcome == "passed" else "skipped"
    made = pytest.TestReport(name, place, {}, kind, None, "call", sections, seconds)  # type: ignore[arg-type]
    made.piece = int(piece) if piece.isdigit() else None  # type: ignore[attr-defined]
    return made
