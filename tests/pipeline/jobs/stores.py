"""Stores of archives without a job: committed batches, and writers that die or are overtaken in between."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs.archive.sink.compaction import together
from odradek.pipeline.jobs.archive.store.manifest import Commit, File, Span
from odradek.pipeline.jobs.archive.store.store import STAGING, Move, Store
from odradek.pipeline.jobs.files import Files
from odradek.pipeline.types import Partition

from .archives import Ids, read_ids

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR = "date=2026-11-23/hour=01"
FIRST: Ids = [(0, 0), (0, 1), (1, 0)]
SECOND: Ids = [(0, 2), (1, 1), (1, 2)]
OTHER: Ids = [(0, 7), (1, 3)]


class Died(BaseException):
    """The writer's death: nothing changes after it."""


class Dying(Files):
    """Files that allow `left` changes."""

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

    def rename_new(self, old: str, new: str) -> bool:
        return bool(self._step(super().rename_new, old, new))

    def delete(self, path: str) -> None:
        self._step(super().delete, path)

    def take_away(self, path: str) -> None:
        self._step(super().take_away, path)


class Halting(Files):
    """Files of a job that ends before its `count`th change of a kind to a path that contains `text`; nothing changes
    afterwards, as after a kill.
    """

    def __init__(self, spark: SparkSession, root: str, kind: str, text: str, count: int) -> None:
        super().__init__(spark, root)
        self._kind, self._text, self._left = kind, text, count

    @property
    def halted(self) -> bool:
        return self._left == 0

    def _step(self, kind: str, path: str, change: Callable[..., Any], *arguments: Any) -> Any:
        if self._left and kind == self._kind and self._text in path:
            self._left -= 1
        if self.halted:
            raise PipelineError("the job has ended")
        return change(*arguments)

    def write(self, path: str, text: str) -> None:
        self._step("write", path, super().write, path, text)

    def create(self, path: str, text: str) -> bool:
        return bool(self._step("create", path, super().create, path, text))

    def rename(self, old: str, new: str) -> None:
        self._step("rename", new, super().rename, old, new)

    def delete(self, path: str) -> None:
        self._step("delete", path, super().delete, path)

    def take_away(self, path: str) -> None:
        self._step("take away", path, super().take_away, path)


class Overtaken(Files):
    """Files of a job that another job overtakes: before step `at` of this one, `other` does all of its own steps."""

    def __init__(self, spark: SparkSession, root: str, at: int, other: Callable[[], object]) -> None:
        super().__init__(spark, root)
        self.left: int | None = None  # remaining steps; None: not counted yet
        self._at, self._other = at, other

    def arm(self) -> None:
        """Count steps from now on."""
        self.left = self._at

    def _step(self) -> None:
        if self.left == 0:
            self._other()
        if self.left is not None:
            self.left -= 1

    def exists(self, path: str) -> bool:
        self._step()
        return super().exists(path)

    def read(self, path: str) -> str:
        self._step()
        return super().read(path)

    def create(self, path: str, text: str) -> bool:
        self._step()
        return super().create(path, text)

    def write(self, path: str, text: str) -> None:
        self._step()
        super().write(path, text)

    def rename(self, old: str, new: str) -> None:
        self._step()
        super().rename(old, new)

    def rename_new(self, old: str, new: str) -> bool:
        self._step()
        return super().rename_new(old, new)

    def delete(self, path: str) -> None:
        self._step()
        super().delete(path)

    def take_away(self, path: str) -> None:
        self._step()
        super().take_away(path)


def staged(files: Files, name: str, topic: str, ids: Ids) -> tuple[Move, File]:
    """A file as Spark's tasks leave it, with its move and its description."""
    folder = f"{STAGING}/x" if files.room is None else f"{files.room.removesuffix('.room')}/x"
    old, new = f"{folder}/{name}", f"topic={topic}/{HOUR}/{name}"
    files.make(folder)
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
    """Commit a batch with one file for each topic and its ids."""
    found = [staged(store.files, f"{number}-{at}.parquet", *each) for at, each in enumerate(contents)]
    ends: dict[Partition, tuple[int, int]] = {}
    for topic, ids in contents:
        ends |= {
            (topic, partition): (store.state.offsets.get((topic, partition), 0), offset + 1)
            for partition, offset in ids
        }
    store.commit([move for move, _ in found], Commit("s", number, ends, tuple(file for _, file in found)))


def compact(store: Store, number: int, topic: str) -> None:
    """Compact all files of the topic into one."""
    group = store.state.of(topic)
    root = Path(store.files.root.removeprefix("file:"))
    ids = sorted(each for file in group for each in read_ids([root / file.path]))
    move, file = staged(store.files, f"{number}-all.parquet", topic, ids)
    assert file.partitions == together(group)
    store.commit([move], Commit("c", number, {}, (file,), tuple(each.path for each in group)))


def after_death(folder: Path) -> None:
    """Make the lease that of a dead process: its start time is not this one's."""
    lease = folder / "_odradek/lease.json"
    if lease.exists():
        lease.write_text(json.dumps({**json.loads(lease.read_text()), "started": "0"}))


def viewed(_: SparkSession, folder: Path, topic: str) -> Ids:
    """The records by the newest log of the folder, which is quicker than Spark."""
    logs = sorted((folder / f"topic={topic}/_spark_metadata").glob("*.compact"), key=lambda path: int(path.stem))
    lines = logs[-1].read_text().splitlines()[1:] if logs else []
    return read_ids(Path(unquote(json.loads(line)["path"]).removeprefix("file:")) for line in lines)
