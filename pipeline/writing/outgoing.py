"""Rows to write, in the format of Spark's Kafka sink: the columns' types, and the records that rows become.

    value      string or binary; null is a tombstone                  required
    key        string or binary
    topic      string, never null                                     required unless the option `topic` is given
    partition  int; null leaves it to the partitioner
    headers    array<struct<key:string,value:binary>>
    id         string or binary, never null: `stamps`                 read only where records are stamped
    timestamp  timestamp; null is the time of writing                 required, and read, only with odradek.timestamps

A timestamp before 1970, or in its first millisecond, cannot be written. It becomes the second millisecond, with a
warning: to fail a restore or a stream for one record would be worse. Only the last millisecond before 1970 stays, which
means no timestamp.

Other columns are ignored: without `odradek.timestamps` a record's time is that of writing, as with Spark 4.0's own
sink.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from odradek.pipeline.errors import OptionError, PipelineError
from odradek.pipeline.writing import stamps
from odradek.pipeline.writing.stamps import Stamps

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

BYTES = ("string", "binary")
TYPES = {
    "topic": ("string",),
    "key": BYTES,
    "value": BYTES,
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
    stamps.COLUMN: BYTES,
    "timestamp": ("timestamp",),
}
ANY = -1  # the partition that the partitioner chooses
NOW = 0  # librdkafka's value for the time of writing
LEAST = 1  # ms since 1970: the earliest time that can be written
NO_TIME = -1  # of records in the oldest format; Spark shows it as the millisecond before 1970

Header = tuple[str, str | bytes | None]
Record = tuple[str, bytes | None, bytes | None, int, list[Header] | None, int]
"""Topic, value, key, partition, headers, timestamp in ms."""


def check(schema: StructType, topic: str | None, stamped: bool, timed: bool = False) -> None:
    """OptionError, one line, for a schema whose rows cannot be written."""
    types = {field.name: field.dataType.simpleString() for field in schema}
    if topic is None and "topic" not in types:
        raise OptionError("the option topic is required where there is no column 'topic'")
    if "value" not in types:
        raise OptionError("the column 'value' is required")
    if timed and "timestamp" not in types:
        raise OptionError("odradek.timestamps: the column 'timestamp' is required")
    looked_at = {"topic": topic is None, stamps.COLUMN: stamped, "timestamp": timed}
    ignored = {name for name, looked in looked_at.items() if not looked}
    for name in TYPES.keys() & types.keys() - ignored:
        if types[name] not in TYPES[name]:
            raise OptionError(f"the column '{name}' has type {types[name]} but must be {' or '.join(TYPES[name])}")


class Outgoing:
    """Converts Spark's batches to records, each for `topic` when that is given."""

    def __init__(self, topic: str | None, with_headers: bool, ids: Stamps | None, timed: bool = False) -> None:
        self._topic, self._with_headers, self._ids, self._timed = topic, with_headers, ids, timed

    def records(self, batch: pa.RecordBatch) -> Iterator[Record]:
        """All records of a batch, in order. PipelineError for an invalid row, before any record of the batch."""
        values, keys = _bytes(batch, "value"), _bytes(batch, "key")
        times = self._times(batch) if self._timed else repeat(NOW)
        return zip(self._topics(batch), values, keys, _partitions(batch), self._headers(batch), times, strict=False)

    def bytes_by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, int, int]]:
        """(topic, records, bytes of their keys and values) of a batch."""
        if self._topic is not None:
            yield self._topic, batch.num_rows, pc.sum(_sizes(batch)).as_py() or 0
            return
        table = pa.table({"topic": batch.column("topic"), "bytes": _sizes(batch)})
        grouped = table.group_by("topic").aggregate([("bytes", "count"), ("bytes", "sum")])
        yield from zip(
            *(grouped.column(name).to_pylist() for name in ("topic", "bytes_count", "bytes_sum")), strict=True
        )

    def _topics(self, batch: pa.RecordBatch) -> Iterable[str]:
        if self._topic is not None:
            return repeat(self._topic, batch.num_rows)
        column = batch.column("topic")
        if column.null_count:
            raise PipelineError("null topic present in the data: the option topic sets one for all")
        return _list(column)

    def _headers(self, batch: pa.RecordBatch) -> Iterable[list[Header] | None]:
        own = _own_headers(batch) if self._with_headers and "headers" in batch.schema.names else None
        if self._ids is None:
            return own or repeat(None)
        ids = ((stamps.HEADER, stamp) for stamp in self._ids.ids(batch))
        if own is None:
            return ([stamp] for stamp in ids)
        return ([*_without_stamp(headers), stamp] for headers, stamp in zip(own, ids, strict=True))

    def _times(self, batch: pa.RecordBatch) -> Iterable[int]:
        """Milliseconds; LEAST, with a warning, for times that librdkafka refuses or would take for NOW."""
        micros = batch.column("timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        times = pc.divide(micros, 1000)
        wrong = pc.or_(pc.less(times, NO_TIME), pc.equal(times, NOW))
        if pc.any(wrong).as_py():
            at = pc.index(wrong, True).as_py()
            topic = self._topic or batch.column("topic")[at]
            text = "%s: %d timestamps are out of range, the first %s ms since 1970; writing %d ms instead"
            log.warning(text, topic, pc.sum(wrong).as_py(), times[at], LEAST)
            times = pc.if_else(wrong, LEAST, times)
        return _list(times.fill_null(NOW))


def _without_stamp(headers: list[Header]) -> Iterator[Header]:
    """A record copied from another stage has that stage's stamp, which this writer replaces."""
    return (header for header in headers if header[0] != stamps.HEADER)


def _own_headers(batch: pa.RecordBatch) -> list[list[Header]]:
    column = batch.column("headers")
    keys, values = column.values.flatten()
    if keys.null_count:
        raise PipelineError("a header without a key present in the data")
    pairs = list(zip(_list(keys), _list(values), strict=True))
    return [pairs[start:end] for start, end in pairwise(_list(column.offsets))]


def _partitions(batch: pa.RecordBatch) -> Iterable[int]:
    if "partition" not in batch.schema.names:
        return repeat(ANY)
    column = batch.column("partition")
    least = pc.min(column).as_py()
    if least is not None and least < 0:
        raise PipelineError(f"partition {least} present in the data")
    return _list(column.fill_null(ANY))


def _bytes(batch: pa.RecordBatch, name: str) -> Iterable[bytes | None]:
    return _list(batch.column(name).cast(pa.large_binary())) if name in batch.schema.names else repeat(None)


def _sizes(batch: pa.RecordBatch) -> pa.Array:
    found = [
        pc.binary_length(batch.column(name)).fill_null(0) for name in ("key", "value") if name in batch.schema.names
    ]
    return found[0] if len(found) == 1 else pc.add(*(sizes.cast(pa.int64()) for sizes in found))


def _list(column: pa.Array) -> list[Any]:
    """Like `to_pylist`, but in C: a quarter of its time."""
    values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return values
