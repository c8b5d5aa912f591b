"""The header `odradek.id`: the next stage recognises a record that was written twice by it, and drops the duplicate.

A stream writes at least once: a task that failed half way, or a driver that died before it recorded the batch as done,
writes the same rows again. The id is the same each time, 36 bytes, big-endian, ascending in the order of writing:

    16  the query's id, from its checkpoint: a UUID
     8  epoch: the number of the micro-batch in the checkpoint, which is the same when the batch is done again
     4  Spark's partition
     8  position: which row of the partition, from 0

That holds as long as a recomputed partition has the same rows in the same order. Read from a topic it has, where the
same offsets are cut into the same pieces; after a shuffle it may not, because blocks are taken in order of arrival.
Then a position would name another row, and deduplication would lose one row and keep another twice. Only an id that
travels with the row is safe there: a column `id` (string or binary, never null) replaces the position, whatever its
value; `concat_ws('-', topic, partition, offset)` of the topic that the row came from is one.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

import pyarrow as pa

from odradek.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark import TaskContext

HEADER = "odradek.id"
COLUMN = "id"
QUERY = "sql.streaming.queryId"
EPOCH = "streaming.sql.batchId"
_TASK = Struct(">16sqi")


class Positions:
    """Ids by position for the rows of one task, one call a batch."""

    def __init__(self, task: bytes) -> None:
        self._task = task
        self._next = 0

    def ids(self, batch: pa.RecordBatch) -> list[bytes]:
        """One id a row, continuing after the previous batch."""
        first, self._next = self._next, self._next + batch.num_rows
        return [self._task + position.to_bytes(8, "big") for position in range(first, self._next)]


class CarriedIds:
    """Ids from a column of the rows."""

    def ids(self, batch: pa.RecordBatch) -> list[bytes]:
        """The column `id`; PipelineError where one is null."""
        column = batch.column(COLUMN)
        if column.null_count:
            raise PipelineError(f"null in the column '{COLUMN}', which holds the stamp of each record of a stream")
        ids: list[bytes] = column.cast(pa.large_binary()).to_pylist()
        return ids


Stamps = Positions | CarriedIds


class Task(NamedTuple):
    """One task of one micro-batch: the same when the batch is done again."""

    query: UUID
    epoch: int
    partition: int

    def packed(self) -> bytes:
        """The first 28 bytes of its ids."""
        return _TASK.pack(self.query.bytes, self.epoch, self.partition)


def task() -> Task:
    """The task that this code runs in, within a streaming query."""
    context = _context()
    query, epoch = setting(QUERY), setting(EPOCH)
    assert query and epoch, "outside of a streaming query"
    return Task(UUID(query), int(epoch), context.partitionId())


def setting(name: str) -> str | None:
    """A setting of the query that this code runs in; None for a default."""
    found: str | None = _context().getLocalProperty(name)
    return found


def partition() -> int:
    """Spark's partition of the task that this code runs in."""
    return _context().partitionId()


def _context() -> TaskContext:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "outside of a task"
    return context
