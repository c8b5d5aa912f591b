"""An archive's store: after any death of a writer no batch is visible in part, and the next writer completes it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs.archive.store import manifest
from odradek.pipeline.jobs.archive.store.store import PENDING, Store
from odradek.pipeline.jobs.files import Files

from .archives import Ids, assert_whole, stored, visible
from .stores import FIRST, HOUR, OTHER, SECOND, Died, Dying, after_death, batch, compact, staged, viewed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.live


class Noting(Files):
    """Files that record changes in order."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        super().__init__(spark, root)
        self.done: list[tuple[str, list[str]]] = []

    def create(self, path: str, text: str) -> bool:
        self.done.append(("create", [path]))
        return super().create(path, text)

    def rename(self, old: str, new: str) -> None:
        self.done.append(("rename", [new]))
        super().rename(old, new)

    def sync(self, paths: Iterable[str]) -> None:
        self.done.append(("sync", sorted(paths)))
        super().sync(self.done[-1][1])


def test_records_are_synced_before_the_commit(spark: SparkSession, tmp_path: Path) -> None:
    """Otherwise a power failure could leave a commit with empty files, whose records nobody would read again."""
    files = Noting(spark, str(tmp_path))
    with Store(files) as store:
        files.done.clear()
        batch(store, 1, ("a", FIRST), ("b", OTHER))
        done = list(files.done)  # without the release of the lease
    came = [f"topic={topic}/{HOUR}/1-{at}.parquet" for at, topic in enumerate("ab")]
    moved = [("rename", [path]) for path in came]
    commit = ("create", [f"_odradek/commits/{manifest.commit_name(1)}"])
    assert done == [("create", [PENDING]), *moved, ("sync", came), commit]


@pytest.mark.long  # test_every_job has one
def test_archive_is_repaired_after_a_death_at_every_step(spark: SparkSession, tmp_path: Path) -> None:
    """The writer opens an archive with a batch, adds one of the same topic and of a new one, and compacts the former.

    The next writer dies during the repair; the third one completes it.
    """
    for steps in count():
        folder = tmp_path / str(steps)
        with Store(Files(spark, str(folder))) as store:
            batch(store, 1, ("t", FIRST))
        done = work(spark, folder, steps)
        assert visible(spark, folder, "t") in (FIRST, sorted(FIRST + SECOND))
        assert visible(spark, folder, "u") in ([], OTHER)
        after_death(folder)
        work(spark, folder, steps % 9, again=True)
        after_death(folder)
        with Store(Files(spark, str(folder))) as store:
            both = store.state.number >= 2
            assert store.state.offsets[("t", 1)] == (3 if both else 1)
        assert_whole(spark, folder, "t", sorted(FIRST + SECOND) if both else FIRST, viewed)
        assert viewed(spark, folder, "u") == stored(folder, "u") == (OTHER if both else [])
        if done:
            break
    assert steps > 20


def work(spark: SparkSession, folder: Path, steps: int, again: bool = False) -> bool:
    """Whether the work ended without a death. `again`: only open the archive, which repairs it."""
    try:
        with Store(Dying(spark, str(folder), steps)) as store:
            if again:
                return True
            batch(store, 2, ("t", SECOND[:1]), ("t", SECOND[1:]), ("u", OTHER[:1]), ("u", OTHER[1:]))
            compact(store, 3, "t")
    except Died:
        return False
    return True


class Copying(Files):
    """A file system whose rename replaces no file."""

    def rename(self, old: str, new: str) -> None:
        if self.exists(new):
            raise PipelineError("the file exists")
        super().rename(old, new)


def test_partial_copy_of_a_rename_is_replaced(spark: SparkSession, tmp_path: Path) -> None:
    """Some file systems copy in a rename; the job died during the copy."""
    with Store(Copying(spark, str(tmp_path))) as store:
        (old, new), _ = staged(store.files, "f.parquet", "t", FIRST)
        store.files.write(new, "the first half")
        store._move(old, new)
        store._move(old, new)
    assert stored(tmp_path, "t") == FIRST


def test_folder_that_is_not_an_archive_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    other, closed = tmp_path / "photos", tmp_path / "file"
    other.mkdir()
    (other / "holiday.jpeg").touch()
    closed.touch()
    with pytest.raises(PipelineError, match="photos is not empty and not an archive"):
        Store(Files(spark, str(other))).__enter__()
    assert [path.name for path in other.iterdir()] == ["holiday.jpeg"]
    with pytest.raises(PipelineError, match=r"file/below: .*Not a directory"):
        Store(Files(spark, str(closed / "below"))).__enter__()


def test_moved_archive_is_readable(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's view has absolute URIs; the manifest has relative paths."""
    old, new = tmp_path / "an archive", tmp_path / "50% of [it]"
    with Store(Files(spark, str(old))) as store:
        batch(store, 1, ("t", FIRST))
    old.rename(new)
    with Store(Files(spark, str(new))):
        pass
    assert viewed(spark, new, "t") == FIRST
    new.rename(old)
    with Store(Files(spark, str(old))):
        pass
    assert visible(spark, old, "t") == FIRST


def test_outdated_commits_and_views_are_deleted(spark: SparkSession, tmp_path: Path) -> None:
    """Commits and views that a reader may still use stay."""
    with Store(Files(spark, str(tmp_path))) as store:
        for number in range(25):
            batch(store, number, ("t", [(0, number)]))
        state = store.state
    expected: Ids = [(0, number) for number in range(25)]
    assert_whole(spark, tmp_path, "t", expected, visible)
    assert manifest.live(Files(spark, str(tmp_path))) == state
    names = sorted(path.name.lstrip("0") for path in (tmp_path / "_odradek/commits").glob("[0-9]*"))
    assert names == sorted([f"{n}.json" for n in range(11, 26)] + ["10.snapshot.json", "20.snapshot.json"])
    assert sorted(int(path.stem) for path in (tmp_path / "topic=t/_spark_metadata").glob("*.compact")) == [23, 24, 25]


def test_invalid_intent_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    with Store(Files(spark, str(tmp_path))):
        pass
    (tmp_path / PENDING).write_text("{}")
    with pytest.raises(PipelineError, match=r"the archive is damaged: _odradek/pending\.json cannot be read"):
        Store(Files(spark, str(tmp_path))).__enter__()
