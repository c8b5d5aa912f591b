"""An archive's store: whenever its writer dies, nothing is seen by halves, and the next one ends what was begun."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs.archive import manifest
from odradek.pipeline.jobs.archive.compaction import together
from odradek.pipeline.jobs.archive.lease import LEASE, PATIENCE, Lease
from odradek.pipeline.jobs.archive.manifest import Commit, File, Span
from odradek.pipeline.jobs.archive.store import PENDING, STAGING, Move, Store
from odradek.pipeline.jobs.files import Files
from odradek.pipeline.types import Partition

from ...harness.process import wait_until
from .archives import Ids, assert_whole, lying, read_ids, visible

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR = "date=2026-11-23/hour=01"


class Died(BaseException):
    """Nothing is done after it."""


class Dying(Files):
    """Files that can be changed `left` times."""

    def __init__(self, spark: SparkSession, root: str, left: int) -> None:
        super().__init__(spark, root)
        self._left = left

    def _step(self, change: Callable[..., Any], *arguments: Any) -> Any:
        if self._left <= 0:
            raise Died
        self._left -= 1
        return change(*arguments)

    def write(self, path: str, text: str) -> None:
        self._step(super().write, path, text)

    def create(self, path: str, text: str) -> bool:
        return bool(self._step(super().create, path, text))

    def rename(self, old: str, new: str) -> None:
        self._step(super().rename, old, new)

    def delete(self, path: str) -> None:
        self._step(super().delete, path)


def staged(files: Files, name: str, topic: str, ids: Ids) -> tuple[Move, File]:
    """A file as Spark's tasks leave it, and what is to become of it."""
    old, new = f"{STAGING}/x/{name}", f"topic={topic}/{HOUR}/{name}"
    files.make(f"{STAGING}/x")
    path = Path(files.root.removeprefix("file:")) / old
    partitions, offsets = zip(*ids, strict=True)
    table = pa.table({"partition": pa.array(partitions, pa.int32()), "offset": pa.array(offsets, pa.int64())})
    pq.write_table(table, path)
    spans: dict[int, Span] = {}
    for partition in set(partitions):
        mine = [offset for index, offset in ids if index == partition]
        spans[partition] = Span(len(mine), mine[0], mine[-1])
    status = path.stat()
    return (old, new), File(new, topic, spans, status.st_size, int(status.st_mtime * 1000))


def batch(store: Store, number: int, *contents: tuple[str, Ids]) -> None:
    """Commit a batch with a file for each topic and ids."""
    found = [staged(store.files, f"{number}-{at}.parquet", *each) for at, each in enumerate(contents)]
    ends: dict[Partition, tuple[int, int]] = {}
    for topic, ids in contents:
        ends |= {
            (topic, partition): (store.state.offsets.get((topic, partition), 0), offset + 1)
            for partition, offset in ids
        }
    store.commit([move for move, _ in found], Commit("s", number, ends, tuple(file for _, file in found)))


def compact(store: Store, number: int, topic: str) -> None:
    """Make one of all of the topic's files."""
    group = store.state.of(topic)
    root = Path(store.files.root.removeprefix("file:"))
    ids = sorted(each for file in group for each in read_ids([root / file.path]))
    move, file = staged(store.files, f"{number}-all.parquet", topic, ids)
    assert file.partitions == together(group)
    store.commit([move], Commit("c", number, {}, (file,), tuple(each.path for each in group)))


FIRST: Ids = [(0, 0), (0, 1), (1, 0)]
SECOND: Ids = [(0, 2), (1, 1), (1, 2)]
OTHER: Ids = [(0, 7), (1, 3)]


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


def after_death(folder: Path) -> None:
    """The process of the lease is dead: this one was not started then."""
    lease = folder / "_odradek/lease.json"
    if lease.exists():
        lease.write_text(json.dumps({**json.loads(lease.read_text()), "started": "0"}))


def viewed(_: SparkSession, folder: Path, topic: str) -> Ids:
    """The same by the newest log of the folder, which is quicker."""
    logs = sorted((folder / f"topic={topic}/_spark_metadata").glob("*.compact"), key=lambda path: int(path.stem))
    lines = logs[-1].read_text().splitlines()[1:] if logs else []
    return read_ids(Path(unquote(json.loads(line)["path"]).removeprefix("file:")) for line in lines)


def test_a_writer_that_was_taken_for_dead(spark: SparkSession, tmp_path: Path) -> None:
    """It wakes when another one is at work: it says so, and what it has done is undone by the next."""
    slow = Store(Files(spark, str(tmp_path)))
    with slow:
        (tmp_path / "_odradek/lease.json").unlink()
        with Store(Files(spark, str(tmp_path))) as store:
            batch(store, 1, ("t", FIRST))
            with pytest.raises(PipelineError, match="took this archive over"):
                batch(slow, 2, ("t", SECOND))
            slow._lease._id = store._lease._id  # it had looked just before
            with pytest.raises(PipelineError, match="another job has made commit 1 here"):
                batch(slow, 3, ("t", SECOND))
            assert visible(spark, tmp_path, "t") == FIRST
    after_death(tmp_path)
    with Store(Files(spark, str(tmp_path))) as store:
        assert store.state.number == 1
    assert_whole(spark, tmp_path, "t", FIRST, visible)


def test_one_job_at_a_time(spark: SparkSession, tmp_path: Path) -> None:
    busy = pytest.raises(PipelineError, match=f"the job of process {os.getpid()} on .* is at work here")
    with Store(Files(spark, str(tmp_path))), busy:
        Store(Files(spark, str(tmp_path))).__enter__()
    with Store(Files(spark, str(tmp_path))):
        pass


@pytest.mark.parametrize("lives", [True, False])
def test_a_job_of_another_machine(spark: SparkSession, tmp_path: Path, lives: bool) -> None:
    """It is watched, for nothing is known of its processes."""
    files = Files(spark, str(tmp_path))
    held = {"id": "theirs", "beat": 1, "machine": "m", "host": "far-away", "pid": 1, "started": "1"}
    files.write(LEASE, json.dumps(held))
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if lives and len(waits) == 9:
            files.write(LEASE, json.dumps({**held, "beat": 2}))

    lease = Lease(files)
    if lives:
        with pytest.raises(PipelineError, match="process 1 on far-away is at work here"):
            lease.take(sleep)
    else:
        lease.take(sleep)
        lease.check()
        lease.release()
    assert sum(waits) == (9 if lives else PATIENCE)
    assert files.exists(LEASE) == lives


def test_a_lease_is_written_again_and_again(spark: SparkSession, tmp_path: Path) -> None:
    files = Files(spark, str(tmp_path))
    lease = Lease(files, renewed=0.01)
    lease.take()
    first = files.read(LEASE)
    wait_until(lambda: files.read(LEASE) != first, 10, "it is written anew")
    lease.release()
    assert not files.exists(LEASE)


def test_a_lease_that_was_taken_over(spark: SparkSession, tmp_path: Path) -> None:
    files = Files(spark, str(tmp_path))
    lease = Lease(files)
    lease.take()
    lease.check()
    files.write(LEASE, files.read(LEASE).replace('"id": "', '"id": "x'))
    with pytest.raises(PipelineError, match="took this archive over"):
        lease.check()
    lease.release()
    assert files.exists(LEASE), "it is another's"


def test_folders_that_are_no_archive(spark: SparkSession, tmp_path: Path) -> None:
    other, closed = tmp_path / "photos", tmp_path / "file"
    other.mkdir()
    (other / "holiday.jpeg").touch()
    closed.touch()
    with pytest.raises(PipelineError, match="photos is no archive, and not empty"):
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
