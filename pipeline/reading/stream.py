"""The reader of a stream: Spark plans it on the driver and reads in tasks.

A stream's offsets are Spark's JSON of offsets, and its checkpoint looks like that of the Kafka source. How Spark asks
for the newest offset depends on its version: `admission` is for PySpark 4.2 and later, `former` for earlier ones.

A stream that died in its very first batch does that batch again. The checkpoint has only the batch's end; its start is
the first offset committed to odradek.commit.group, if there is one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from odradek.pipeline.errors import UnknownTopic
from odradek.pipeline.reading import first_batch, losses, offsets, planning, splits, tasks
from odradek.pipeline.reading.read_options import ReadOptions
from odradek.pipeline.reading.read_warnings import tell, warn
from odradek.pipeline.types import EARLIEST, LATEST, Partition
from odradek.pipeline.wire.brokers import Brokers

Offsets = dict[Partition, int]
Seen = dict[Partition, tuple[int, bytes]]
"""The offset up to which a partition was read, and its topic's id."""


class StreamReader(DataSourceStreamReader):
    """The reader of one stream; Spark's planner process keeps it while the stream runs."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._brokers: Brokers | None = None
        self._start: Offsets | None = None  # where its first batch begins
        self._at: Offsets | None = None  # the end of the last batch
        self._seen: Seen = {}  # the end of every partition's last batch, except for the batch in `_planned`
        self._planned: tuple[Offsets, Seen] = {}, {}
        self._went: float | None = None  # time of the last batch (monotonic seconds)
        warn(options)

    def _begin(self) -> Offsets:
        """Where a new stream begins."""
        brokers, options = self._open(), self._options
        keys = options.subscription.existing(brokers.topics(offsets.named(options.start)))
        start = offsets.resolve(options.start, keys, brokers, options.committed, "starting")
        if options.commit_group:
            brokers.commit(options.commit_group, start)
        return start

    def _began(self, end: Offsets) -> Offsets:
        """Where the first batch, which ends at `end`, began before its interruption. DataLoss where that is unknown."""
        start = first_batch.began(self._open(), self._options, end)
        return {key: min(offset, end[key]) for key, offset in start.items() if key in end}

    def _available(self, at: Offsets) -> Offsets:
        """The current ends; listed again where one is before what was read: a new leader may report that briefly."""
        brokers, options, left = self._open(), self._options, self._options.attempts
        while True:
            found = self._listed(lambda: options.subscription.existing(brokers.topics(at)), LATEST, options.committed)
            left -= 1
            if left <= 0 or all(end >= at.get(key, 0) for key, end in found.items()):
                return found
            time.sleep(options.retry_ms / 1000)

    def _next(self, at: Offsets, available: Offsets, most: int | None, may_wait: bool) -> Offsets:
        """Where a batch from `at` with at most `most` offsets ends; `at` itself if it waits for more."""
        new = available.keys() - at.keys()
        start = at | (self._starts(self._open(), new) if new else {})
        if may_wait and self._waits(planning.pending(start, available)):
            return at
        return planning.limited(start, available, most)

    def _waits(self, pending: int) -> bool:
        """Whether the batch waits for minOffsetsPerTrigger, until maxTriggerDelay is over."""
        options = self._options
        waited = None if self._went is None else (time.monotonic() - self._went) * 1000
        return planning.delayed(pending, options.min_offsets, waited, options.max_delay_ms)

    def _starts(self, brokers: Brokers, new: Collection[Partition]) -> Offsets:
        """Where partitions missing in the last batch begin; a metadata response may have left them out once."""
        ids = {key: leader.topic_id for key, leader in brokers.leaders_of(new).items()}
        return brokers.offsets(new, EARLIEST) | _ends(self._seen | self._planned[1], ids)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The pieces of the batch between two offsets."""
        begin, self._at = offsets.from_json(start), offsets.from_json(end)
        if begin == self._at:
            return []
        self._went = time.monotonic()
        brokers = self._open()
        with brokers.steady():
            first = self._first(self._at)
            ids = {key: leader.topic_id for key, leader in brokers.leaders_of(first).items()}
            self._note(begin, {key: (self._at[key], topic) for key, topic in ids.items()})
            begin = _ends(self._seen, ids) | begin
            left, lost = losses.between(begin, self._at, first)
            tell(lost, self._options)
            pieces = splits.of_stream(brokers, planning.stream(begin, self._at), left, self._options)
        return [InputPartition(split) for split in pieces]

    def _note(self, begin: Offsets, ends: Seen) -> None:
        """Record a planned batch, perhaps not for the first time."""
        if self._planned[0] != begin:
            self._seen |= self._planned[1]
        self._planned = begin, ends

    def _first(self, wanted: Mapping[Partition, int]) -> Offsets:
        """The first offsets of the partitions that exist."""

        def existing() -> list[Partition]:
            topics = self._open().topics(wanted)
            return [key for key in wanted if key[1] < topics.get(key[0], 0)]

        return self._listed(existing, EARLIEST)

    def _listed(self, partitions: Callable[[], list[Partition]], at: int, committed: bool = False) -> Offsets:
        """The offset `at` of each of `partitions`, which are listed again where one has gone since."""
        try:
            return self._open().offsets(partitions(), at, committed)
        except UnknownTopic:
            return self._open().offsets(partitions(), at, committed)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a piece, in a task; a lost piece yields nothing."""
        split = partition.value
        return tasks.read(self._options, split) if split.span.size else iter(())

    def commit(self, end: dict[str, Any]) -> None:
        """A batch is done: commit its end to odradek.commit.group, so that ordinary tools show the lag."""
        if self._options.commit_group:
            self._open().commit(self._options.commit_group, offsets.from_json(end))

    def stop(self) -> None:
        """The stream has ended."""
        if self._brokers is not None:
            self._brokers.close()
            self._brokers = None

    def _open(self) -> Brokers:
        if self._brokers is None:
            self._brokers = Brokers(self._options.kafka)
        return self._brokers


def _ends(seen: Seen, ids: Mapping[Partition, bytes]) -> Offsets:
    """The ends of partitions whose topic is still the same."""
    return {key: seen[key][0] for key, topic_id in ids.items() if key in seen and seen[key][1] == topic_id}
