"""Formatters of `odradek console-consumer`: functions from a list of ConsumerRecords to bytes."""

from __future__ import annotations

import base64
import json
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

Format = Callable[[Sequence[Any]], bytes]
Decode = Callable[[bytes], bytes]

_PRINTED = ("timestamp", "partition", "offset", "epoch", "headers", "key", "value")
_TIMESTAMP_TYPES = {0: b"CreateTime:", 1: b"LogAppendTime:"}
_NUMBERS = {"long": ">q", "integer": ">i", "short": ">h", "double": ">d", "float": ">f"}


def formatter(name: str, properties: Mapping[str, str]) -> Format:
    """The formatter of that name. Raises UsageError for an invalid property."""
    if name == "noop":
        return lambda records: b""
    if name == "json":
        return _json_lines
    layout = _layout(properties)
    return layout.values if layout.only_value else layout.format


@dataclass
class DefaultMessageFormatter:
    """Kafka's DefaultMessageFormatter: the requested parts, with separators between them."""

    parts: tuple[str, ...] = ("value",)
    key_separator: bytes = b"\t"
    line_separator: bytes = b"\n"
    headers_separator: bytes = b","
    null_literal: bytes = b"null"
    decoders: dict[str, Decode] = field(default_factory=dict)

    @property
    def only_value(self) -> bool:
        """Whether only the bytes of the value are printed."""
        return self.parts == ("value",) and "value" not in self.decoders

    def values(self, records: Sequence[Any]) -> bytes:
        """The common case, without a call for each record."""
        null, end = self.null_literal, self.line_separator
        texts = [null if record.value is None else record.value for record in records]
        return end.join(texts) + end

    def format(self, records: Sequence[Any]) -> bytes:
        """All parts of all records."""
        return b"".join(self._line(record) for record in records)

    def _line(self, record: Any) -> bytes:
        if not self.parts:
            return b""
        return self.key_separator.join(getattr(self, f"_{p}")(record) for p in self.parts) + self.line_separator

    def _timestamp(self, record: Any) -> bytes:
        kind = _TIMESTAMP_TYPES.get(record.timestamp_type)
        return kind + b"%d" % record.timestamp if kind and record.timestamp >= 0 else b"NO_TIMESTAMP"

    def _partition(self, record: Any) -> bytes:
        return b"Partition:%d" % record.partition

    def _offset(self, record: Any) -> bytes:
        return b"Offset:%d" % record.offset

    def _epoch(self, record: Any) -> bytes:
        epoch = record.leader_epoch
        return b"Epoch:NOT_PRESENT" if epoch is None or epoch < 0 else b"Epoch:%d" % epoch

    def _headers(self, record: Any) -> bytes:
        pairs = (name.encode() + b":" + self._text("headers", value) for name, value in record.headers)
        return self.headers_separator.join(pairs) or b"NO_HEADERS"

    def _key(self, record: Any) -> bytes:
        return self._text("key", record.key)

    def _value(self, record: Any) -> bytes:
        return self._text("value", record.value)

    def _text(self, part: str, data: bytes | None) -> bytes:
        if data is None:
            return self.null_literal
        decode = self.decoders.get(part)
        return decode(data) if decode else data


def _layout(properties: Mapping[str, str]) -> DefaultMessageFormatter:
    """A DefaultMessageFormatter for `--property` settings. Raises UsageError."""
    layout, shown = DefaultMessageFormatter(), {"value"}
    for name, value in properties.items():
        action, _, part = name.partition(".")
        if action == "print" and part in _PRINTED:
            shown = shown | {part} if value.strip().lower() == "true" else shown - {part}
        elif name in ("key.separator", "line.separator", "headers.separator", "null.literal"):
            setattr(layout, name.replace(".", "_"), value.encode())
        elif part == "deserializer" and action in ("key", "value", "headers", "header"):
            layout.decoders["headers" if action == "header" else action] = _decoder(value)
        else:
            click.echo(f"WARN {name} is not a property of the formatter", err=True)
    layout.parts = tuple(part for part in _PRINTED if part in shown)
    return layout


def _decoder(name: str) -> Decode:
    """The decoder for a Kafka deserializer, by class name or by the type in it. Raises UsageError."""
    word = name.rpartition(".")[2].removesuffix("Deserializer").lower()
    if word in ("string", "bytes", "bytearray", "bytebuffer"):
        return lambda data: data
    if word == "uuid":
        return lambda data: str(uuid.UUID(data.decode())).encode()
    if word in _NUMBERS:
        number = struct.Struct(_NUMBERS[word])
        return lambda data: str(number.unpack(data)[0]).encode()
    raise click.UsageError(f"unknown deserializer '{name}'")


def _json_lines(records: Sequence[Any]) -> bytes:
    """One object per line; bytes that are not UTF-8 become {"base64": …}."""
    return b"".join(json.dumps(_document(record), ensure_ascii=False).encode() + b"\n" for record in records)


def _document(record: Any) -> dict[str, Any]:
    kind = _TIMESTAMP_TYPES.get(record.timestamp_type, b"NoTimestampType:")
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestampType": kind.rstrip(b":").decode(),
        "headers": [[name, _json_text(value)] for name, value in record.headers],
        "key": _json_text(record.key),
        "value": _json_text(record.value),
    }


def _json_text(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
