"""tests/LONG.md: the results and the output of all tests marked `long`.

`make test-long` (pytest's `-m long --report FILE`) writes it at the end; a run of some of them does not change it. A
run that Ctrl-C ends names the tests that did not run. A journal in pytest's cache has a JSON line for each report.
`make test-long ARGS=--rest` continues such a run: it runs the tests without a report in the journal. Where there is no
journal, as on another machine, it goes on behind the file itself: it runs what failed or did not run. `make test-long
ARGS=--lf` runs the failed tests again, on the current tree, and adds their results.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from odradek.loadtest.harness import store

from . import former_report

_REPORT, _PIECE = "report", "piece"


def add_options(parser: pytest.Parser) -> None:
    """For a conftest's pytest_addoption."""
    parser.addoption("--report", metavar="FILE", help="with -m long: write what these tests showed to FILE")
    parser.addoption("--rest", action="store_true", help="with --report: go on with the run that was broken off")


def register(config: pytest.Config) -> None:
    """For a conftest's pytest_configure."""
    path = config.getoption("--report")
    if not path or not _runs_all_long_ones(config):
        return
    if not hasattr(config, "workerinput"):
        again = config.getoption("lf") and bool(config.cache and config.cache.get("cache/lastfailed", {}))
        report = LongReport(Path(path), config, again)
        config.pluginmanager.register(report)
        _done(config).write_text("\n".join(report.begin()))
    if config.getoption("--rest"):
        config.pluginmanager.register(_Rest(config))


def _runs_all_long_ones(config: pytest.Config) -> bool:
    picked = config.getoption("keyword") or config.getoption("markexpr") != "long"
    return not picked and config.args_source is pytest.Config.ArgsSource.TESTPATHS


def _folder(config: pytest.Config) -> Path:
    assert config.cache is not None
    return config.cache.mkdir("long")


def _done(config: pytest.Config) -> Path:
    """The ids of finished tests at the start of this run: all its processes must leave out the same ones."""
    return _folder(config) / "done"


