"""An archive's manifest: reading returns the written state, from the first commit or from any snapshot."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs.archive.store import manifest
from odradek.pipeline.jobs.archive.store.manifest import COMMITS, Commit, File, Span, State
from odradek.pipeline.types import Partition

SPANS = st.dictionaries(st.integers(0, 9), st.builds(Span, *[st.integers(0, 2**60)] * 3), max_size=3)
SKIPPED = st.dictionaries(st.sampled_from(["control", "lost"]), st.integers(1, 9), min_size=1)
CONFIG = st.dictionaries(st.sampled_from(["cleanup.policy", "segment.ms"]), st.text(max_size=3))
PARTITION = st.tuples(st.sampled_from(["a", "b.c"]), st.integers(0, 5))


class Folder:
    """In-memory files by path, with those methods of jobs.files.Files that `live` uses."""

    root = "memory:/archive"

    def __init__(self, texts: dict[str, str]) -> None:
        self.read = texts.__getitem__
        self._texts = texts

    def exists(self, path: str) -> bool:
        return any(name.startswith(f"{path}/") for name in self._texts)

    def list(self, folder: str) -> list[File]:
        return [File(name, "", {}, 0) for name in self._texts if name.startswith(f"{folder}/")]


@st.composite
def histories(draw: st.DrawFn) -> list[Commit]:
    """Consecutive commits: each adds files with new names and removes some existing ones."""
    commits: list[Commit] = []
    there: list[str] = []
    for batch in range(draw(st.integers(1, 25))):
        removed = draw(st.lists(st.sampled_from(there), unique=True, max_size=3)) if there else []
        added = tuple(
            File(f"topic={topic}/date=2026-11-23/hour=01/{batch}-{n}.parquet", topic, draw(SPANS), n, batch, "d")
            for n, topic in enumerate(draw(st.lists(st.sampled_from(["a", "b.c"]), max_size=3)))
        )
        ends: dict[Partition, tuple[int, int]] = draw(
            st.dictionaries(PARTITION, st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=3)
        )
        ids = draw(st.dictionaries(st.sampled_from(["a", "b.c"]), st.text("0123456789abcdef", min_size=1)))
        configs = draw(st.dictionaries(st.sampled_from(["a", "b.c"]), CONFIG))
        skipped = draw(st.dictionaries(PARTITION, SKIPPED, max_size=2))
        commits.append(
            Commit(draw(st.text(max_size=5)), batch, ends, added, tuple(removed), batch, ids, configs, skipped)
        )
        there = [path for path in there if path not in removed] + [file.path for file in added]
    return commits


def written(commits: list[Commit], snapshots: set[int]) -> dict[str, str]:
    """The files of an archive."""
    texts, state = {}, State()
    for number, commit in enumerate(commits):
        texts[f"{COMMITS}/{manifest.commit_name(number)}"] = manifest.commit_to_json(commit)
        state = manifest.fold(state, commit)
        if number in snapshots:
            texts[f"{COMMITS}/{manifest.snapshot_name(number)}"] = manifest.state_to_json(state)
    return texts


@pytest.mark.slow
@given(histories())
def test_commits_round_trip_through_json(commits: list[Commit]) -> None:
    assert [manifest.commit_from_json(manifest.commit_to_json(each)) for each in commits] == commits


@pytest.mark.slow
@given(histories(), st.sets(st.integers(0, 25)))
def test_state_is_the_same_with_any_snapshots(commits: list[Commit], snapshots: set[int]) -> None:
    """Also after outdated files are deleted, all or some of them."""
    expected = reduce(manifest.fold, commits, State())
    texts = written(commits, snapshots)
    assert manifest.live(Folder(texts)) == expected  # type: ignore[arg-type]
    for name in manifest.outdated(path.rpartition("/")[2] for path in texts):
        del texts[f"{COMMITS}/{name}"]
        assert manifest.live(Folder(texts)) == expected  # type: ignore[arg-type]
    assert len(texts) >= min(len(commits), 1)


@pytest.mark.slow
@given(histories(), st.sets(st.integers(0, 25)))
def test_second_last_snapshot_is_kept(commits: list[Commit], snapshots: set[int]) -> None:
    """A slow reader may have listed it as the newest."""
    texts = written(commits, snapshots)
    there = sorted(number for number in snapshots if number < len(commits))
    gone = manifest.outdated(path.rpartition("/")[2] for path in texts)
    wanted = [manifest.snapshot_name(n) for n in there[-2:]]
    wanted += [manifest.commit_name(n) for n in range(there[-2] + 1 if len(there) > 1 else 0, len(commits))]
    assert not set(wanted) & set(gone)


@pytest.mark.slow
@given(histories())
def test_state_has_the_files_and_offsets_of_all_commits(commits: list[Commit]) -> None:
    """Live files were added and not removed since; offsets of a partition never decrease."""
    state = reduce(manifest.fold, commits, State())
    added = {file.path: file for commit in commits for file in commit.added}
    removed = {path for commit in commits for path in commit.removed}
    assert state.files == {path: file for path, file in added.items() if path not in removed}
    for key in {key for commit in commits for key in commit.offsets}:
        assert state.offsets[key] == max(commit.offsets[key][1] for commit in commits if key in commit.offsets)
    assert state.ids == {topic: id for commit in commits for topic, id in commit.ids.items()}
    assert state.configs == {topic: config for commit in commits for topic, config in commit.configs.items()}
    assert state.number == len(commits) - 1
    assert [file for topic in ("a", "b.c") for file in state.of(topic)] == [
        state.files[path] for path in sorted(state.files)
    ]


FILE = File("topic=a/date=2026-11-23/hour=01/0-0-x.parquet", "a", {0: Span(3, 5, 9)}, 100, 7, "d")


class Counting(dict[str, File]):
    """Counts the iterations over all files."""

    times = 0

    def values(self) -> Any:
        self.times += 1
        return super().values()


def test_files_are_grouped_once_for_all_topics() -> None:
    """An archive may have a hundred thousand files."""
    files = Counting({topic: File(f"topic={topic}/x", topic, {}, 1) for topic in "abc"})
    state = State(1, files)
    assert [[file.topic for file in state.of(topic)] for topic in "abcd"] == [["a"], ["b"], ["c"], []]
    assert files.times == 1


@pytest.mark.parametrize(
    ("commits", "message"),
    [
        ([Commit("s", 0, added=(FILE,)), Commit("s", 1, added=(FILE,))], "commit 1 adds topic=a/.* a second time"),
        ([Commit("s", 0, removed=(FILE.path,))], "commit 0 removes topic=a/.*, which does not exist"),
    ],
)
def test_contradictory_commits_are_an_error(commits: list[Commit], message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        reduce(manifest.fold, commits, State())


def test_missing_commit_is_an_error() -> None:
    texts = written([Commit("s", n) for n in range(5)], {1})
    del texts[f"{COMMITS}/{manifest.commit_name(3)}"]
    with pytest.raises(PipelineError, match=f"{COMMITS}/00000000000000000003.json is missing"):
        manifest.live(Folder(texts))  # type: ignore[arg-type]


@pytest.mark.parametrize("texts", [{}, {f"{COMMITS}/.0.json.tmp": "", "else": ""}])
def test_folder_without_commits_is_not_an_archive(texts: dict[str, str]) -> None:
    with pytest.raises(PipelineError, match="memory:/archive is not an archive"):
        manifest.live(Folder(texts))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a commit cannot be read"),
        ("[]", "a commit cannot be read"),
        ('{"version":1}', "a commit cannot be read"),
        ('{"version":2}', "the archive has version 2; this release supports version 1"),
        (manifest.commit_to_json(Commit("s", 0, added=(FILE,))).replace("[3,", '["'), "cannot be read"),
    ],
)
def test_invalid_commit_is_an_error(text: str, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        manifest.commit_from_json(text)


def test_json_form_of_a_commit() -> None:
    """Other programs may read it, so it must not change by accident."""
    configs = {"a": {"cleanup.policy": "compact"}}
    read = {("a", 1): (0, 2), ("a", 0): (5, 10)}
    skipped = {("a", 1): {"aborted": 2}}
    commit = Commit("s", 4, read, (FILE,), ("topic=b/y.parquet",), 9, {"a": "0f"}, configs, skipped)
    assert json.loads(manifest.commit_to_json(commit)) == {
        "version": 1,
        "stream": "s",
        "batch": 4,
        "at_ms": 9,
        "offsets": {"a": {"0": [5, 10], "1": [0, 2]}},
        "added": [
            {
                "path": FILE.path,
                "topic": "a",
                "partitions": {"0": [3, 5, 9]},
                "rows": 3,
                "size": 100,
                "modified_ms": 7,
                "schema": "d",
            }
        ],
        "removed": ["topic=b/y.parquet"],
        "ids": {"a": "0f"},
        "configs": {"a": {"cleanup.policy": "compact"}},
        "skipped": {"a": {"1": {"aborted": 2}}},
    }
    assert commit.topics == ["a", "b"]
    assert replace(FILE, path="topic=a/x.parquet").folder == "topic=a"


def test_commits_and_snapshots_of_former_releases_are_read() -> None:
    """Former releases wrote no topic ids and no topic configs."""
    commit, state = Commit("s", 4, {("a", 1): (0, 2)}), State(4, {FILE.path: FILE}, {("a", 1): 2})
    texts, new = (
        (manifest.commit_to_json(commit), manifest.state_to_json(state)),
        ("ids", "configs", "begun", "skipped"),
    )
    old = [json.dumps({key: value for key, value in json.loads(text).items() if key not in new}) for text in texts]
    assert manifest.commit_from_json(old[0]) == replace(commit, counts=False)
    assert manifest.state_from_json(old[1]) == state
    later = manifest.fold(
        state, Commit("s", 5, {("a", 1): (2, 9), ("a", 2): (0, 5)}, skipped={("a", 1): {"control": 7}})
    )
    assert later.begun == {("a", 2): 0}
    assert manifest.fold(State(), manifest.commit_from_json(old[0])).begun == {}


def test_every_offset_is_accounted_for() -> None:
    """From the first offset of a partition on: by reasons; offsets between two commits are lost."""
    commits = [
        Commit("s", 0, {("a", 0): (5, 10)}, skipped={("a", 0): {"control": 1, "aborted": 2}}),
        Commit("s", 1, {("a", 0): (10, 20), ("a", 1): (0, 0)}, skipped={("a", 0): {"control": 3}}),
        Commit("s", 2, {("a", 0): (26, 30)}),
    ]
    state = reduce(manifest.fold, commits, State())
    assert state.begun == {("a", 0): 5, ("a", 1): 0}
    assert state.skipped == {("a", 0): {"control": 4, "aborted": 2, "lost": 6}}
