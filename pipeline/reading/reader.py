"""The readers as Spark calls them: on the driver to plan, in a task to read.

A stream's offsets are Spark's JSON of offsets, and its checkpoint looks like that of the Kafka source. PySpark 4.0
gives a Python source neither the last offset nor a limit when it asks for the newest, so the reader remembers where
it is. It asks a new stream for the newest offset first and for the initial one afterwards; one that goes on from a
checkpoint is told the last seen offset before, by planning an empty batch there, and asked for the initial one if it
died in its very first batch, which is done again from there. The checkpoint has only the end of that batch: where it
began is noted as the first offsets of odradek.commit.group, if there is one.

With Trigger.AvailableNow PySpark 4.0 runs one batch, which maxOffsetsPerTrigger would cut short.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pyarrow as pa
from odradek.pipeline.options import ReadOptions
from odradek.pipeline.reading import first_batch, losses, offsets, planning, splits, tasks
from odradek.pipeline.types import EARLIEST, LATEST, Partition
from odradek.pipeline.wire.brokers import Brokers
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

log = logging.getLogger(__name__)

Offsets = dict[Partition, int]
Seen = dict[Partition, tuple[int, bytes]]
"""The offset up to which a partition was read, and its topic's id."""


class BatchReader(DataSourceReader):
    """Of one query: from where to where is decided when it is planned."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        _warn(options)

    def partitions(self) -> list[InputPartition]:
        """The pieces to read; whatever was written before they were planned, and nothing after it."""
        options = self._options
        with Brokers(options.kafka) as brokers, brokers.steady():
            keys = options.subscription.existing(brokers.topics())
            start = offsets.resolve(options.start, keys, brokers, options.committed, "starting")
            end = offsets.resolve(options.end, keys, brokers, options.committed, "ending")
            first = brokers.offsets(keys, EARLIEST)
            last = brokers.offsets(keys, LATEST, options.committed)
            ranges, lost = losses.within(planning.batch(start, end), first, last)
            _tell(lost, options)
            return splits.of_batch(brokers, ranges, first, last, options)

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """A piece; None stands for a query with none."""
        return tasks.read(self._options, partition) if isinstance(partition, splits.Split) else iter(())


class StreamReader(DataSourceStreamReader):
    """Of a stream; Spark's planner process keeps it while the stream runs."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._brokers: Brokers | None = None
        self._start: Offsets | None = None  # where the options say that it begins
        self._at: Offsets | None = None  # the end of the last batch
        self._seen: Seen = {}  # of every partition there was where its last batch ended, but for the batch `_planned`
        self._planned: tuple[Offsets, Seen] = {}, {}
        self._went: float | None = None  # when there was one (monotonic seconds)
        _warn(options)

    def initialOffset(self) -> dict[str, Any]:
        """Where a new stream begins, or the first batch that is done again began. DataLoss where that is unknown."""
        start = self._begin()
        end = start if self._at is None else self._at
        return offsets.as_json({key: min(offset, end[key]) for key, offset in start.items() if key in end})

    def _begin(self) -> Offsets:
        if self._start is None:
            brokers, options = self._open(), self._options
            if self._at is None:
                keys = options.subscription.existing(brokers.topics())
                self._start = offsets.resolve(options.start, keys, brokers, options.committed, "starting")
                if options.commit_group:
                    brokers.commit(options.commit_group, self._start)
            else:
                self._start = first_batch.began(brokers, options, self._at)
        return self._start

    def latestOffset(self) -> dict[str, Any]:
        """Where the next batch ends; where the last one did as long as there is nothing to do."""
        if self._at is None:
            self._at = self._begin()
        brokers = self._open()
        return offsets.as_json(self._end(brokers, self._at, self._available(brokers, self._at)))

    def _available(self, brokers: Brokers, at: Offsets) -> Offsets:
        """The ends now; asked for again where one is before what was read: a new leader may say so for a moment."""
        options, left = self._options, self._options.attempts
        while True:
            found = brokers.offsets(options.subscription.existing(brokers.topics()), LATEST, options.committed)
            left -= 1
            if left <= 0 or all(end >= at.get(key, 0) for key, end in found.items()):
                return found
            time.sleep(options.retry_ms / 1000)

    def _end(self, brokers: Brokers, at: Offsets, available: Offsets) -> Offsets:
        options = self._options
        new = available.keys() - at.keys()
        start = at | (self._starts(brokers, new) if new else {})
        waited = None if self._went is None else (time.monotonic() - self._went) * 1000
        if planning.delayed(planning.pending(start, available), options.min_offsets, waited, options.max_delay_ms):
            return at
        return planning.limited(start, available, options.max_offsets)

    def _starts(self, brokers: Brokers, new: Collection[Partition]) -> Offsets:
        """Where those begin that the last batch had not; a metadata answer may have left them out for once."""
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
            first = self._first(brokers, self._at)
            ids = {key: leader.topic_id for key, leader in brokers.leaders_of(first).items()}
            self._note(begin, {key: (self._at[key], topic) for key, topic in ids.items()})
            begin = _ends(self._seen, ids) | begin
            left, lost = losses.between(begin, self._at, first)
            _tell(lost, self._options)
            return splits.of_stream(brokers, planning.stream(begin, self._at), left, self._options)

    def _note(self, begin: Offsets, ends: Seen) -> None:
        """A batch is planned, perhaps not for the first time."""
        if self._planned[0] != begin:
            self._seen |= self._planned[1]
        self._planned = begin, ends

    def _first(self, brokers: Brokers, wanted: Mapping[Partition, int]) -> Offsets:
        """The first offsets of those partitions that exist."""
        topics = brokers.topics()
        return brokers.offsets([key for key in wanted if key[1] < topics.get(key[0], 0)], EARLIEST)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """A piece, in a task; of one that is lost nothing."""
        assert isinstance(partition, splits.Split)
        return tasks.read(self._options, partition) if partition.span.size else iter(())

    def commit(self, end: dict[str, Any]) -> None:
        """A batch is done: the group of odradek.commit.group is told, so that its lag is seen by ordinary tools."""
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
    """Of those that are still of the same topic."""
    return {key: seen[key][0] for key, topic_id in ids.items() if key in seen and seen[key][1] == topic_id}


def _tell(lost: list[losses.Loss], options: ReadOptions) -> None:
    """Fail, or say what is left out."""
    count = losses.report(lost, options.fail_on_data_loss)
    for loss in lost:
        log.warning("%s: left out (failOnDataLoss=false)", loss.text)
    if lost:
        log.warning("%d offsets are lost in all", count)


def _warn(options: ReadOptions) -> None:
    for note in options.notes:
        log.warning("%s", note)
