"""Write to topics from Spark: `df.write` and `df.writeStream` with format `odradek`.

Without `odradek.transactional` both write at least once. A task that fails after half of its rows has written that
half, and Spark's next try writes it again; so does a stream whose driver died before it recorded a batch as done.
That is why a stream's records are stamped (`stamps`): a reader that drops records with a known id counts each row once.
Within one try nothing is duplicated: the producer is idempotent. With `odradek.transactional` each row is written once
(`transactions`).

A task's rows are on the broker, as `acks` demands, before Spark learns that the task is done.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from odradek.pipeline import between_tasks
from odradek.pipeline.errors import OptionError, PipelineError
from odradek.pipeline.wire.settings import Settings
from odradek.pipeline.writing import destination, outgoing, producer_settings, stamps, units
from odradek.pipeline.writing.outgoing import Outgoing
from odradek.pipeline.writing.producing import Sender, sender
from odradek.pipeline.writing.stamps import CarriedIds, Positions, Stamps
from odradek.pipeline.writing.transactions import Transaction, UnitMark, transaction
from odradek.pipeline.writing.write_options import WriteOptions

_log = logging.getLogger(__name__)


def writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceWriter:
    """For `df.write`, mode append. PipelineError on the driver, before anything is written, for an invalid write."""
    if overwrite:
        raise OptionError("a topic cannot be overwritten: use mode('append')")
    plan = Plan.of(WriteOptions.parse(options, streaming=False), schema)
    plan = replace(plan, name=plan.name or plan.run)
    if plan.stamped and not plan.travelling:
        raise OptionError(f"odradek.stamp: outside of a stream the ids must be in a column '{stamps.COLUMN}'")
    if plan.topic is not None:
        destination.expect(plan.settings, plan.topic)
    return BatchWriter(plan)


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
    """For `df.writeStream`. In complete mode (`overwrite`) each batch appends the whole result, as in Spark's sink."""
    return StreamWriter(Plan.of(WriteOptions.parse(options, streaming=True), schema))


@dataclass(frozen=True)
class Plan:
    """What the driver passes to the tasks: Spark pickles it."""

    topic: str | None
    settings: dict[str, str] = field(repr=False)  # librdkafka's, passwords too
    kafka: dict[str, str] = field(repr=False)  # the same under Java's names
    headers: bool
    stamped: bool
    travelling: bool  # whether the rows have an id column
    timed: bool = False  # whether they have a timestamp column
    transactional: bool = False
    name: str | None = None  # of a batch, or of all batches of that name
    batch: int = 0  # the number of the batch
    by: str | None = None  # the column whose values are the units
    run: str = field(default_factory=lambda: str(uuid4()), compare=False)  # the id of this attempt

    @classmethod
    def of(cls, options: WriteOptions, schema: StructType) -> Plan:
        """Raises OptionError."""
        outgoing.check(schema, options.topic, options.stamp, options.timestamps)
        units.check(schema, options.by)
        settings = producer_settings.checked(producer_settings.librdkafka(options.kafka), options.transactional)
        if options.transactional:
            Settings.of(options.kafka)  # a task reads notes with them
        rows = (options.headers, options.stamp, stamps.COLUMN in schema.names, options.timestamps)
        return cls(
            options.topic,
            settings,
            options.kafka,
            *rows,
            options.transactional,
            options.name,
            options.batch,
            options.by,
        )

    def outgoing(self) -> Outgoing:
        """The converter for the rows of the current task."""
        return Outgoing(self.topic, self.headers, self._ids(), self.timed)

    def _ids(self) -> Stamps | None:
        if not self.stamped:
            return None
        return CarriedIds() if self.travelling else Positions(stamps.task().packed())

    def mark(self) -> UnitMark:
        """The mark of the current task."""
        return UnitMark.of_batch(self.name, stamps.partition()) if self.name else UnitMark.of_stream()

    def unit(self, value: int, partition: int) -> UnitMark:
        """The mark of a unit of a batch, in the task of this partition."""
        return UnitMark.of_batch(f"{self.name}-{self.by}", value, self.batch, f"{self.run}/{partition}")


