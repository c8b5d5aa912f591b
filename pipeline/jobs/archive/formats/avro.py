"""Avro to Arrow and back, a column at a time: `Codec` of one schema.

Types are those of Spark's own Avro source, with two goals: every decoded value can be written to Parquet, and encodes
to the same bytes again. So a schema is first rewritten, without a change to its encoding:

- names are resolved where they are used, and records, enums and fixed get new names, which encode to nothing;
- a union of several types becomes one of records with one field, member0, member1, …, because a record encodes to just
  its fields; that is the struct that Spark makes of such a union, and fastavro need not guess the branch;
- logical types without a counterpart in Spark (times of day, uuid, durations) are dropped: their plain type stays.
"""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from odradek.pipeline.errors import OptionError

_PLAIN = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
_MOST_DIGITS = 38  # of Spark's decimals


class _Part(NamedTuple):
    """A schema with the same encoding as its source, and the Arrow type of its values."""

    schema: Any
    type: pa.DataType


class Codec:
    """Decodes and encodes values of one schema. OptionError, one line, for a schema without a type in Spark."""

    def __init__(self, schema: str) -> None:
        fastavro = _fastavro()
        known = (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType)
        wrong = (*known, ValueError, KeyError, TypeError, AttributeError)
        try:
            whole = fastavro.schema.expand_schema(json.loads(schema))
        except wrong as error:
            raise OptionError(f"not an Avro schema: {error!r}") from None
        rewriting = _Rewriting()
        part = rewriting.part(whole)
        self.type = part.type
        self._maps = "strict" if rewriting.maps else None  # this option makes Arrow ten times slower
        self._schema = fastavro.parse_schema(part.schema)
        self._read, self._write = fastavro.schemaless_reader, fastavro.schemaless_writer

    def decode(self, column: pa.Array, whole: bool = False) -> pa.Array:
        """The value of each binary; null where it is unreadable or null.

        With `whole`, a binary with bytes after its value is unreadable; without, the value is taken, and a caller that
        must know encodes it again and compares.
        """
        return fitting(each(self._whole if whole else self._decoded, column.to_pylist()), self.type)

    def encode(self, column: pa.Array) -> pa.Array:
        """The binaries of values of `type`; null where one cannot be encoded, or is null."""
        return pa.array(each(self._encoded, column.to_pylist(maps_as_pydicts=self._maps)), pa.binary())

    def _decoded(self, data: bytes) -> Any:
        return self._read(io.BytesIO(data), self._schema, None)

    def _whole(self, data: bytes) -> Any:
        source = io.BytesIO(data)
        value = self._read(source, self._schema, None)
        if source.tell() != len(data):
            raise ValueError("it has bytes after its value")
        return value

    def _encoded(self, value: Any) -> bytes:
        out = io.BytesIO()
        self._write(out, self._schema, value)
        return out.getvalue()


def each(convert: Callable[[Any], Any], values: list[Any]) -> list[Any]:
    """Each value converted; None for None, and for an invalid one."""
    return [None if value is None else tried(convert, value) for value in values]


def tried(convert: Callable[[Any], Any], value: Any) -> Any:
    """None for any invalid value: fastavro raises almost any exception for bytes that are no Avro."""
    try:
        return convert(value)
    except Exception:
        return None


def fitting(values: list[Any], type_: pa.DataType) -> pa.Array:
    """All values, or, if some do not fit the type (a number too long), those that fit."""
    try:
        return pa.array(values, type_)
    except (ValueError, OverflowError, TypeError):
        some = each(lambda value: pa.scalar(value, type_) and value, values)
        return pa.array(some, type_)


