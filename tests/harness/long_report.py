"""tests/LONG.md: what a whole run of the tests showed, with what the long ones said of themselves.

Written by `make test-long` (pytest's `--report FILE`) when it ends; a run of a part of the tests keeps its hands off.
`make test-long ARGS=--lf` runs again what has failed, on whatever tree there is then, and adds what that showed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from odradek.loadtest import store


class LongReport:
    """A plugin of pytest's own process, where the workers' results come together."""

    def __init__(self, path: Path, again: bool = False) -> None:
        self._path, self._again = path, again
        self._began = time.monotonic()
        self._counts: Counter[str] = Counter()
        self._failed: list[str] = []
        self._called: list[pytest.TestReport] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Each test has three: setup, call and teardown."""
        if report.failed:
            self._failed.append(f"{report.nodeid} ({report.when})")
        if report.when == "call" or report.outcome != "passed":
            self._counts[report.outcome] += 1
        if report.when == "call":
            self._called.append(report)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Write it, unless the run was broken off."""
        if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            return
        if self._again:
            with self._path.open("a") as file:
                file.write(self._added())
        else:
            self._path.write_text(self._whole())

    def _whole(self) -> str:
        long = [report for report in self._called if "long" in report.keywords]
        words = [f"# Every test, the long ones included\n\n{self._summary()}\n\n{_where()}\n"]
        words += [self._failures()] if self._failed else []
        words += ["## The long ones\n", _table(long), "## What they said\n"]
        words += [_said(report) for report in long if report.capstdout.strip()]
        return "\n".join(words)

    def _added(self) -> str:
        words = [f"\n## What had failed, run again\n\n{self._summary()}\n\n{_where()}\n", _table(self._called)]
        return "\n".join(words + ([self._failures()] if self._failed else []))

    def _failures(self) -> str:
        return "## Failed\n\n" + "\n".join(f"- {name}" for name in self._failed) + "\n"

    def _summary(self) -> str:
        counts = ", ".join(f"{self._counts[word]:,} {word}" for word in ("passed", "failed", "skipped"))
        return f"Written by `make test-long`: {counts} in {(time.monotonic() - self._began) / 60:.0f} minutes."


def _where() -> str:
    facts = {"date": f"{datetime.now(UTC):%Y-%m-%d}, commit {store.commit()}", **store.machine()}
    return "\n".join(f"- {name}: {fact}" for name, fact in facts.items())


def _table(reports: Sequence[pytest.TestReport]) -> str:
    lines = ["| test | outcome | seconds |", "| --- | --- | --- |"]
    for report in sorted(reports, key=lambda report: report.nodeid):
        lines.append(f"| {report.nodeid.replace('|', ' ')} | {report.outcome} | {report.duration:.0f} |")
    return "\n".join(lines) + "\n"


def _said(report: pytest.TestReport) -> str:
    return f"**{report.nodeid}**\n\n```\n{report.capstdout.strip()}\n```\n"
