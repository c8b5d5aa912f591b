"""Compare a topic's records in the archive with the log: number and sum of checksums by partition."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from functools import reduce
from typing import TYPE_CHECKING

from odradek.pipeline.errors import DataLoss, PipelineError, Unreadable
from odradek.pipeline.jobs import topics
from odradek.pipeline.jobs.archive.formats import shapes
from odradek.pipeline.jobs.archive.store import contents
from odradek.pipeline.jobs.archive.store.manifest import File
from odradek.pipeline.jobs.archive.verify import checksums, consuming
from odradek.pipeline.jobs.archive.verify.differences import Report
from odradek.pipeline.jobs.causes import cause, caused_by
from odradek.pipeline.options import bare
from odradek.pipeline.reading import offsets
from odradek.pipeline.reading.read_options import ReadOptions
from odradek.pipeline.types import EARLIEST, LATEST, Range
from odradek.pipeline.wire.brokers import Brokers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from odradek.pipeline.jobs.files import Files

_ROUNDS = 5  # where retention outruns reading each time, it will do so again
_SAID = {
    checksums.EXTRA: "in the archive but not in the log",
    checksums.MISSING: "in the log but not in the archive",
    checksums.DOUBLED: "more often in the archive than in the log",
    checksums.CHANGED: "different in log and archive",
}
Bounds = dict[int, tuple[int, int]]
"""By partition the first offset and the end."""
log = logging.getLogger(__name__)


class Comparison:
    """One topic, read by the options `source`; each report starts over."""

    def __init__(self, spark: SparkSession, files: Files, source: dict[str, str], name: str) -> None:
        self._spark, self._files, self._source, self._name = spark, files, source, name
        self._found = Report()

    def nothing(self, named: bool) -> Report:
        """The archive has nothing of the topic: a difference only if the user `named` it and it has records."""
        self._found = Report()
        has_records = any(first < end for first, end in self._bounds().values())
        tell = self._differs if named and has_records else self._notes
        tell("the archive has no records of it")
        return self._found

    def report(self, chosen: list[File], ends: dict[int, int]) -> Report:
        """Compare the records in these files, up to the offsets `ends` by partition.

        Repeats where the log meanwhile deletes records to compare. DataLoss when that happens each time.
        """
        for left in reversed(range(_ROUNDS)):
            self._found = Report()
            try:
                self._compare(chosen, ends)
                break
            except Exception as error:
                if not left or not caused_by(error, DataLoss):
                    raise
                log.warning("%s: records were deleted from the log while they were read: once more", self._name)
        return self._found

    def _differs(self, text: str) -> None:
        self._found.differences.append(f"{self._name}: {text}")

    def _notes(self, text: str) -> None:
        self._found.notes.append(f"{self._name}: {text}")

    def _compare(self, chosen: list[File], ends: dict[int, int]) -> None:
        ranges = self._ranges(chosen, ends)
        if not ranges:
            return
        try:
            self._compare_with(self._consumed(ranges), chosen, ranges)
        except Exception as error:
            if not caused_by(error, Unreadable):
                raise
            log.warning("%s: read as the archive was, for another client cannot: %s", self._name, cause(error))
            self._compare_with(self._log(ranges), chosen, ranges)

    def _compare_with(self, logged: DataFrame, chosen: list[File], ranges: dict[int, Range]) -> None:
        archived = checksums.within(self._archive(chosen, logged), ranges)
        there, here = checksums.of(logged), checksums.of(archived)
        self._found.records += sum(count for count, _ in there.values())
        apart = {index: ranges[index] for index in there.keys() | here.keys() if there.get(index) != here.get(index)}
        if apart:
            self._tell(checksums.differing(checksums.within(archived, apart), checksums.within(logged, apart)))

    # -- which offsets

    def _bounds(self) -> Bounds:
        """Where the log begins and ends."""
        options = ReadOptions.parse({**self._source, "subscribe": self._name}, streaming=False)
        with Brokers(options.kafka) as brokers:
            keys = [(self._name, index) for index in range(brokers.topics().get(self._name, 0))]
            first, last = brokers.offsets(keys, EARLIEST), brokers.offsets(keys, LATEST, options.committed)
        return {key[1]: (first[key], last[key]) for key in keys}

    def _ranges(self, chosen: list[File], ends: dict[int, int]) -> dict[int, Range]:
        """By partition the offsets that both have, or must have."""
        bounds, found = self._bounds(), {}
        for index, end in ends.items():
            if index not in bounds:
                self._notes(f"partition {index} is not in the cluster and is not compared")
            else:
                first, last = bounds[index]
                found[index] = Range(self._name, index, first, min(end, last))
                self._check_range(found[index], end, contents.first(chosen, index, end))
        return {index: one for index, one in found.items() if one.size > 0}

    def _check_range(self, range_: Range, archive_end: int, archive_first: int) -> None:
        """Report the archive's offsets before, or beyond, those of the log."""
        where = f"partition {range_.partition}"
        if archive_first < range_.start:
            last = min(archive_end, range_.start) - 1
            self._notes(f"{where}: offsets {archive_first} to {last} are no longer in the log and are not compared")
        if range_.end < archive_end:
            self._differs(f"{where}: the log ends at {range_.end}, the archive at {archive_end}")

    # -- their records

    def _consumed(self, ranges: dict[int, Range]) -> DataFrame:
        """Read by a client other than the one that makes archives."""
        return consuming.frame(self._spark, bare(self._source), ranges.values())

    def _log(self, ranges: dict[int, Range]) -> DataFrame:
        start, end = {one.key: one.start for one in ranges.values()}, {one.key: one.end for one in ranges.values()}
        where = {
            "assign": json.dumps({self._name: sorted(ranges)}),
            "startingOffsets": json.dumps(offsets.as_json(start)),
            "endingOffsets": json.dumps(offsets.as_json(end)),
        }
        read = self._spark.read.format("odradek").options(**self._source, **where, includeHeaders="true")
        return _timeless(read.load().drop("topic"))

    def _archive(self, chosen: list[File], like: DataFrame) -> DataFrame:
        """The archive's records with the log's columns."""
        frames = contents.frames(self._spark, self._files, chosen)
        parts = [_timeless(shapes.unshape(frame)).select(*like.columns) for _, frame in frames]
        return reduce(lambda one, more: one.unionByName(more), parts, like.limit(0))

    def _tell(self, found: Iterable[tuple[int, int, int, int, int]]) -> None:
        for partition, kind, count, first, last in found:
            line = f"partition {partition}: {count} records are {_SAID[kind]}: offsets {first} to {last}"
            if kind == checksums.EXTRA and self._compacted():
                self._notes(f"{line}, as expected of a compacted topic")
            else:
                self._differs(line)

    def _compacted(self) -> bool:
        """Where this is unknown, the topic counts as not compacted, and must have all records."""
        try:
            return "compact" in topics.configs(bare(self._source), [self._name])[self._name]["cleanup.policy"]
        except PipelineError as error:
            log.warning("%s: is it compacted? %s", self._name, error)
            return False


def _timeless(rows: DataFrame) -> DataFrame:
    """A record without a time has no timestamp type."""
    from pyspark.sql import functions as F

    none = F.unix_millis("timestamp") == consuming.NO_TIME
    return rows.withColumn("timestampType", F.when(none, F.lit(consuming.NO_TIME)).otherwise(F.col("timestampType")))
