"""A store's Delta tables equal the manifest, with each file added once: after a writer's death, after a late write of a
fenced writer, and after writes by other programs.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs.archive.store.delta import Delta
from odradek.pipeline.jobs.archive.store.manifest import State
from odradek.pipeline.jobs.archive.store.store import Store
from odradek.pipeline.jobs.files import Files

from .archives import Ids, assert_whole, listed, visible
from .stores import FIRST, OTHER, SECOND, Died, Dying, Overtaken, after_death, batch, compact, viewed
from .tables import Log, assert_files, log, said, tabled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.live

ALL = sorted(FIRST + SECOND)


class Stepping(Delta):
    """Tables whose entries count as steps as well: `step` runs before and after each."""

    def __init__(self, files: Files, step: Callable[[], object]) -> None:
        super().__init__(files)
        self._step = step

    def _make(self, *arguments: Any) -> int:
        return self._between(super()._make, *arguments)

    def _enter(self, *arguments: Any) -> int:
        return self._between(super()._enter, *arguments)

    def _between(self, enter: Callable[..., int], *arguments: Any) -> int:
        self._step()
        version = enter(*arguments)
        self._step()
        return version


def opened(spark: SparkSession, folder: Path) -> Store:
    files = Files(spark, str(folder))
    return Store(files, Delta(files))


def repaired(spark: SparkSession, folder: Path, *topics: str) -> State:
    """Let the next writer repair the tables; returns the state, which the tables must equal."""
    with opened(spark, folder) as store:
        pass
    for topic in topics:
        if store.state.of(topic):
            assert_files(folder, topic, store.state)
        assert tabled(folder, topic) == listed(folder, store.state, topic)
    return store.state


def changes(entry: Sequence[dict[str, Any]]) -> set[bool]:
    """The `dataChange` flags of an entry's actions."""
    return {each["dataChange"] for name in ("add", "remove") for each in said(list(entry), name)}


@pytest.mark.parametrize(
    ("entries_alone", "least", "next_one"),
    [pytest.param(True, 6, 3, id="entries"), pytest.param(False, 27, 9, id="all", marks=pytest.mark.long)],
)
def test_tables_are_repaired_after_a_death_at_every_step(
    spark: SparkSession, tmp_path: Path, entries_alone: bool, least: int, next_one: int
) -> None:
    """The writer adds a batch of a topic and of a new one, and compacts the former. The next one dies in the repair.

    An entry is two steps; there are three entries. The other steps are those of an archive without tables.
    """
    for steps in count():
        folder = tmp_path / str(steps)
        with opened(spark, folder) as store:
            batch(store, 1, ("t", FIRST))
        done = work(*dying(spark, folder, steps, entries_alone))
        assert tabled(folder, "t") in (FIRST, ALL)
        assert tabled(folder, "u") in ([], OTHER)
        after_death(folder)
        work(*dying(spark, folder, steps % next_one, entries_alone), again=True)
        after_death(folder)
        state = repaired(spark, folder, "t", "u")
        assert tabled(folder, "t") == (ALL if state.number >= 2 else FIRST)
        assert [changes(entry) for entry in log(folder, "t").entries] == [{True}, {True}, {False}][: state.number]
        if done:
            break
    assert steps >= least


class DyingAtEntries(Dying):
    """Counts only the steps around the tables' entries; nothing changes after the writer's death."""

    dead = False

    def _step(self, change: Callable[..., Any], *arguments: Any) -> Any:
        if self.dead:
            raise Died
        return change(*arguments)

    def entry(self) -> None:
        self.dead = self._left <= 0
        self._left -= 1
        self._step(lambda: None)


def dying(spark: SparkSession, folder: Path, steps: int, entries_alone: bool) -> tuple[Files, Delta]:
    """Files and tables of a writer that dies after `steps`: the tables' entries only, or all changes of files."""
    if entries_alone:
        counted = DyingAtEntries(spark, str(folder), steps)
        return counted, Stepping(counted, counted.entry)
    files = Dying(spark, str(folder), steps)
    return files, Stepping(files, lambda: files._step(lambda: None))


def work(files: Files, tables: Delta, again: bool = False) -> bool:
    """Whether the work ended without a death. `again`: only open the archive, which repairs it."""
    try:
        with Store(files, tables) as store:
            if again:
                return True
            batch(store, 2, ("t", SECOND[:1]), ("t", SECOND[1:]), ("u", OTHER[:1]), ("u", OTHER[1:]))
            compact(store, 3, "t")
    except Died:
        return False
    return True


