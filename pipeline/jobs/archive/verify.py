"""Is in the archive what is in the log? Of each partition the number of records and the sum of their checksums.

    files    each is there, can be read (with its pages' checksums), and has the records that the manifest says; and
             what keys and values were decoded to is what their bytes say
    log      the records of offsets that both have are the same, as bytes: what `restore` would write. Where the sums
             differ the records are compared one by one, and the offsets told

What the log has deleted, or the archive has not yet, is not compared; and a compacted log need not have all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING
from urllib.parse import unquote

from odradek.pipeline.jobs import progress, topics
from odradek.pipeline.jobs.archive import contents, shapes, sums
from odradek.pipeline.jobs.archive.contents import Reading
from odradek.pipeline.jobs.archive.formats import Shape
from odradek.pipeline.jobs.archive.manifest import File, Span, State
from odradek.pipeline.jobs.causes import cause
from odradek.pipeline.options import ReadOptions
from odradek.pipeline.reading import offsets
from odradek.pipeline.types import EARLIEST, LATEST, Range
from odradek.pipeline.wire.brokers import Brokers

if TYPE_CHECKING:
    from odradek.pipeline.jobs.files import Files
    from pyspark.sql import DataFrame, SparkSession

_FILE = "_odradek_file"
_SAID = {
    sums.EXTRA: "in the archive and not in the log",
    sums.MISSING: "in the log and not in the archive",
    sums.DOUBLED: "more often in the archive than in the log",
    sums.CHANGED: "not the same in log and archive",
}
Counts = dict[str, dict[int, tuple[Span, int]]]
"""By file and partition: what is in it, and the sum of its records' checksums."""


@dataclass
class Report:
    """A line for each difference, and for each thing that could not be compared; `records` were, with the log's."""

    differences: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    records: int = 0


def verify(spark: SparkSession, files: Files, kafka: dict[str, str], names: Sequence[str]) -> Report:
    """Compare the archive at `files` with the topics of these names, where `kafka` (for `.options`) leads to.

    Raises PipelineError where there is no archive, or the cluster does not answer.
    """
    source = {"kafka.isolation.level": "read_committed", **kafka}
    whole = Report()
    for name in names:
        with progress.described(spark, f"verify {name}"):
            topic = _Topic(spark, files, source, name)
            found = Reading(files).steadily(name, topic.report, lambda one: not one.differences)
        whole.differences += found.differences
        whole.notes += found.notes
        whole.records += found.records
    return whole


