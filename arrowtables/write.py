"""A table to a topic, with the writer of the Spark source: librdkafka, idempotent, acks=all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from odradek.arrowtables import client
from odradek.pipeline.decoding import headers
from odradek.pipeline.errors import OptionError
from odradek.pipeline.wire.connections import Connections

BYTES = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
)
WRITTEN = ("key", "value", "headers", "partition", "timestamp")
IGNORED = ("topic", "offset", "timestampType")  # of a table that `read` returned


def write(data: object, topic: str, *, bootstrap_servers: str | Sequence[str], **settings: Any) -> int:
    """Send each row to `topic`; return how many, when the broker has acknowledged all.

    `data` is a table, a record batch, a reader of them, an iterable of batches, or a frame of a library that exports
    Arrow. Columns are `value`, and where there are any `key`, `headers`, `partition`, `timestamp`. OptionError before
    anything is sent; PipelineError when a record is refused or not acknowledged in time: then any of the others may
    have been written.
    """
    with client.own_words():
        schema, batches = _batches(data)
        _check(schema)
        return _sent(topic, schema, batches, client.settings(bootstrap_servers, settings))


def _batches(data: object) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    if isinstance(data, pa.RecordBatch):
        return data.schema, iter([data])
    if hasattr(data, "__arrow_c_stream__"):
        reader = data if isinstance(data, pa.RecordBatchReader) else pa.RecordBatchReader.from_stream(data)
        return reader.schema, iter(reader)
    return _of_iterable(data)


def _of_iterable(data: object) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    rest = iter(data) if isinstance(data, Iterable) else iter(())
    first = next(rest, None)
    if not isinstance(first, pa.RecordBatch):
        raise OptionError(f"data is {type(data).__name__}: it must be a table, or record batches, of Arrow")
    return first.schema, _with(first, rest)


def _with(first: pa.RecordBatch, rest: Iterator[Any]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


def _check(schema: pa.Schema) -> None:
    """OptionError for columns that cannot be written, or would be lost."""
    if "value" not in schema.names:
        raise OptionError("the column 'value' is required")
    if unknown := [name for name in schema.names if name not in WRITTEN + IGNORED]:
        raise OptionError(f"the column '{unknown[0]}' is none of a record's: {', '.join(WRITTEN)}")
    for name in set(WRITTEN) & set(schema.names):
        kind = schema.field(name).type
        if not _fits(name, kind):
            raise OptionError(f"the column '{name}' has type {kind} but must be {_WANTED[name]}")


_WANTED = dict.fromkeys(("key", "value"), "string or binary") | {
    "headers": "list<struct<key: string, value: binary>>",
    "partition": "an integer",
    "timestamp": "a timestamp",
}


def _fits(name: str, kind: pa.DataType) -> bool:
    if pa.types.is_null(kind):
        return True
    if name == "headers":
        return (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and _is_header(kind.value_type)
    kinds = {"partition": (pa.types.is_integer,), "timestamp": (pa.types.is_timestamp,)}.get(name, BYTES)
    return any(is_one(kind) for is_one in kinds)


def _is_header(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) and [kind.field(i).name for i in range(kind.num_fields)] == ["key", "value"]


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with headers of the type that `read` makes: other libraries have larger lists, and views."""
    if "headers" not in batch.schema.names:
        return batch
    at = batch.schema.get_field_index("headers")
    return batch.set_column(at, "headers", batch.column(at).cast(headers.TYPE))


def _sent(topic: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch], kafka: dict[str, str]) -> int:
    """librdkafka is loaded here: a program that only reads does without it."""
    try:
        from odradek.pipeline.writing import destination, producer_settings
        from odradek.pipeline.writing.outgoing import Outgoing
        from odradek.pipeline.writing.producing import sender
    except ImportError as missing:
        raise OptionError(f"writing needs {missing.name}: pip install 'odradek[arrow]'") from None
    settings = producer_settings.checked(producer_settings.librdkafka(kafka))
    with Connections(kafka) as brokers:
        client.reach(brokers)
    destination.expect(settings, topic)
    rows, count = Outgoing(topic, with_headers=True, ids=None, timed="timestamp" in schema.names), 0
    with sender(settings) as one:
        for batch in batches:
            one.send(rows.records(_plain(batch)))
            count += batch.num_rows
    return count