@pytest.mark.parametrize("stride", [4, pytest.param(1, marks=pytest.mark.long)])
def test_fenced_writer_cannot_damage_tables_at_any_step(spark: SparkSession, tmp_path: Path, stride: int) -> None:
    """The writer was presumed dead; the next one has compacted the files that the writer is about to add."""
    for at in count(0, stride):
        folder = tmp_path / str(at)
        with opened(spark, folder) as store:
            batch(store, 1, ("t", FIRST))
        second = opened(spark, folder)
        slow = Overtaken(spark, str(folder), at, lambda folder=folder, second=second: take_over(folder, second))  # type: ignore[misc]
        first = Store(slow, Stepping(slow, slow._step))
        first.__enter__()
        slow.arm()
        try:
            batch(first, 2, ("t", SECOND))
        except PipelineError as error:
            assert second.state.number > 1, error
            assert "took over this archive" in str(error)
        slow.left = None
        first.__exit__()
        if second.state.number < 0:
            break
        assert_files(folder, "t", second.state)
        batch(second, 4, ("u", OTHER))
        compact(second, 5, "t")
        second.__exit__()
        state = repaired(spark, folder, "t", "u")
        assert state.number == second.state.number
        assert_whole(spark, folder, "t", viewed(spark, folder, "t"), viewed)
    assert at > 12


def take_over(folder: Path, second: Store) -> None:
    """Another writer takes over and commits a batch and a compaction."""
    after_death(folder)
    second.__enter__()
    batch(second, 3, ("t", [(1, 9)]))
    compact(second, 4, "t")


def test_concurrent_repairs_write_one_entry(spark: SparkSession, tmp_path: Path) -> None:
    """A fenced writer repairs the same table just before the current one."""
    with Store(Files(spark, str(tmp_path))) as store:
        batch(store, 1, ("t", FIRST))
    late, files = Delta(Files(spark, str(tmp_path))), Files(spark, str(tmp_path))
    steps = [lambda: late.show(store.state, "t", lambda: None)]
    with Store(files, Stepping(files, lambda: steps and steps.pop()())):
        pass
    assert len(assert_files(tmp_path, "t", store.state).entries) == 1
    assert tabled(tmp_path, "t") == FIRST


def test_table_missing_two_commits_is_updated_by_one_entry(spark: SparkSession, tmp_path: Path) -> None:
    """A program without tables has added a batch and compacted."""
    with opened(spark, tmp_path) as store:
        batch(store, 1, ("t", FIRST))
        aside = tmp_path / "_log"
        (tmp_path / "topic=t/_delta_log").rename(aside)
    with Store(Files(spark, str(tmp_path))) as store:
        batch(store, 2, ("t", SECOND))
        compact(store, 3, "t")
    aside.rename(tmp_path / "topic=t/_delta_log")
    repaired(spark, tmp_path, "t")
    [_, entry] = log(tmp_path, "t").entries
    assert len(said(entry, "add")) == len(said(entry, "remove")) == 1
    assert changes(entry) == {True}


def test_foreign_writes_are_undone(spark: SparkSession, tmp_path: Path) -> None:
    """Foreign rows are removed, deleted rows of the archive are restored."""
    with opened(spark, tmp_path) as store:
        batch(store, 1, ("t", FIRST))
    row = {"partition": pa.array([9], pa.int32()), "offset": pa.array([99]), "date": pa.array([None], pa.date32())}
    write_deltalake(tmp_path / "topic=t", pa.table({**row, "hour": pa.array([3], pa.int32())}), mode="append")
    DeltaTable(tmp_path / "topic=t").delete("partition = 0 OR partition = 1")
    assert tabled(tmp_path, "t") == [(9, 99)]
    assert repaired(spark, tmp_path, "t") == store.state
    found = log(tmp_path, "t")
    assert len(found.entries) == 4
    assert changes(found.entries[-1]) == {True}
    repaired(spark, tmp_path, "t")
    assert len(log(tmp_path, "t").entries) == 4


@pytest.mark.parametrize("times", [2, pytest.param(3, marks=pytest.mark.long)])
def test_concurrent_foreign_writes_are_retried_twice(spark: SparkSession, tmp_path: Path, times: int) -> None:
    """If all attempts fail, the next run writes the entry."""
    with opened(spark, tmp_path) as store:
        batch(store, 1, ("t", FIRST))
    steps = times * [lambda: DeltaTable(tmp_path / "topic=t").alter.set_table_description("ours!")]
    files = Files(spark, str(tmp_path))
    with Store(files, Stepping(files, lambda: steps and steps.pop()())) as store:
        if times < 3:
            batch(store, 2, ("t", SECOND))
        else:
            with pytest.raises(
                PipelineError, match="topic=t/_delta_log: the Delta table cannot be brought up"
            ) as error:
                batch(store, 2, ("t", SECOND))
            assert "\n" not in str(error.value)
            assert tabled(tmp_path, "t") == FIRST
            assert visible(spark, tmp_path, "t") == ALL
    repaired(spark, tmp_path, "t")
    assert tabled(tmp_path, "t") == ALL


def test_empty_newest_entry_is_written_again(spark: SparkSession, tmp_path: Path) -> None:
    """Power failures leave such an entry. It is synced before the commit ends, so the intent still exists."""
    with opened(spark, tmp_path) as store:
        batch(store, 1, ("t", FIRST))
        batch(store, 2, ("t", SECOND))
    newest(tmp_path).write_text("")
    repaired(spark, tmp_path, "t")
    assert tabled(tmp_path, "t") == ALL


