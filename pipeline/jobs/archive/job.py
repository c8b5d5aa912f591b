"""A run of the archive: all existing records, in steps of a bounded number of offsets; or continuously."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from odradek.pipeline.errors import OptionError, PipelineError
from odradek.pipeline.jobs import ending, progress
from odradek.pipeline.jobs.archive import latest
from odradek.pipeline.jobs.archive.sink import compaction, start
from odradek.pipeline.jobs.archive.sink.columns import Columns
from odradek.pipeline.jobs.archive.sink.sink import Rows, Sink
from odradek.pipeline.jobs.archive.sink.start import Start
from odradek.pipeline.jobs.archive.store.delta import Delta
from odradek.pipeline.jobs.archive.store.manifest import now_ms
from odradek.pipeline.jobs.archive.store.store import Store
from odradek.pipeline.jobs.causes import caused_by, one_line_error
from odradek.pipeline.jobs.files import Files
from odradek.pipeline.reading import offsets
from odradek.pipeline.reading.read_options import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

_HOUR = 3_600_000  # ms


@dataclass(frozen=True)
class Job:
    """What to archive, and how. `source` are options of `odradek`, without the start offsets."""

    source: dict[str, str]
    columns: Columns = field(default_factory=Columns)
    continuous: bool = False
    trigger_ms: int = 60_000
    target: int = 128 << 20  # bytes of a file
    compact: bool = True
    several: int = 10  # small files of an unfinished hour: fewer stay, otherwise each minute would rewrite them
    max_offsets: int = 20_000_000  # of a batch
    delta: bool = False  # each topic is a Delta table, too

    @property
    def options(self) -> ReadOptions:
        """Raises OptionError."""
        return ReadOptions.parse(self.source, streaming=True)


def run(spark: SparkSession, files: Files, job: Job) -> None:
    """Archive; returns when all records that existed at the start are archived, or the stream is stopped.

    Raises PipelineError: an archive that is not writable, offsets that are gone, invalid formats; and at the end for
    topics that match the pattern but were skipped, because they are not the archived ones.
    """
    with Store(files, Delta(files) if job.delta else None) as store:
        before = _rows(store)
        begin = _start(store, job)
        job = _known(spark, store, job)
        _check_columns(store, job.columns.check(spark, begin.topics))
        rows: Rows = {}
        with progress.shown(spark, begin.topics, job.source, rows):
            _from(store, job, begin, partial(_on_and_on if job.continuous else _all_there_is, spark, store, job, rows))
        replaced = compaction.run(spark, store, job.target) if job.compact and not job.continuous else 0
        size = sum(file.size for file in store.state.files.values())
        facts = {"records": _rows(store) - before, "files": len(store.state.files), "bytes": size, "replaced": replaced}
        progress.done("archive", **facts)
        if begin.others:
            raise start.made_again(begin.others)


def _known(spark: SparkSession, store: Store, job: Job) -> Job:
    """The job with registries' schemas, found for each topic."""
    return replace(job, columns=replace(job.columns, formats=latest.of(job.columns.formats, spark, store)))


def _check_columns(store: Store, digests: dict[str, str]) -> None:
    """A table whose files have different columns is unreadable."""
    for file in store.state.files.values():
        if digests.get(file.topic, file.schema) != file.schema:
            raise OptionError(
                f"{file.topic} was archived to {store.files.root} with other formats; give the same --key-format and "
                "--value-format, or archive it to another folder"
            )


def _rows(store: Store) -> int:
    return sum(file.rows for file in store.state.files.values())


def _start(store: Store, job: Job) -> Start:
    found = start.find(job.options, store.state)
    for loss in found.lost:
        log.warning("%s: left out (--no-fail-on-data-loss)", loss.text)
    if found.lost:
        log.warning("%d offsets are lost in all", sum(loss.offsets for loss in found.lost))
    return found


def _from(store: Store, job: Job, begin: Start, archive: Callable[[Start], None]) -> None:
    """Archive from there; start again where partitions were added, or topics deleted, before the stream listed them."""
    while True:
        try:
            return archive(begin)
        except Exception as error:
            now = _start(store, job) if caused_by(error, OptionError) else begin
            if now.begin.keys() == begin.begin.keys():
                raise
            begin = now


def _all_there_is(spark: SparkSession, store: Store, job: Job, rows: Rows, begin: Start) -> None:
    """Before 4.2 PySpark runs one batch of a Python source with Trigger.AvailableNow: then each step is a stream."""
    until = begin.end
    while any(begin.begin.get(key, end) < end for key, end in until.items()):
        before = store.state
        _stream(spark, store, job, begin, Sink(store, begin, job.columns, job.options, rows), availableNow=True)
        if store.state.number == before.number:
            raise PipelineError("the stream ended without a batch although there are records to archive")
        begin = _start(store, job)


def _on_and_on(spark: SparkSession, store: Store, job: Job, rows: Rows, begin: Start) -> None:
    sink, hours = Sink(store, begin, job.columns, job.options, rows), _Hours()

    def batch(frame: DataFrame, number: int) -> None:
        sink(frame, number)
        if job.compact:
            compaction.run(spark, store, job.target, 2 if hours.over() else job.several)

    if job.compact:
        compaction.run(spark, store, job.target)
    _stream(spark, store, job, begin, sink, batch, processingTime=f"{job.trigger_ms} milliseconds")


class _Hours:
    """The hours that pass while a job runs."""

    def __init__(self) -> None:
        self._at = now_ms() // _HOUR

    def over(self) -> bool:
        """Whether an hour has ended since the last call."""
        before, self._at = self._at, now_ms() // _HOUR
        return self._at > before


def _stream(
    spark: SparkSession, store: Store, job: Job, begin: Start, sink: Sink, batch: Any = None, **trigger: Any
) -> None:
    frame = spark.readStream.format("odradek").options(**_source(job, begin), **sink.options).load()
    writer = frame.writeStream.queryName(sink.name).foreachBatch(one_line_error(batch or sink))
    writer = writer.option("checkpointLocation", store.files.uri(sink.checkpoint))
    query = writer.trigger(**trigger).start()
    try:
        query.awaitTermination()
        ending.started()
    finally:
        query.stop()


def _source(job: Job, begin: Start) -> dict[str, str]:
    which = dict(job.source)
    if begin.others:  # of a pattern, which matches them as well
        which.pop("subscribePattern", None)
        which["subscribe"] = ",".join(begin.topics)
    return {
        **which,
        "includeHeaders": "true",
        "startingOffsets": json.dumps(offsets.as_json(begin.begin)),
        "maxOffsetsPerTrigger": str(job.max_offsets),
    }
