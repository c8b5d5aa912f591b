"""Convert Avro of one schema to another by Avro's resolution rules (fastavro's): added and removed fields, defaults, …

The specification does not cover logical types. Here numbers that are times are converted to the reader's unit; decimals
match where precision and scale do; where one side has no logical type the plain value is taken.

In a union with several types, a named type is found by its name. Where the writer has no union there, or the types have
no names (int and long, string and an enum), the value goes to the first type that accepts it.
"""

from __future__ import annotations

import functools
import io
import json
from typing import Any

_OURS = "odradek-"
_UNITS = {"millis": 1000, "micros": 1_000_000, "nanos": 1_000_000_000}  # of a second
_TIMES = [f"{kind}-{unit}" for kind in ("time", "timestamp", "local-timestamp") for unit in _UNITS]
_READERS = [*(f"{base}-{_OURS}{time}" for base in ("int", "long") for time in (*_TIMES, "date"))]
_READERS += [f"{base}-{_OURS}decimal" for base in ("bytes", "fixed")]


class Resolution:
    """From the writer's schema to the reader's, both JSON. Raises fastavro's errors for an invalid schema."""

    def __init__(self, writer: str, reader: str) -> None:
        import fastavro

        for name in _READERS:
            fastavro.read.LOGICAL_READERS[name] = _converted
        self._writer = fastavro.parse_schema(_renamed(json.loads(writer)))
        self._reader = fastavro.parse_schema(_renamed(json.loads(reader)))
        _bytes_as_defaults(self._reader)
        self._read, self._write = fastavro.schemaless_reader, fastavro.schemaless_writer

    def __call__(self, data: bytes) -> bytes:
        """The same value in the reader's schema. Raises almost any exception where there is none.

        It also reads the value by the writer's schema alone, because fastavro does not notice that a skipped field is
        truncated. A value with bytes after it is invalid.
        """
        alone = io.BytesIO(data)
        self._read(alone, self._writer, None)
        if alone.tell() != len(data):
            raise ValueError("it has bytes after its value")
        try:
            return self._encoded(self._read(io.BytesIO(data), self._writer, self._reader, return_named_type=True))
        except Exception:  # for example a name where the reader has no union
            return self._encoded(self._read(io.BytesIO(data), self._writer, self._reader))

    def _encoded(self, value: Any) -> bytes:
        out = io.BytesIO()
        self._write(out, self._reader, value)
        return out.getvalue()


@functools.lru_cache(256)
def resolution(writer: str, reader: str) -> Resolution | None:
    """None where fastavro accepts one of them as no schema."""
    try:
        return Resolution(writer, reader)
    except Exception:  # fastavro's errors, and others that it does not catch
        return None


def _renamed(part: Any) -> Any:
    """Prefix logical types' names: fastavro then leaves numbers unchanged, and calls `_converted`."""
    if isinstance(part, list):
        return [_renamed(each) for each in part]
    if not isinstance(part, dict):
        return part
    inner = {key: _renamed(part[key]) for key in ("type", "items", "values") if key in part}
    if "fields" in part:
        inner["fields"] = [_renamed(each) for each in part["fields"]]
    if "logicalType" in part:
        inner["logicalType"] = f"{_OURS}{part['logicalType']}"
    return part | inner


def _converted(value: Any, writer: Any, reader: Any) -> Any:
    """fastavro calls this for each value of a logical type, with the parts of both schemas."""
    ours, theirs = _logical(writer), _logical(reader)
    if theirs is None:
        kind = reader["type"] if isinstance(reader, dict) else reader
        return float(value) if kind in ("float", "double") else value
    if "decimal" in (ours, theirs) and _digits(writer) != _digits(reader):
        raise ValueError("decimals differ in precision or scale")
    units = [_UNITS.get(str(name).rpartition("-")[2]) for name in (ours, theirs)]
    return value * units[1] // units[0] if units[0] and units[1] else value


def _logical(part: Any) -> str | None:
    name = part.get("logicalType") if isinstance(part, dict) else None
    return str(name).removeprefix(_OURS) if name else None


def _digits(part: dict[str, Any]) -> tuple[Any, Any]:
    return part.get("precision"), part.get("scale", 0)


def _bytes_as_defaults(part: Any) -> None:
    """Convert defaults of bytes, which are texts in a schema: fastavro would write them as texts."""
    if isinstance(part, list):
        for each in part:
            _bytes_as_defaults(each)
    elif isinstance(part, dict):
        for key in ("type", "items", "values"):
            _bytes_as_defaults(part.get(key))
        for each in part.get("fields", ()):
            _bytes_as_defaults(each["type"])
            if "default" in each:
                each["default"] = _as_bytes(each["type"], each["default"])


def _as_bytes(kind: Any, value: Any) -> Any:
    first = kind[0] if isinstance(kind, list) else kind
    plain = first.get("type") if isinstance(first, dict) else first
    return value.encode("latin-1") if plain in ("bytes", "fixed") and isinstance(value, str) else value
