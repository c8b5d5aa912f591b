"""Compare the archive with the log: by partition the number of records and the sum of their checksums.

    files    each exists, is readable (with its pages' checksums), and has the records of its manifest entry; and the
             decoded keys and values match their bytes (except where only a registry has the schema that they were
             written with: then the bytes are kept, and the decoded value is not checked)
    log      the records of offsets that both have are the same, as bytes: what `restore` would write. Where the sums
             differ the records are compared one by one, and the offsets reported

Records that the log has deleted, or the archive does not have yet, are not compared; and a compacted log need not have
all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote

from odradek.pipeline.jobs import progress
from odradek.pipeline.jobs.archive.formats import shapes
from odradek.pipeline.jobs.archive.formats.formats import Shape
from odradek.pipeline.jobs.archive.store import contents
from odradek.pipeline.jobs.archive.store.contents import Reading
from odradek.pipeline.jobs.archive.store.manifest import File, Span, State
from odradek.pipeline.jobs.archive.verify import checksums
from odradek.pipeline.jobs.archive.verify.comparison import Comparison
from odradek.pipeline.jobs.archive.verify.differences import Report
from odradek.pipeline.jobs.causes import cause

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from odradek.pipeline.jobs.files import Files

_FILE = "_odradek_file"
Counts = dict[str, dict[int, tuple[Span, int]]]
"""By file and partition: its records, and the sum of their checksums."""


def verify(
    spark: SparkSession, files: Files, kafka: dict[str, str], names: Sequence[str], named: bool = True
) -> Report:
    """Compare the archive at `files` with the topics of these names, in the cluster of `kafka` (for `.options`).

    Where the user `named` none and a pattern found them, the archive may not have seen all of them yet. Raises
    PipelineError where there is no archive, or the cluster does not answer.
    """
    source = {"kafka.isolation.level": "read_committed", **kafka}
    whole = Report()
    for name in names:
        with progress.described(spark, f"verify {name}"):
            topic = _Topic(spark, files, name, Comparison(spark, files, source, name), named)
            whole.add(Reading(files).steadily(name, topic.report, lambda one: not one.differences))
    return whole


class _Topic:
    """One topic; `report` starts over each time."""

    def __init__(self, spark: SparkSession, files: Files, name: str, comparison: Comparison, named: bool) -> None:
        self._spark, self._files, self._name, self._comparison, self._named = spark, files, name, comparison, named
        self._found = Report()

    def report(self, state: State) -> Report:
        """Check the files first, then compare with the log."""
        if self._name not in state.topics:
            return self._comparison.nothing(self._named)
        self._found = Report()
        wrong = contents.faults(self._files, state.of(self._name), [f"topic={self._name}"])
        for text in wrong.values():
            self._differs(text)
        for line in _unaccounted(state, self._name):
            self._differs(line)
        readable = self._readable([file for file in state.of(self._name) if file.path not in wrong])
        ends = {index: end for (name, index), end in state.offsets.items() if name == self._name}
        self._found.add(self._comparison.report(readable, ends))
        return self._found

    def _differs(self, text: str) -> None:
        self._found.differences.append(f"{self._name}: {text}")

    def _readable(self, chosen: list[File]) -> list[File]:
        """The files that Spark can read, with their contents checked; if reading fails, each is tried alone."""
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


def _unaccounted(state: State, name: str) -> Iterator[str]:
    """Partitions with offsets for which the manifest has neither a record nor a reason."""
    rows: Counter[int] = Counter()
    for file in state.of(name):
        rows.update({index: span.rows for index, span in file.partitions.items()})
    for (topic, index), begun in sorted(state.begun.items()):
        end = state.offsets[topic, index]
        told = rows[index] + sum(state.skipped.get((topic, index), {}).values())
        if topic == name and told != end - begun:
            yield f"partition {index}: the manifest covers {told} of the offsets {begun} to {end - 1}"


def _contents(frame: DataFrame, chosen: Iterable[File]) -> Iterator[str]:
    """What is wrong with the records of readable files."""
    shape, found = shapes.of(frame), _counted(frame)
    again = found if shape == Shape() else _counted(frame, shape)
    for file in chosen:
        here = found.get(file.path, {})
        if {index: span for index, (span, _) in here.items()} != file.partitions:
            yield f"{file.path} has {_rows(here)} records, not the {file.rows} records and offsets of the manifest"
        elif here != again.get(file.path):
            yield f"{file.path}: the decoded keys or values do not match their bytes"


def _counted(frame: DataFrame, shape: Shape | None = None) -> Counts:
    """With `shape`: after encoding everything and decoding it again."""
    from pyspark.sql import functions as F

    named = shapes.foreign(frame.withColumn(_FILE, F.input_file_name()))
    if shape is not None:
        named = shapes.shape(shapes.unshape(named), shape)
    named = shapes.without_foreign(named)
    counts = (F.count("*"), F.min("offset"), F.max("offset"), checksums.total(checksums.checksum(named, frame.columns)))
    found: Counts = {}
    for path, partition, *span, sum_ in named.groupBy(_FILE, "partition").agg(*counts).collect():
        found.setdefault(_relative(path), {})[partition] = (Span(*span), int(sum_))
    return found


def _relative(uri: str) -> str:
    """Relative to the archive: a file's path begins with the folder of its topic, and has two more."""
    return "/".join(unquote(uri).split("/")[-4:])


def _rows(spans: dict[int, tuple[Span, int]]) -> int:
    return sum(span.rows for span, _ in spans.values())
