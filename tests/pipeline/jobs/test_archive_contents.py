"""Reading an archive during writes, without Spark: which reads are retried, and how often."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable
from typing import Any

import pytest

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs.archive.store import contents
from odradek.pipeline.jobs.archive.store.contents import Reading
from odradek.pipeline.jobs.archive.store.manifest import COMMITS, Commit, File, Span, State, commit_name, commit_to_json
from odradek.pipeline.jobs.files import Entry

from .test_archive_manifest import Folder


class Archive(Folder):
    """An archive in memory; `listed` are the folders that were listed."""

    def __init__(self) -> None:
        self._commits: dict[str, str] = {}
        self.sizes: dict[str, int] = {}
        self.listed: list[str] = []
        super().__init__(self._commits)

    def commit(self, added: Iterable[str] = (), removed: Iterable[str] = ()) -> None:
        files = tuple(map(file, added))
        self.sizes.update({one.path: one.size for one in files})
        done = Commit("s", len(self._commits), added=files, removed=tuple(removed))
        self._commits[f"{COMMITS}/{commit_name(len(self._commits))}"] = commit_to_json(done)

    def list(self, folder: str) -> Any:
        self.listed.append(folder)
        if folder == COMMITS:
            return super().list(folder)
        return [Entry(path, size, 0) for path, size in self.sizes.items() if path.startswith(f"{folder}/")]


def file(path: str) -> File:
    return File(path, path.split("/")[0].removeprefix("topic="), {0: Span(1, 0, 0)}, 10)


A, B, C = (f"topic=t/date=2026-11-23/hour=0{hour}/{name}" for hour, name in ((1, "a"), (1, "b"), (2, "c")))


@pytest.fixture
def archive() -> Any:
    made = Archive()
    made.commit()
    made.commit([A, B])
    return made


class Reads:
    """A reader that runs the next of `happens` at each call, and fails if it returns true."""

    def __init__(self, *happens: Any) -> None:
        self._happens = iter(happens)
        self.states: list[State] = []

    def __call__(self, state: State) -> int:
        self.states.append(state)
        if next(self._happens)():
            raise PipelineError("a file cannot be read")
        return len(self.states)


def test_failed_read_is_not_retried_without_a_compaction(archive: Any) -> None:
    """Other commits do not matter: none removes a file of the topic."""

    def more() -> bool:
        archive.commit([C, "topic=u/date=2026-11-23/hour=01/d"])
        return True

    reads = Reads(more)
    with pytest.raises(PipelineError, match="a file cannot be read"):
        Reading(archive).steadily("t", reads)
    archive.commit([], ["topic=u/date=2026-11-23/hour=01/d"])
    assert Reading(archive).steadily("t", Reads(lambda: False), lambda _: False) == 1


@pytest.mark.parametrize("raises", [True, False])
def test_read_during_a_compaction_is_retried(archive: Any, raises: bool, caplog: pytest.LogCaptureFixture) -> None:
    """The retry is logged."""

    def compacted() -> bool:
        archive.commit([C], [A, B])
        return raises

    reads = Reads(compacted, lambda: False)
    with caplog.at_level(logging.WARNING):
        assert Reading(archive).steadily("t", reads, lambda result: result > 1) == 2
    assert [set(state.files) for state in reads.states] == [{A, B}, {C}]
    assert [record.getMessage() for record in caplog.records] == [
        "t: 2 files were compacted while they were read: they are read again"
    ]


def test_retries_are_limited_under_constant_compaction(archive: Any) -> None:
    names = [A, *(f"{A}{number}" for number in range(20))]
    pairs = itertools.pairwise(names)

    def compacted() -> bool:
        before, after = next(pairs)
        archive.commit([after], [before])
        return True

    reads = Reads(*[compacted] * 20)
    with pytest.raises(PipelineError, match="a file cannot be read"):
        Reading(archive).steadily("t", reads)
    assert 1 < len(reads.states) < 10


def test_state_is_read_once(archive: Any) -> None:
    reading = Reading(archive)
    for _ in range(100):
        reading.steadily("t", lambda state: len(state.files))
    assert archive.listed == [COMMITS]


def test_only_folders_of_the_checked_files_are_listed(archive: Any) -> None:
    """Not all folders of the topic."""
    archive.commit([C])
    state = Reading(archive).state
    archive.listed.clear()
    contents.check(archive, [state.files[A], state.files[B]])
    assert archive.listed == ["topic=t/date=2026-11-23/hour=01"]
    archive.sizes[B] = 9
    with pytest.raises(PipelineError, match=f"{B} has 9 bytes, but was written with 10$"):
        contents.check(archive, [state.files[A], state.files[B]])
    del archive.sizes[A]
    with pytest.raises(PipelineError, match=f"{A} is missing .1 records.; and 1 more$"):
        contents.check(archive, [state.files[A], state.files[B]])
