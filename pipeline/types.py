"""Types that the pipeline's modules exchange. Spark pickles all of them for its executors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from odradek.protocol.wire import INT64_MAX

Partition = tuple[str, int]
"""Topic and index."""

NO_ID = bytes(16)
"""The topic id of brokers before 2.8, which have no ids."""

EARLIEST, LATEST = -2, -1
"""Offsets that stand for the first and the end, in Spark's JSON as in Kafka's ListOffsets."""

LAST_MS = INT64_MAX // 1000 - 1
"""The latest time that Spark's timestamps, in µs, can hold; the earliest is as far before 1970."""


@dataclass(frozen=True, order=True)
class Range:
    """The offsets [start, end) of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def key(self) -> Partition:
        """Its partition."""
        return self.topic, self.partition

    @property
    def size(self) -> int:
        """The number of offsets; an upper bound on the records, because compaction and transactions leave gaps."""
        return self.end - self.start


class Leader(NamedTuple):
    """The broker that leads a partition. `topic_id` has 16 bytes, NO_ID where the broker knows none."""

    broker: int
    host: str
    port: int
    topic_id: bytes
    epoch: int


class ReplicaPlace(NamedTuple):
    """How the leader stores a partition: its size on disk, and the partition's directory there."""

    bytes: int
    directory: str


class Chunk(NamedTuple):
    """Whole record batches in the broker's format, one after the other.

    `aborted` are (producer id, first offset) of the aborted transactions to skip, empty for read_uncommitted;
    `until` is the offset after the last batch. `data` is valid until the next chunk of its iterator.
    """

    data: memoryview | bytes
    aborted: tuple[tuple[int, int], ...]
    until: int


@dataclass
class Pace:
    """How much of a log is best read at once: the decoder finds out, and the reader of chunks acts on it.

    `alike`: the records of a batch have one shape, so that a chunk of a batch or two, which stays in the processor's
    cache, costs least. For others numpy's steps cost less for more records at once.
    """

    alike: bool = True


class Target(NamedTuple):
    """Where tasks write Parquet files: `folder` is a path; with `hourly` it has folders by topic, date and hour."""

    folder: str
    hourly: bool
