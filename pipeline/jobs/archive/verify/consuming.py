"""Read a topic's records with librdkafka's consumer, which shares no code with the one that makes archives.

`verify` reads the log with it. If the data source believes a wrong response, or decodes wrongly, another client that
gets another result shows it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import methodcaller
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from odradek.pipeline.errors import DataLoss, MissingOffsets, PipelineError, Unreadable
from odradek.pipeline.jobs import in_arrow
from odradek.pipeline.parsing import positive
from odradek.pipeline.reading import planning
from odradek.pipeline.types import LAST_MS, Range
from odradek.pipeline.writing import producer_settings
from odradek.pipeline.writing.producing import reason

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RECORDS = 2_000_000  # offsets of a task
_AT_ONCE = 5000
_SECONDS = 0.2
_GONE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
NO_TIME = -1  # ms
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_COLUMNS = [
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("timestamp", pa.timestamp("us", "UTC")),
    ("timestampType", pa.int32()),
    ("headers", _HEADERS),
]
_SCHEMA = pa.schema(_COLUMNS)
# For a name that is not UTF-8 confluent_kafka 2.16 returns a null pointer and sets an exception. The interpreter's own
# calls of a method miss that and crash; calls from C do not: they raise SystemError. A second call has no exception.
_raw_headers: Callable[[Message], Any] = methodcaller("headers")
_DDL = (
    "key binary, value binary, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>"
)


def frame(spark: SparkSession, kafka: Mapping[str, str], ranges: Iterable[Range]) -> DataFrame:
    """All records of the ranges, of one topic, by `kafka.*` without the prefix.

    The timestampType of a record without a time is -1.
    """
    pieces = planning.split(sorted(ranges), {}, None, 1, _RECORDS)
    patience = positive("kafka.default.api.timeout.ms", kafka.get("default.api.timeout.ms", "60000")) / 1000
    step = _Consuming(pieces, _settings(kafka), patience)
    return in_arrow.mapped(spark.range(0, len(pieces), 1, max(1, len(pieces))), step, _DDL)


def _settings(kafka: Mapping[str, str]) -> dict[str, Any]:
    known = {name: value for name, value in kafka.items() if producer_settings.known(name)}
    own = {"group.id": "odradek-verify", "enable.auto.commit": False, "enable.partition.eof": True}
    isolation = kafka.get("isolation.level", "read_uncommitted")
    reading = {"auto.offset.reset": "error", "check.crcs": True, "isolation.level": isolation}
    return {**producer_settings.checked(producer_settings.librdkafka(known)), **own, **reading}


@dataclass(frozen=True)
class _Consuming:
    """In a task: reads the pieces whose numbers are in its rows."""

    pieces: Sequence[Range]
    settings: Mapping[str, Any] = field(repr=False)
    patience: float  # seconds without progress

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self._read(self.pieces[number])

    def _read(self, piece: Range) -> Iterator[pa.RecordBatch]:
        consumer = Consumer(dict(self.settings), logger=producer_settings.SILENT)
        try:
            consumer.assign([TopicPartition(*piece.key, piece.start)])
            for messages in self._messages(consumer, piece):
                yield _batch(messages)
        finally:
            consumer.close()

    def _messages(self, consumer: Consumer, piece: Range) -> Iterator[list[Message]]:
        """Read to the end of the piece, which a later record or the end of the log shows."""
        at, since = piece.start, time.monotonic()
        while at < piece.end:
            found = consumer.consume(_AT_ONCE, _SECONDS)
            good = [message for message in found if message.error() is None]
            ends = [_end(message, piece) for message in found if message.error() is not None]
            after = max([at, *ends, *(int(message.offset() or 0) + 1 for message in good)])
            if after > at:
                at, since = after, time.monotonic()
            elif time.monotonic() - since > self.patience:
                raise MissingOffsets(_silent(piece, at))
            if wanted := [message for message in good if piece.start <= int(message.offset() or 0) < piece.end]:
                yield wanted


def _name(piece: Range) -> str:
    return f"{piece.topic}-{piece.partition}"


def _silent(piece: Range, at: int) -> str:
    return f"{_name(piece)}: the leader sends no batch with offsets {at} to {piece.end - 1} or later"


def _end(message: Message, piece: Range) -> int:
    """Where the log ends; raises for any other error that is not retriable."""
    error: Any = message.error()
    if error.code() == KafkaError._PARTITION_EOF:
        return int(message.offset() or 0)
    if error.code() in _GONE:
        raise DataLoss(f"{_name(piece)}: {reason(error)}")
    if error.fatal() or not error.retriable():
        raise PipelineError(f"{_name(piece)}: {reason(error)}")
    return 0


def _batch(messages: Sequence[Message]) -> pa.RecordBatch:
    rows = [_row(message) for message in messages]
    columns = zip(*rows, strict=True) if rows else [()] * len(_COLUMNS)
    arrays = [pa.array(list(column), kind) for column, (_, kind) in zip(columns, _COLUMNS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _row(message: Message) -> tuple[Any, ...]:
    kind, ms = message.timestamp()
    shown = max(-LAST_MS, min(ms, LAST_MS)) * 1000
    known: tuple[Any, ...] = (shown, kind - 1) if ms != NO_TIME else (NO_TIME * 1000, NO_TIME)
    return (message.key(), message.value(), message.partition(), message.offset(), *known, _headers(message))


def _headers(message: Message) -> list[dict[str, Any]] | None:
    try:
        found = _raw_headers(message)
    except (UnicodeDecodeError, KafkaException, SystemError) as error:
        why = error.__cause__ or error
        raise Unreadable(
            f"{message.topic()}-{message.partition()}: headers at offset {message.offset()}: {why}"
        ) from None
    return [{"key": name, "value": value} for name, value in found] if found else None