@dataclass(frozen=True)
class Sent(WriterCommitMessage):
    """What a task has written: records, and bytes of their keys and values, by topic."""

    records: dict[str, int]
    bytes: dict[str, int]
    before: int = 0  # how many of the records an earlier attempt had written
    differing: int = 0  # tasks whose earlier attempt had written more records, or fewer


def write(plan: Plan, batches: Iterator[pa.RecordBatch]) -> Sent:
    """Runs in the task. PipelineError naming topic, partition and reason when a record was not delivered."""
    between_tasks.spare()
    if plan.by:
        return write_units(plan, batches, stamps.partition())
    if plan.transactional:
        return write_once(plan, batches, plan.mark())
    sent = Sent({}, {})
    with sender(plan.settings) as one:
        _send(plan, batches, one, sent)
    return sent


def write_once(plan: Plan, batches: Iterable[pa.RecordBatch], mark: UnitMark) -> Sent:
    """The same, unless an earlier attempt did it under this mark."""
    sent = Sent({}, {})
    with transaction(plan.settings, plan.kafka, mark, sent.records) as one:
        _send(plan, batches, one, sent)
    return _done(sent, one)


def write_units(plan: Plan, batches: Iterable[pa.RecordBatch], partition: int) -> Sent:
    """The same for each unit, in its own transaction: all stay open until the task has no more rows."""
    opened: dict[int, tuple[Transaction, Sent]] = {}
    with ExitStack() as transactions:
        for batch in batches:
            for value, rows in units.split(batch, str(plan.by)):
                if value not in opened:
                    if len(opened) == units.MOST:
                        raise PipelineError(f"{units.OPTION}: more than {units.MOST} values of '{plan.by}' in a task")
                    sent = Sent({}, {})
                    one = transaction(plan.settings, plan.kafka, plan.unit(value, partition), sent.records)
                    opened[value] = transactions.enter_context(one), sent
                _send(plan, [rows], *opened[value])
    return total([_done(sent, one) for one, sent in opened.values()])


def _done(sent: Sent, one: Transaction) -> Sent:
    """`sent` with what an earlier attempt had written."""
    rows = sum(sent.records.values())
    return sent if one.before is None else replace(sent, before=rows, differing=int(rows != one.before.rows))


def _send(plan: Plan, batches: Iterable[pa.RecordBatch], to: Sender, sent: Sent) -> None:
    rows = plan.outgoing()
    for batch in batches:
        if batch.num_rows:
            to.send(rows.records(batch))
        for topic, count, size in rows.bytes_by_topic(batch):
            sent.records[topic] = sent.records.get(topic, 0) + count
            sent.bytes[topic] = sent.bytes.get(topic, 0) + size


def total(messages: Sequence[WriterCommitMessage | None]) -> Sent:
    """What all tasks together have written."""
    sent = [message for message in messages if isinstance(message, Sent)]
    records, size = Counter[str](), Counter[str]()
    for one in sent:
        records.update(one.records)
        size.update(one.bytes)
    return Sent(dict(records), dict(size), sum(one.before for one in sent), sum(one.differing for one in sent))


def _report(what: str, sent: Sent) -> None:
    _log.info("%s: %s", what, sent)
    if sent.differing:
        _log.warning(
            "%s: %d tasks had another number of rows when they were written before: where the query or its cutting was "
            "changed in between, rows are missing or there twice",
            what,
            sent.differing,
        )


class BatchWriter(DataSourceArrowWriter):
    """The writer of `df.write`."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """One task."""
        return write(self._plan, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, when all tasks are done."""
        _report("written", total(messages))


class StreamWriter(DataSourceStreamWriter, DataSourceArrowWriter):  # type: ignore[misc]  # their commits differ
    """The writer of `df.writeStream`. Also an Arrow writer, to get Arrow batches: Spark's worker checks the class."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """One task of one micro-batch."""
        return write(self._plan, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # type: ignore[override]  # the two base classes differ
        """On the driver, when all tasks of a micro-batch are done."""
        _report(f"written in batch {batchId}", total(messages))
