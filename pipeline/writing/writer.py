"""Writing to topics from Spark: `df.write` and `df.writeStream` with format `odradek`.

Both write at least once. A task that fails after half of its rows has written that half, and Spark's next try writes
it again; so does a stream whose driver died before it noted a batch as done. A stream's records are stamped for that
(`stamps`): who reads them drops those whose id it has seen, and then each row counts once. Within one try nothing is
doubled: the producer is idempotent.

A task's rows are on the broker, as `acks` demands, before Spark hears that it is done.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from odradek.pipeline.errors import OptionError
from odradek.pipeline.options import WriteOptions
from odradek.pipeline.writing import destination, outgoing, producer_settings, stamps
from odradek.pipeline.writing.outgoing import Outgoing
from odradek.pipeline.writing.producing import sender
from odradek.pipeline.writing.stamps import Positions, Stamps, Travelling
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

_log = logging.getLogger(__name__)


def writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceWriter:
    """For `df.write`, of mode append. PipelineError on the driver, before anything is written, for what cannot be."""
    if overwrite:
        raise OptionError("a topic cannot be overwritten: use mode('append')")
    plan = Plan.of(WriteOptions.parse(options, streaming=False), schema)
    if plan.stamped and not plan.travelling:
        raise OptionError(f"odradek.stamp: outside of a stream the ids must be in a column '{stamps.COLUMN}'")
    if plan.topic is not None:
        destination.expect(plan.settings, plan.topic)
    return BatchWriter(plan)


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
    """For `df.writeStream`. In complete mode (`overwrite`) each batch appends the whole result, as with Spark's."""
    return StreamWriter(Plan.of(WriteOptions.parse(options, streaming=True), schema))


@dataclass(frozen=True)
class Plan:
    """What the tasks are told: pickled by Spark."""

    topic: str | None
    settings: dict[str, str] = field(repr=False)  # librdkafka's, passwords too
    headers: bool
    stamped: bool
    travelling: bool  # whether the rows bring their ids along
    timed: bool = False  # whether they bring their timestamps along

    @classmethod
    def of(cls, options: WriteOptions, schema: StructType) -> Plan:
        """Raises OptionError."""
        outgoing.check(schema, options.topic, options.stamp, options.timestamps)
        settings = producer_settings.checked(producer_settings.librdkafka(options.kafka))
        travelling = stamps.COLUMN in schema.names
        return cls(options.topic, settings, options.headers, options.stamp, travelling, options.timestamps)

    def outgoing(self) -> Outgoing:
        """What takes the rows apart of the task that this runs in."""
        return Outgoing(self.topic, self.headers, self._ids(), self.timed)

    def _ids(self) -> Stamps | None:
        if not self.stamped:
            return None
        return Travelling() if self.travelling else Positions(stamps.task())


@dataclass(frozen=True)
class Sent(WriterCommitMessage):
    """What a task has written: records, and bytes of their keys and values, by topic."""

    records: dict[str, int]
    bytes: dict[str, int]


def write(plan: Plan, batches: Iterator[pa.RecordBatch]) -> Sent:
    """Runs in the task. PipelineError naming topic, partition and reason when a record was not delivered."""
    rows, records, size = plan.outgoing(), Counter[str](), Counter[str]()
    with sender(plan.settings) as one:
        for batch in batches:
            if batch.num_rows:
                one.send(rows.records(batch))
            for topic, count, bytes_ in rows.bytes_by_topic(batch):
                records[topic] += count
                size[topic] += bytes_
    return Sent(dict(records), dict(size))


def total(messages: Sequence[WriterCommitMessage | None]) -> Sent:
    """What all tasks together have written."""
    records, size = Counter[str](), Counter[str]()
    for message in messages:
        if isinstance(message, Sent):
            records.update(message.records)
            size.update(message.bytes)
    return Sent(dict(records), dict(size))


class BatchWriter(DataSourceArrowWriter):
    """Of `df.write`."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """One task."""
        return write(self._plan, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, when all tasks are done."""
        _log.info("written: %s", total(messages))


class StreamWriter(DataSourceStreamWriter, DataSourceArrowWriter):  # type: ignore[misc] # their commits differ
    """Of `df.writeStream`. As an Arrow writer, too, it is given Arrow batches: Spark's worker looks for that class."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]
        """One task of one micro-batch."""
        return write(self._plan, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # type: ignore[override]
        """On the driver, when all tasks of a micro-batch are done."""
        _log.info("written in batch %d: %s", batchId, total(messages))
