"""Keys and values that are text, JSON or Avro, as columns; records that do not have the form are kept apart.

A form is plain data, so that a fragment with forms can be pickled. `Decoding` decodes record batches.

JSON is parsed by Python, text by text, at some µs each. Arrow's own parser is faster, but pyarrow 26 dies of a
segmentation fault for texts that are no JSON (`null` and an object in one), and any producer can write such a text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from odradek.pipeline.decoding.arrow import schema as schema_of_bytes
from odradek.pipeline.errors import OptionError, Unreadable

if TYPE_CHECKING:
    from odradek.pipeline.jobs.archive.formats.avro import Codec

COLUMNS = ("key", "value")
PLACE = ("partition", "offset")
REASON = "reason"


class Form(Protocol):
    """How keys or values are written."""

    @property
    def type(self) -> pa.DataType:
        """The type of decoded values."""

    @property
    def name(self) -> str:
        """For errors."""

    def decode(self, column: pa.Array) -> pa.Array:
        """The value of each binary; null where it is null or does not have the form."""


@dataclass(frozen=True)
class Text:
    """UTF-8."""

    @property
    def type(self) -> pa.DataType:
        """Of `Form`."""
        return pa.string()

    @property
    def name(self) -> str:
        """Of `Form`."""
        return "UTF-8"

    def decode(self, column: pa.Array) -> pa.Array:
        """Of `Form`."""
        return _tried(column, lambda some: some.cast(pa.string()), self.type)


@dataclass(frozen=True)
class Json:
    """Objects with the fields of `schema`; fields that it does not name are left out, missing ones are null."""

    schema: pa.Schema

    def __post_init__(self) -> None:
        """OptionError for a type that JSON does not have."""
        for field in self.schema:
            _as_written(field)

    @property
    def type(self) -> pa.DataType:
        """Of `Form`."""
        return pa.struct([field.with_nullable(True) for field in self.schema])

    @property
    def name(self) -> str:
        """Of `Form`."""
        return "a JSON object of the given schema"

    def decode(self, column: pa.Array) -> pa.Array:
        """Of `Form`."""
        from odradek.pipeline.jobs.archive.formats.avro import each, fitting

        written = fitting(each(_object, column.to_pylist()), self._written)
        return _tried(written, lambda some: some.cast(self.type), self.type)

    @property
    def _written(self) -> pa.DataType:
        return pa.struct([_as_written(field) for field in self.schema])


def _as_written(field: pa.Field) -> pa.Field:
    """The field with strings where JSON has no type for times; OptionError for what JSON has no text for."""
    kind = field.type
    if pa.types.is_struct(kind):
        return pa.field(field.name, pa.struct([_as_written(kind.field(at)) for at in range(kind.num_fields)]))
    if pa.types.is_list(kind):
        return pa.field(field.name, pa.list_(_as_written(kind.value_field)))
    if any(is_one(kind) for is_one in _TIMES):
        return pa.field(field.name, pa.string())
    if not any(is_one(kind) for is_one in _PLAIN):
        raise OptionError(f"Json: the field {field.name!r} has type {kind}, which JSON does not have")
    return pa.field(field.name, kind)


def _object(text: bytes) -> dict[str, Any]:
    """ValueError, or another error, for what is not an object of JSON."""
    found = _JSON.decode(text.decode())
    if not isinstance(found, dict):
        raise ValueError("not an object")
    return found


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


_JSON = json.JSONDecoder(parse_constant=_no_number)
_TIMES = (pa.types.is_timestamp, pa.types.is_date, pa.types.is_time)
_PLAIN = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_string, pa.types.is_null)


@dataclass(frozen=True)
class Avro:
    """Values of an Avro schema, given as JSON; `confluent`: behind Confluent's five bytes, whose id has no effect."""

    schema: str
    confluent: bool = False

    def __post_init__(self) -> None:
        """OptionError for a schema that cannot be read, or whose values may be null: a dead record would look alike."""
        _codec(self.schema)
        whole = json.loads(self.schema)
        if isinstance(whole, list) and "null" in whole:
            raise OptionError("Avro: a value that is null as a whole is not supported: name the other type alone")

    @property
    def type(self) -> pa.DataType:
        """Of `Form`."""
        return _codec(self.schema).type

    @property
    def name(self) -> str:
        """Of `Form`."""
        return "Avro of the given schema"

    def decode(self, column: pa.Array) -> pa.Array:
        """Of `Form`."""
        return _codec(self.schema).decode(_bodies(column) if self.confluent else column, whole=True)


@lru_cache(maxsize=16)
def _codec(schema: str) -> Codec:
    from odradek.pipeline.jobs.archive.formats.avro import Codec

    return Codec(schema)


