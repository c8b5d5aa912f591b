"""Why offsets of a batch have no record in the archive: control, aborted, compacted, lost.

If each offset has a record there is nothing to do. Else this scans the log once more, headers only: an offset that is
neither of a marker nor of an aborted transaction was removed from a batch, or is in none, and the reader has accepted
that (`wire.holes`). In a topic that is not compacted the reader accepts no hole between batches, unless losses are left
out: then a record was read and not written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs import in_arrow
from odradek.pipeline.jobs.archive.store.manifest import ABORTED, COMPACTED, CONTROL, LOST, UNKNOWN
from odradek.pipeline.jobs.causes import cause, expected
from odradek.pipeline.reading import skipped, splits, tasks
from odradek.pipeline.reading.read_options import ReadOptions
from odradek.pipeline.reading.skipped import Skipped
from odradek.pipeline.reading.splits import Split
from odradek.pipeline.types import Partition, Range
from odradek.pipeline.wire.brokers import Brokers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)
_NAMES = ["topic", "partition", "control", "aborted", "removed"]
_DDL = "topic string, partition int, control bigint, aborted bigint, removed bigint"


def reasons(
    spark: SparkSession, options: ReadOptions, missing: Mapping[Range, int], compacted: Callable[[str], bool]
) -> dict[Partition, dict[str, int]]:
    """The reasons for one batch's ranges; `missing` has the offsets without a record. `compacted`: is this topic?

    PipelineError where there is no reason.
    """
    if not missing:
        return {}
    try:
        found = _counted(spark, replace(options, compacted=True, fail_on_data_loss=False), list(missing))
    except Exception as error:
        if not expected(error):
            raise
        log.warning("why %d offsets have no record is not known: %s", sum(missing.values()), cause(error))
        return {one.key: {UNKNOWN: count} for one, count in missing.items()}
    rest = {one: COMPACTED if compacted(one.topic) else LOST for one in missing}
    named = {one: _apart(count, found.get(one.key, Skipped()), rest[one]) for one, count in missing.items()}
    if options.fail_on_data_loss:
        _check_none_lost(named)
    return {one.key: why for one, why in named.items()}


def _check_none_lost(named: Mapping[Range, Mapping[str, int]]) -> None:
    for one, why in named.items():
        if LOST in why:
            raise PipelineError(
                f"{one.topic}-{one.partition}: {why[LOST]} of the offsets {one.start} to {one.end - 1} have neither a "
                "record nor a reason; nothing of this batch is archived (--no-fail-on-data-loss archives the others)"
            )


def _apart(count: int, found: Skipped, rest: str) -> dict[str, int]:
    left = count - found.control - found.aborted
    named = {CONTROL: found.control, ABORTED: found.aborted, COMPACTED if left <= found.removed else rest: left}
    return {reason: number for reason, number in named.items() if number} if left >= 0 else {UNKNOWN: count}


def _counted(spark: SparkSession, options: ReadOptions, ranges: Sequence[Range]) -> dict[Partition, Skipped]:
    with Brokers(options.kafka) as brokers, brokers.steady():
        pieces = splits.of_stream(brokers, ranges, ranges, options)
    numbers = spark.range(0, len(pieces), 1, len(pieces))
    found: dict[Partition, Skipped] = {}
    for topic, index, *counts in in_arrow.mapped(numbers, _Counting(options, pieces), _DDL).collect():
        before = found.get((topic, index), Skipped())
        found[topic, index] = Skipped(*(one + more for one, more in zip(before, counts, strict=True)))
    return found


@dataclass(frozen=True)
class _Counting:
    """In a task: counts the pieces whose numbers are in its rows."""

    options: ReadOptions
    pieces: Sequence[Split]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                piece = self.pieces[number]
                found = skipped.count(tasks.chunks(self.options, piece, piece.span), piece.span)
                row = (piece.span.topic, piece.span.partition, *found)
                columns = [pa.array([piece], kind) for piece, kind in zip(row, _TYPES, strict=True)]
                yield pa.RecordBatch.from_arrays(columns, _NAMES)


_TYPES = (pa.string(), pa.int32(), pa.int64(), pa.int64(), pa.int64())