def newest(folder: Path) -> Path:
    """The table's last entry."""
    return max((folder / "topic=t/_delta_log").glob("*.json"))


class Noting(Files):
    """Files that record syncs of log entries and deletions of records."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        super().__init__(spark, root)
        self.done: list[str] = []

    def sync(self, paths: Any) -> None:
        paths = list(paths)
        super().sync(paths)
        self.done += [path for path in paths if "_delta_log" in path]

    def delete(self, path: str) -> None:
        super().delete(path)
        self.done += [path] if path.endswith(".parquet") else []


def test_entry_is_synced_before_files_are_deleted(spark: SparkSession, tmp_path: Path) -> None:
    files = Noting(spark, str(tmp_path))
    with Store(files, Delta(files)) as store:
        batch(store, 1, ("t", FIRST))
        before = list(store.state.files)
        files.done.clear()
        compact(store, 2, "t")
    entry = "topic=t/_delta_log"
    assert files.done == [entry, f"{entry}/{1:020}.json", *before]


def test_former_versions_are_readable_until_a_compaction(spark: SparkSession, tmp_path: Path) -> None:
    """The compaction deletes their files."""
    with opened(spark, tmp_path) as store:
        batch(store, 1, ("t", FIRST))
        batch(store, 2, ("t", SECOND))
        assert DeltaTable(tmp_path / "topic=t", version=0).to_pyarrow_table().num_rows == len(FIRST)
        compact(store, 3, "t")
    with pytest.raises(FileNotFoundError):
        DeltaTable(tmp_path / "topic=t", version=0).to_pyarrow_table()


def test_temporary_entries_of_a_killed_writer_are_ignored(spark: SparkSession, tmp_path: Path) -> None:
    """deltalake writes an entry under a temporary name first."""
    left = [tmp_path / f"topic=t/_delta_log/{at:020}.json#1" for at in (0, 1)]
    left[0].parent.mkdir(parents=True)
    with Store(Files(spark, str(tmp_path / "other"))) as store:
        batch(store, 1, ("t", FIRST))
    shutil.copytree(tmp_path / "other/topic=t", tmp_path / "topic=t", dirs_exist_ok=True)
    shutil.copytree(tmp_path / "other/_odradek", tmp_path / "_odradek")
    for path in left:
        path.write_text('{"add')
    repaired(spark, tmp_path, "t")
    with opened(spark, tmp_path) as store:
        batch(store, 2, ("t", SECOND))
    repaired(spark, tmp_path, "t")
    assert tabled(tmp_path, "t") == ALL


def test_damaged_log_is_an_error_that_says_what_to_delete(spark: SparkSession, tmp_path: Path) -> None:
    """Deleting the log helps: the next run writes a new one."""
    with opened(spark, tmp_path) as store:
        batch(store, 1, ("t", FIRST))
    newest(tmp_path).write_text("{")
    with pytest.raises(
        PipelineError, match=r"topic=t/_delta_log: .*if the log is damaged, delete that folder"
    ) as error:
        opened(spark, tmp_path).__enter__()
    assert "\n" not in str(error.value)
    shutil.rmtree(tmp_path / "topic=t/_delta_log")
    repaired(spark, tmp_path, "t")
    assert tabled(tmp_path, "t") == FIRST


def test_table_ahead_of_the_manifest_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    """Only the manifest was reset to a former state: the table stays unchanged."""
    with opened(spark, tmp_path) as store:
        batch(store, 1, ("t", FIRST))
        shutil.copytree(tmp_path / "_odradek/commits", tmp_path / "_commits")
        batch(store, 2, ("t", SECOND))
    shutil.rmtree(tmp_path / "_odradek/commits")
    (tmp_path / "_commits").rename(tmp_path / "_odradek/commits")
    with pytest.raises(PipelineError, match=r"topic=t/_delta_log is at commit 2, the archive at 1: .*Delete that"):
        opened(spark, tmp_path).__enter__()
    assert tabled(tmp_path, "t") == ALL


@pytest.mark.long
def test_entries_are_checkpointed(spark: SparkSession, tmp_path: Path) -> None:
    """Spark does not read the checkpoint's Parquet file as records."""
    with opened(spark, tmp_path) as store:
        for number in range(103):
            batch(store, number, ("t", [(0, number)]))
        compact(store, 103, "t")
    assert len(list((tmp_path / "topic=t/_delta_log").glob("*.checkpoint.parquet"))) == 1
    expected: Ids = [(0, number) for number in range(103)]
    repaired(spark, tmp_path, "t")
    assert tabled(tmp_path, "t") == expected == visible(spark, tmp_path, "t")
    assert (
        sorted(tuple(row) for row in spark.read.parquet(str(tmp_path)).select("partition", "offset").collect())
        == expected
    )
    whole: Log = log(tmp_path, "t")
    assert len(whole.files) == 1
    assert whole.number == 104
