"""A short summary of skips: the number of tests that need a missing tool, and the command that installs it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

_MISSING = re.compile(r"(?P<tool>\S+) is not installed: (?P<remedy>.+)")  # the format of `needs.missing`


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the summary before pytest's closing line."""
    reasons = [_reason(report) for report in terminalreporter.getreports("skipped")]
    if reasons:
        terminalreporter.write_sep("=", "skipped")
        for line in lines(reasons):
            terminalreporter.write_line(line)


def lines(reasons: Iterable[str]) -> Iterator[str]:
    """One line for each remedy with its tools, and one for each other reason; the most frequent first."""
    tests: Counter[str] = Counter()
    tools: dict[str, set[str]] = {}
    for reason in reasons:
        found = _MISSING.fullmatch(reason)
        tests[found["remedy"] if found else reason] += 1
        if found:
            tools.setdefault(found["remedy"], set()).add(found["tool"])
    for text, count in tests.most_common():
        want = f" for want of {', '.join(sorted(tools[text]))}" if text in tools else ""
        yield f"{count:5} {'test' if count == 1 else 'tests'}{want}: {text}"


def _reason(report: Any) -> str:
    """The reason of a skip: pytest has file, line and reason."""
    return str(report.longrepr[2]).removeprefix("Skipped: ")