def _bodies(column: pa.Array) -> pa.Array:
    from odradek.pipeline.jobs.archive.formats.avro_columns import unframed

    return unframed(column)[1]


# -- decoding that may fail


def _tried(column: pa.Array, convert: Callable[[pa.Array], pa.Array], kind: pa.DataType) -> pa.Array:
    """`convert` of the column, null where a value makes it raise ArrowInvalid."""
    return pa.concat_arrays(_pieces(column, convert, kind))


def _pieces(column: pa.Array, convert: Callable[[pa.Array], pa.Array], kind: pa.DataType) -> list[pa.Array]:
    try:
        return [convert(column)]
    except pa.ArrowInvalid:
        if len(column) == 1:
            return [pa.nulls(1, kind)]
    middle = len(column) // 2
    return [piece for half in (column[:middle], column[middle:]) for piece in _pieces(half, convert, kind)]


# -- record batches


class Rows(NamedTuple):
    """Decoded records, and those that could not be decoded: all their columns as bytes, with `reason`; or None."""

    good: pa.RecordBatch
    dead: pa.RecordBatch | None = None

    @property
    def nbytes(self) -> int:
        """Of both."""
        return int(self.good.nbytes) + (int(self.dead.nbytes) if self.dead is not None else 0)


class Decoding:
    """Decodes record batches; `names` are the columns of the result. Without forms the batches stay as they are.

    `views`: keys and values are `binary_view`, which only goes without forms.
    """

    def __init__(self, forms: Mapping[str, Form], names: Sequence[str], views: bool = False) -> None:
        self._forms = {name: form for name, form in forms.items() if name in names}
        self._names, self._views = tuple(names), views
        places = [name for name in PLACE if name not in self._names] if self._forms else []
        self.reads = (*self._names, *places)
        """The columns that it needs: a record that cannot be decoded is named by its place."""

    def schema(self) -> pa.Schema:
        """Of the result."""
        raw = schema_of_bytes(self._names, self._views)
        return pa.schema(
            [field.with_type(self._forms[field.name].type) if field.name in self._forms else field for field in raw]
        )

    def rows(self, batch: pa.RecordBatch) -> Rows:
        """The records of a batch that has the columns `reads`."""
        if not self._forms:
            return Rows(batch)
        columns = {name: form.decode(batch.column(name)) for name, form in self._forms.items()}
        reasons = self._reasons(batch, columns)
        good = self._good(batch, columns)
        if reasons.null_count == len(reasons):
            return Rows(good)
        alive = reasons.is_null()
        return Rows(good.filter(alive), _dead(batch, reasons))

    def _good(self, batch: pa.RecordBatch, decoded: Mapping[str, pa.Array]) -> pa.RecordBatch:
        arrays = [decoded[name] if name in decoded else batch.column(name) for name in self._names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema())

    def _reasons(self, batch: pa.RecordBatch, decoded: Mapping[str, pa.Array]) -> pa.Array:
        """Why each record is dead; null for the others."""
        reasons = pa.nulls(batch.num_rows, pa.string())
        for name, values in decoded.items():
            dead = pc.and_(batch.column(name).is_valid(), values.is_null())
            reasons = pc.if_else(dead, f"the {name} is not {self._forms[name].name}", reasons)
        return reasons


def _dead(batch: pa.RecordBatch, reasons: pa.Array) -> pa.RecordBatch:
    whole = pa.RecordBatch.from_arrays([*batch.columns, reasons], names=[*batch.schema.names, REASON])
    return whole.filter(reasons.is_valid())


def unreadable(topic: str, dead: pa.RecordBatch) -> Unreadable:
    """The error for records that cannot be decoded where nothing takes them."""
    partition, offset, reason = (dead.column(name)[0].as_py() for name in (*PLACE, REASON))
    return Unreadable(f"{topic}-{partition}: at offset {offset} {reason}; a function as dead= takes such records")


def forms(schema: object) -> dict[str, Form]:
    """The forms of keys and values: one alone is that of values. OptionError for anything else."""
    if schema is None:
        return {}
    given = schema if isinstance(schema, Mapping) else {"value": schema}
    if not set(given) <= set(COLUMNS):
        raise OptionError(f"schema has {', '.join(map(str, given))}: it may have key and value")
    return {name: _form(form) for name, form in given.items()}


def _form(given: object) -> Form:
    if isinstance(given, Text | Json | Avro):
        return given
    if isinstance(given, pa.Schema):
        return Json(given)
    if given in ("text", pa.string()):
        return Text()
    raise OptionError(f"schema has {given!r}: it must be 'text', a pyarrow.Schema for JSON, Json(…) or Avro(…)")
