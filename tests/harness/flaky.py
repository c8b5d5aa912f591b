"""A failed test runs again alone, twice; a test that passes both times does not fail the run, and is reported.

`pytest -p tests.harness.flaky --flaky=FILE`, as `.ci/run` calls it. FILE gets `FLAKY:` lines: the name of each such
test, its first failure and its log. Errors in setup and teardown and crashed workers of pytest-xdist count as failures.
With a blank instead of `=`, pytest would treat FILE as a test path, and look for its settings there.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

MOST = 10
"""With more failed tests than this, none is flaky, and none runs again."""
TIMES = 2
SECONDS = 900
"""Seconds of one run alone; pytest-timeout ends a test earlier."""
BUDGET = 1500
"""Seconds of all runs alone: a run with many hanging tests must end, too, and name them."""
LINES = 200
"""The number of last lines that are reported of a failure, and of each part of its log."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """This plugin's option."""
    parser.addoption(
        "--flaky", metavar="FILE", help="run failed tests again alone; report to FILE which ones then pass"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Only pytest's main process runs tests again, not a worker of pytest-xdist."""
    if config.getoption("--flaky") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Flaky(Path(config.getoption("--flaky"))))


class Flaky:
    """A plugin of pytest's main process, which gets the results of all workers."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._failed: dict[str, pytest.TestReport] = {}  # the first failure of each test
        self._all_collected = True

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be imported is not flaky."""
        self._all_collected &= not report.failed

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Each test has three reports: setup, call and teardown; a crashed worker makes one."""
        if report.failed:
            self._failed.setdefault(report.nodeid, report)

    @pytest.hookimpl(wrapper=True, trylast=True)  # after the workers have ended, before the summary
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Iterator[None]:
        """The exit code is 0 if each failed test is flaky."""
        yield
        complete = self._all_collected and not session.shouldfail and not session.shouldstop
        if exitstatus == pytest.ExitCode.TESTS_FAILED and complete and 0 < len(self._failed) <= MOST:
            flaky = self._run_again(session.config)
            self._path.write_text("".join(f"{line}\n" for report in flaky for line in _report(report)))
            if len(flaky) == len(self._failed):
                session.exitstatus = pytest.ExitCode.OK

    def _run_again(self, config: pytest.Config) -> list[pytest.TestReport]:
        """The reports of tests that pass alone; the summary counts them as flaky."""
        terminal = config.pluginmanager.get_plugin("terminalreporter")
        assert terminal is not None
        terminal.write_sep("=", "failed tests again, alone")
        alone = Alone(config)
        flaky = [report for report in self._failed.values() if alone.passes(_unit(report))]
        for status in ("failed", "error"):
            _forget(terminal.stats, status, {report.nodeid for report in flaky})
        if flaky:
            terminal._add_stats("flaky", flaky)
        return flaky


class Alone:
    """Runs of one test, each in a fresh pytest."""

    def __init__(self, config: pytest.Config) -> None:
        self._root = config.rootpath
        self._marked = ["-m", expression] if (expression := config.getoption("markexpr")) else []
        self._say = config.pluginmanager.get_plugin("terminalreporter").write_line  # type: ignore[union-attr]  # pytest always has it
        self._known: dict[str, bool] = {}
        self._end = time.monotonic() + BUDGET

    def passes(self, unit: str) -> bool:
        """Whether the test, or the tests of the file, pass each time."""
        if unit not in self._known:
            self._known[unit] = all(self._passes_once(unit) for _ in range(TIMES))
            self._say(f"{unit}: {f'passed {TIMES} times' if self._known[unit] else 'failed again'}")
        return self._known[unit]

    def _passes_once(self, unit: str) -> bool:
        words = [sys.executable, "-m", "pytest", *self._marked, unit]
        seconds = max(0, min(SECONDS, self._end - time.monotonic()))
        try:
            done = subprocess.run(
                words, cwd=self._root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds
            )
        except subprocess.TimeoutExpired:
            self._say(f"{unit}: not done within {seconds:.0f} s")
            return False
        # A test that is skipped now has not passed.
        passed = done.returncode == 0 and re.search(r"^=.* [1-9]\d* passed[ ,].*=$", done.stdout, re.MULTILINE)
        if not passed:
            self._say(done.stdout)
        return bool(passed)


def _unit(report: pytest.TestReport) -> str:
    """The test to run again, or its file: the other tests of the file may have caused an error in the last teardown."""
    return report.nodeid.partition("::")[0] if report.when == "teardown" else report.nodeid


def _forget(stats: dict[str, list[pytest.TestReport]], status: str, names: set[str]) -> None:
    kept = [report for report in stats.pop(status, []) if report.nodeid not in names]
    if kept:
        stats[status] = kept


def _report(report: pytest.TestReport) -> Iterator[str]:
    """The `FLAKY:` lines of a test. Its output is put after a bar: it is no result of this run."""
    yield f"FLAKY: {report.nodeid}: failed ({report.when}), then passed {TIMES} times alone"
    for part in (report.longreprtext, *(f"-- {name} --\n{text}" for name, text in report.sections)):
        yield from (f"FLAKY: | {line}" for line in part.splitlines()[-LINES:])