class _Topic:
    """One topic; `report` begins anew each time."""

    def __init__(self, spark: SparkSession, files: Files, source: dict[str, str], name: str) -> None:
        self._spark, self._files, self._source, self._name = spark, files, source, name
        self._found = Report()

    def report(self, state: State) -> Report:
        """Of the files first, then beside the log."""
        self._found = Report()
        if self._name not in state.topics:
            self._differs("the archive has nothing of it")
            return self._found
        wrong = contents.faults(self._files, state.of(self._name), [f"topic={self._name}"])
        for text in wrong.values():
            self._differs(text)
        readable = self._readable([file for file in state.of(self._name) if file.path not in wrong])
        self._compare(readable, {index: end for (name, index), end in state.offsets.items() if name == self._name})
        return self._found

    def _differs(self, text: str) -> None:
        self._found.differences.append(f"{self._name}: {text}")

    def _notes(self, text: str) -> None:
        self._found.notes.append(f"{self._name}: {text}")

    # -- the files

    def _readable(self, chosen: list[File]) -> list[File]:
        """Those that Spark can read, with a look at what is in them; where it fails on one it is tried with each."""
        try:
            wrong = [line for group, frame in self._frames(chosen) for line in _contents(frame, group)]
        except Exception as error:
            if len(chosen) > 1:
                return [file for each in chosen for file in self._readable([each])]
            self._differs(f"{chosen[0].path} cannot be read: {cause(error)}")
            return []
        for line in wrong:
            self._differs(line)
        return chosen

    def _frames(self, chosen: list[File]) -> list[tuple[list[File], DataFrame]]:
        return contents.frames(self._spark, self._files, chosen)

    # -- the log

    def _compare(self, chosen: list[File], ends: dict[int, int]) -> None:
        ranges = self._ranges(chosen, ends)
        if not ranges:
            return
        log = self._log(ranges)
        archive = sums.within(self._archive(chosen, log), ranges)
        there, here = sums.of(log), sums.of(archive)
        self._found.records += sum(count for count, _ in there.values())
        apart = {index: ranges[index] for index in there.keys() | here.keys() if there.get(index) != here.get(index)}
        if apart:
            self._tell(sums.differing(sums.within(archive, apart), sums.within(log, apart)))

    def _ranges(self, chosen: list[File], ends: dict[int, int]) -> dict[int, Range]:
        """By partition the offsets that both have, or must have."""
        options = ReadOptions.parse({**self._source, "subscribe": self._name}, streaming=False)
        with Brokers(options.kafka) as brokers:
            count = brokers.topics().get(self._name, 0)
            keys = [(self._name, index) for index in range(count)]
            first, last = brokers.offsets(keys, EARLIEST), brokers.offsets(keys, LATEST, options.committed)
        found = {}
        for index, end in ends.items():
            if index >= count:
                self._notes(f"there is no partition {index} in the cluster, it is not compared")
            else:
                found[index] = Range(self._name, index, first[self._name, index], min(end, last[self._name, index]))
                self._check_range(found[index], end, contents.first(chosen, index, end))
        return {index: one for index, one in found.items() if one.size > 0}

    def _check_range(self, range_: Range, archive_end: int, archive_first: int) -> None:
        """What of the archive's offsets is before, or beyond, those of the log."""
        where = f"partition {range_.partition}"
        if archive_first < range_.start:
            last = min(archive_end, range_.start) - 1
            self._notes(f"{where}: offsets {archive_first} to {last} are no more in the log, they are not compared")
        if range_.end < archive_end:
            self._differs(f"{where}: the log ends at {range_.end}, the archive at {archive_end}")

    def _log(self, ranges: dict[int, Range]) -> DataFrame:
        start, end = {one.key: one.start for one in ranges.values()}, {one.key: one.end for one in ranges.values()}
        where = {
            "assign": json.dumps({self._name: sorted(ranges)}),
            "startingOffsets": json.dumps(offsets.as_json(start)),
            "endingOffsets": json.dumps(offsets.as_json(end)),
        }
        return (
            self._spark.read.format("odradek")
            .options(**self._source, **where, includeHeaders="true")
            .load()
            .drop("topic")
        )

    def _archive(self, chosen: list[File], like: DataFrame) -> DataFrame:
        """As the log has it."""
        parts = [shapes.unshape(frame).select(*like.columns) for _, frame in self._frames(chosen)]
        return reduce(lambda one, more: one.unionByName(more), parts, like.limit(0))

    def _tell(self, found: Iterable[tuple[int, int, int, int, int]]) -> None:
        settings = {key.removeprefix("kafka."): value for key, value in self._source.items()}
        compacted = "compact" in topics.configs(settings, [self._name])[self._name]["cleanup.policy"]
        for partition, kind, count, first, last in found:
            line = f"partition {partition}: {count} records are {_SAID[kind]}: offsets {first} to {last}"
            if kind == sums.EXTRA and compacted:
                self._notes(f"{line}, as is right of a compacted topic")
            else:
                self._differs(line)


def _contents(frame: DataFrame, chosen: Iterable[File]) -> Iterator[str]:
    """What is wrong with the records of files that can be read."""
    shape, found = shapes.of(frame), _counted(frame)
    again = found if shape == Shape() else _counted(frame, shape)
    for file in chosen:
        here = found.get(file.path, {})
        if {index: span for index, (span, _) in here.items()} != file.partitions:
            yield f"{file.path} has {_rows(here)} records, not the {file.rows} with the offsets it was written with"
        elif here != again.get(file.path):
            yield f"{file.path}: what keys or values were decoded to is not what their bytes say"


def _counted(frame: DataFrame, shape: Shape | None = None) -> Counts:
    """With `shape` of what comes out when all is encoded, and decoded again."""
    from pyspark.sql import functions as F

    named = frame.withColumn(_FILE, F.input_file_name())
    if shape is not None:
        named = shapes.shape(shapes.unshape(named), shape)
    counts = (F.count("*"), F.min("offset"), F.max("offset"), sums.total(sums.checksum(named, frame.columns)))
    found: Counts = {}
    for path, partition, *span, sum_ in named.groupBy(_FILE, "partition").agg(*counts).collect():
        found.setdefault(_relative(path), {})[partition] = (Span(*span), int(sum_))
    return found


def _relative(uri: str) -> str:
    """To the archive: a file's path begins with the folder of its topic, and has two more."""
    return "/".join(unquote(uri).split("/")[-4:])


def _rows(spans: dict[int, tuple[Span, int]]) -> int:
    return sum(span.rows for span, _ in spans.values())
