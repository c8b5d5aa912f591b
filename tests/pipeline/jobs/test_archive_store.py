"""An archive's store: whenever its writer dies, nothing is seen by halves, and the next one ends what was begun."""

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

from .archives import Ids, assert_whole, lying, visible
from .stores import FIRST, HOUR, OTHER, SECOND, Died, Dying, after_death, batch, compact, staged, viewed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.live


class Noting(Files):
    """Files whose changes are noted in order."""

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


def test_records_are_on_the_disk_before_they_are_committed(spark: SparkSession, tmp_path: Path) -> None:
    """Else a power failure could leave a commit whose files are empty, and nobody would read the log again."""
    files = Noting(spark, str(tmp_path))
    with Store(files) as store:
        files.done.clear()
        batch(store, 1, ("a", FIRST), ("b", OTHER))
    came = [f"topic={topic}/{HOUR}/1-{at}.parquet" for at, topic in enumerate("ab")]
    moved = [("rename", [path]) for path in came]
    commit = ("create", [f"_odradek/commits/{manifest.commit_name(1)}"])
    assert files.done == [("create", [PENDING]), *moved, ("sync", came), commit]


def test_the_writer_dies_at_every_step(spark: SparkSession, tmp_path: Path) -> None:
    """It opens an archive with a batch of one topic, adds a batch of that and a new one, and compacts the former.

    The next one dies as well, while it mends what it has found; the third finds all right.
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
        assert viewed(spark, folder, "u") == lying(folder, "u") == (OTHER if both else [])
        if done:
            break
    assert steps > 20


def work(spark: SparkSession, folder: Path, steps: int, again: bool = False) -> bool:
    """Whether it was done with so many changes. `again`: just open the archive, with what is to be mended."""
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
    """A file system that replaces nothing by a rename."""

    def rename(self, old: str, new: str) -> None:
        if self.exists(new):
            raise PipelineError("it is there")
        super().rename(old, new)


def test_a_file_that_was_copied_in_part(spark: SparkSession, tmp_path: Path) -> None:
    """By a file system that copies to rename, when the job died: it is copied again."""
    with Store(Copying(spark, str(tmp_path))) as store:
        (old, new), _ = staged(store.files, "f.parquet", "t", FIRST)
        store.files.write(new, "the first half")
        store._move(old, new)
        store._move(old, new)
    assert lying(tmp_path, "t") == FIRST


def test_folders_that_are_no_archive(spark: SparkSession, tmp_path: Path) -> None:
    other, closed = tmp_path / "photos", tmp_path / "file"
    other.mkdir()
    (other / "holiday.jpeg").touch()
    closed.touch()
    with pytest.raises(PipelineError, match="photos is not empty and not an archive"):
        Store(Files(spark, str(other))).__enter__()
    assert [path.name for path in other.iterdir()] == ["holiday.jpeg"]
    with pytest.raises(PipelineError, match=r"file/below: .*Not a directory"):
        Store(Files(spark, str(closed / "below"))).__enter__()


def test_an_archive_that_was_moved(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's view names files by their whole URI; the manifest does not."""
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


def test_many_commits(spark: SparkSession, tmp_path: Path) -> None:
    """Of commits and views those stay that somebody may still read."""
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


def test_an_intent_that_cannot_be_read(spark: SparkSession, tmp_path: Path) -> None:
    with Store(Files(spark, str(tmp_path))):
        pass
    (tmp_path / PENDING).write_text("{}")
    with pytest.raises(PipelineError, match=r"the archive is damaged: _odradek/pending\.json cannot be read"):
        Store(Files(spark, str(tmp_path))).__enter__()