class _Rest:
    """Leaves out finished tests."""

    def __init__(self, config: pytest.Config) -> None:
        self._done = set(_done(config).read_text().split("\n"))

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Runs last: other plugins add and sort items before."""
        done = [item for item in items if item.nodeid in self._done]
        items[:] = [item for item in items if item.nodeid not in self._done]
        config.hook.pytest_deselected(items=done)


class LongReport:
    """A plugin of pytest's main process, which gets the results of all workers."""

    def __init__(self, path: Path, config: pytest.Config, again: bool = False) -> None:
        self._path, self._config, self._again = path, config, again
        self._journal = _folder(config) / "journal"
        self._began = time.monotonic()
        self._before = 0.0  # seconds of the former pieces
        self._pieces: list[str] = []
        self._counts: Counter[str] = Counter()
        self._failed: list[str] = []
        self._called: list[pytest.TestReport] = []
        self._collected: set[str] = set()
        self._had_failed: set[str] = set()  # in the file behind which this run goes on

    def begin(self) -> list[str]:
        """Read the results of the run that this one continues; returns the finished tests."""
        done = {}
        if self._config.getoption("--rest"):
            former = list(self._former()) if self._journal.exists() else self._from_file()
            for report in former:
                self._take(report)
                done[report.nodeid] = report.when == "call" or not report.passed
            self._remember([report for report in former if report.failed])
        elif not self._again:
            self._journal.write_text("")
        self._pieces.append(_now())
        self._note(_PIECE, self._pieces[-1])
        return [name for name, is_done in done.items() if is_done]

    def _remember(self, failed: Sequence[pytest.TestReport]) -> None:
        """For --lf, which in pytest itself only considers this run's failures."""
        plugin: Any = self._config.pluginmanager.get_plugin("lfplugin")
        plugin.lastfailed.update(dict.fromkeys((report.nodeid for report in failed), True))

    def _former(self) -> Iterator[pytest.TestReport]:
        last = 0.0
        for line in self._journal.read_text().splitlines():
            seconds, kind, value = json.loads(line)
            if kind == _PIECE:
                self._pieces.append(value)
                self._before, last = self._before + last, 0.0
            else:
                last = seconds
                yield self._config.hook.pytest_report_from_serializable(config=self._config, data=value)
        self._before += last

    def _from_file(self) -> list[pytest.TestReport]:
        """What the file says, noted in a new journal."""
        former = former_report.read(self._path)
        self._before, self._pieces, self._had_failed = former.seconds, former.pieces, former.failed
        for piece in former.pieces:
            self._note(_PIECE, piece)
        for report in former.passed:
            self._note(_REPORT, self._as_data(report))
        return former.passed

    def _note(self, kind: str, value: Any) -> None:
        if not self._again:
            with self._journal.open("a") as file:
                file.write(json.dumps((time.monotonic() - self._began, kind, value)) + "\n")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """The tests of a run without workers."""
        self._collected.update(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Every worker collects the same tests."""
        self._collected.update(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Each test has three reports: setup, call and teardown."""
        report.piece = len(self._pieces)  # type: ignore[attr-defined]
        if report.when == "call" or not report.passed:
            self._note(_REPORT, self._as_data(report))
        self._take(report)

    def _as_data(self, report: pytest.TestReport) -> dict[str, Any]:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        return {name: value for name, value in data.items() if name != "node"}  # added by xdist

    def _take(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.append(f"{report.nodeid} ({report.when})")
        if report.when == "call" or report.outcome != "passed":
            self._counts[report.outcome] += 1
            self._collected.discard(report.nodeid)
        if report.when == "call":
            self._called.append(report)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Write the report, also when Ctrl-C ends the run."""
        if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED):
            return
        if exitstatus == pytest.ExitCode.INTERRUPTED and not self._called:  # or a module cannot be imported
            return
        if self._again:
            with self._path.open("a") as file:
                file.write(self._added())
        else:
            self._path.write_text(self._whole())

    def _whole(self) -> str:
        words = [f"# The long tests\n\n{self._summary()}\n\n{_where(self._pieces)}\n"]
        words += [_list("Failed", self._failed)] if self._failed else []
        again = sorted(f"{name} (before)" for name in self._had_failed & self._collected)
        words += [_list("Failed before, not run again", again)] if again else []
        words += [_list("Not run", sorted(self._collected))] if self._collected else []
        words += ["## Each test\n", _table(self._called), "## What they said\n"]
        words += [_said(report) for report in self._called if report.capstdout.strip()]
        return "\n".join(words)

    def _added(self) -> str:
        words = [
            f"\n## What had failed, run again\n\n{self._summary()}\n\n{_where(self._pieces)}\n",
            _table(self._called),
        ]
        return "\n".join(words + ([_list("Failed", self._failed)] if self._failed else []))

    def _summary(self) -> str:
        counts = ", ".join(f"{self._counts[word]:,} {word}" for word in ("passed", "failed", "skipped"))
        counts += f", {len(self._collected):,} not run" if self._collected else ""
        minutes, pieces = (self._before + time.monotonic() - self._began) / 60, len(self._pieces)
        broken = f", in {pieces} pieces" if pieces > 1 else ""
        return f"Written by `make test-long`: {counts} in {minutes:.0f} minutes{broken}."


def _list(title: str, names: Sequence[str]) -> str:
    return f"## {title}\n\n" + "\n".join(f"- {name}" for name in names) + "\n"


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d}, commit {store.commit()}"


def _where(pieces: Sequence[str]) -> str:
    facts = {"date": "; ".join(pieces), **store.machine()}
    return "\n".join(f"- {name}: {fact}" for name, fact in facts.items())


def _table(reports: Sequence[pytest.TestReport]) -> str:
    lines = ["| test | outcome | seconds | piece |", "| --- | --- | --- | --- |"]
    for report in sorted(reports, key=lambda report: report.nodeid):
        piece = getattr(report, "piece", None) or "–"  # not known of a file of an earlier version
        lines.append(f"| {report.nodeid.replace('|', ' ')} | {report.outcome} | {report.duration:.0f} | {piece} |")
    return "\n".join(lines) + "\n"


def _said(report: pytest.TestReport) -> str:
    return f"**{report.nodeid}**\n\n```\n{report.capstdout.strip()}\n```\n"
