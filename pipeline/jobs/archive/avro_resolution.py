"""Avro of one schema made Avro of another by Avro's rules for that (fastavro's): added and removed fields, defaults, …

The specification leaves open what becomes of logical types. Here numbers that are times are converted to the reader's
unit; decimals match where precision and scale do; where one side has no logical type the bare value is taken.

Of a union with several types, a named one is found again by its name. Where the writer has no union there, or the types
are none with names (int and long, string and an enum), the value goes to the first type that takes it.
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
    """From the writer's schema to the reader's, both JSON. Raises what fastavro does for a schema that is none."""

    def __init__(self, writer: str, reader: str) -> None:
        import fastavro

        for name in _READERS:
            fastavro.read.LOGICAL_READERS[name] = _converted
        self._writer = fastavro.parse_schema(_renamed(json.loads(writer)))
        self._reader = fastavro.parse_schema(_renamed(json.loads(reader)))
        _bytes_as_defaults(self._reader)
        self._read, self._write = fastavro.schemaless_reader, fastavro.schemaless_writer

    def __call__(self, data: bytes) -> bytes:
        """The same value in the reader's schema. Raises almost anything where there is none.

        It is read by the writer's alone, too: fastavro does not see that a field which it skips is cut off. One that
        goes on after its value is none.
        """
        alone = io.BytesIO(data)
        self._read(alone, self._writer, None)
        if alone.tell() != len(data):
            raise ValueError("it goes on after its value")
        try:
            return self._encoded(self._read(io.BytesIO(data), self._writer, self._reader, return_named_type=True))
        except Exception:  # among them: a name where the reader has no union
            return self._encoded(self._read(io.BytesIO(data), self._writer, self._reader))

    def _encoded(self, value: Any) -> bytes:
        out = io.BytesIO()
        self._write(out, self._reader, value)
        return out.getvalue()


@functools.lru_cache(256)
def resolution(writer: str, reader: str) -> Resolution | None:
    """None where one of them is no schema to fastavro."""
    try:
        return Resolution(writer, reader)
    except Exception:  # of fastavro's, and what it runs into
        return None


def _renamed(part: Any) -> Any:
    """Logical types with names of ours: fastavro then leaves numbers as they are, and asks `_converted`."""
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
    """What fastavro asks for each value of a logical type, with the parts of both schemas."""
    ours, theirs = _logical(writer), _logical(reader)
    if theirs is None:
        kind = reader["type"] if isinstance(reader, dict) else reader
        return float(value) if kind in ("float", "double") else value
    if "decimal" in (ours, theirs) and _digits(writer) != _digits(reader):
        raise ValueError("decimals of other precision or scale do not match")
    units = [_UNITS.get(str(name).rpartition("-")[2]) for name in (ours, theirs)]
    return value * units[1] // units[0] if units[0] and units[1] else value


def _logical(part: Any) -> str | None:
    name = part.get("logicalType") if isinstance(part, dict) else None
    return str(name).removeprefix(_OURS) if name else None


def _digits(part: dict[str, Any]) -> tuple[Any, Any]:
    return part.get("precision"), part.get("scale", 0)


def _bytes_as_defaults(part: Any) -> None:
    """Defaults of bytes are texts in a schema, and fastavro would write them as such."""
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