class _Rewriting:
    """Rewrites one schema, whose names are resolved; `maps` says whether it has a map."""

    def __init__(self) -> None:
        self.maps = False
        self._names: Iterator[str] = (f"n{number}" for number in itertools.count())

    def part(self, schema: Any) -> _Part:
        """Raises OptionError."""
        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str):
            return self._plain(schema, {})
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.part(kind)
        made = {"record": self._record, "error": self._record, "enum": self._enum, "fixed": self._fixed}
        made |= {"array": self._array, "map": self._map}
        return made[kind](schema) if kind in made else self._plain(kind, schema)

    def _plain(self, kind: str, schema: dict[str, Any]) -> _Part:
        logical = str(schema.get("logicalType"))
        if (kind, logical) in _LOGICAL:
            return _Part({"type": kind, "logicalType": logical}, _LOGICAL[kind, logical])
        if kind == "bytes" and _is_decimal(schema):
            return _Part(_decimal_schema(schema, {"type": "bytes"}), _decimal(schema))
        if kind == "null":
            raise OptionError("a part of it is always null: Spark has no type for that")
        if kind not in _PLAIN:
            raise OptionError(f"{kind} is recursive: Spark has no type for that")
        return _Part(kind, _PLAIN[kind])

    def _record(self, schema: dict[str, Any]) -> _Part:
        if not schema["fields"]:
            raise OptionError(f"the record {schema['name']} has no fields: Spark has no type for that")
        parts = {field["name"]: self.part(field["type"]) for field in schema["fields"]}
        return self._of_fields(parts)

    def _of_fields(self, parts: dict[str, _Part]) -> _Part:
        fields = [{"name": name, "type": part.schema} for name, part in parts.items()]
        type_ = pa.struct([(name, part.type) for name, part in parts.items()])
        return _Part({"type": "record", "name": next(self._names), "fields": fields}, type_)

    def _enum(self, schema: dict[str, Any]) -> _Part:
        return _Part({"type": "enum", "name": next(self._names), "symbols": schema["symbols"]}, pa.string())

    def _fixed(self, schema: dict[str, Any]) -> _Part:
        fixed = {"type": "fixed", "name": next(self._names), "size": schema["size"]}
        if _is_decimal(schema):
            return _Part(_decimal_schema(schema, fixed), _decimal(schema))
        return _Part(fixed, pa.binary())

    def _array(self, schema: dict[str, Any]) -> _Part:
        items = self.part(schema["items"])
        return _Part({"type": "array", "items": items.schema}, pa.list_(items.type))

    def _map(self, schema: dict[str, Any]) -> _Part:
        self.maps = True
        values = self.part(schema["values"])
        return _Part({"type": "map", "values": values.schema}, pa.map_(pa.string(), values.type))

    def _union(self, schema: list[Any]) -> _Part:
        """Nulls stay; a single other type is that type, several become members of a struct."""
        parts = [self.part(branch) for branch in schema if not _is_null(branch)]
        if not parts:
            raise OptionError("a part of it is always null: Spark has no type for that")
        if len(parts) == 1:
            whole, members = parts[0].type, parts
        else:
            members = [self._of_fields({f"member{at}": part}) for at, part in enumerate(parts)]
            whole = pa.struct([member.type.field(0) for member in members])
        rest = iter(members)
        return _Part(["null" if _is_null(branch) else next(rest).schema for branch in schema], whole)


def _is_null(schema: Any) -> bool:
    return schema == "null" or (isinstance(schema, dict) and schema["type"] == "null")


def _is_decimal(schema: dict[str, Any]) -> bool:
    return schema.get("logicalType") == "decimal" and 0 < schema.get("precision", 0) <= _MOST_DIGITS


def _decimal(schema: dict[str, Any]) -> pa.DataType:
    return pa.decimal128(schema["precision"], schema.get("scale", 0))


def _decimal_schema(schema: dict[str, Any], plain: dict[str, Any]) -> dict[str, Any]:
    return {**plain, "logicalType": "decimal", "precision": schema["precision"], "scale": schema.get("scale", 0)}


def _fastavro() -> Any:
    try:
        import fastavro
    except ImportError:
        raise OptionError("Avro needs the package fastavro: pip install fastavro") from None
    return fastavro
