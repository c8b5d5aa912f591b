"""Avro values as text: Avro's JSON encoding, as kafka-avro-console-consumer prints it. Pure.

https://avro.apache.org/docs/1.12.0/specification/#json_encoding. The text is written while the value is read and ends
at `most` characters. That bounds the work whatever a record claims, because every part of a value, an empty one too,
adds to the text: an array of 2 ** 60 nulls, or records that double at each level, end there. Nested values are
bounded by DEEPEST.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from odradek.broker.exporter.console.avro_schema import Type
from odradek.protocol.records import varint
from odradek.protocol.records.errors import RecordError

DEEPEST = 64  # values within values
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")


class ValueFault(ValueError):
    """The bytes are no value of the type; one line."""


class Text(NamedTuple):
    """Compact JSON; with `is_cut` its first tokens."""

    text: str
    is_cut: bool


def text_of(data: bytes, schema: Type, most: int) -> Text:
    """The value that is all of `data`, with little more than `most` characters. ValueFault."""
    reader = _Reader(data, most)
    found, length = [], 0
    try:
        for token in reader.value(schema, 0):
            found.append(token)
            length += len(token)
            if length > most:
                return Text("".join(found), True)
    except (IndexError, RecordError):
        raise ValueFault("it ends within a number, or has an invalid one") from None
    if reader.at != len(data):
        raise ValueFault(f"{len(data) - reader.at} bytes are behind the value")
    return Text("".join(found), reader.is_cut)


class _Reader:
    """Reads a value as tokens of JSON; `at` is where it is in `data`."""

    def __init__(self, data: bytes, most: int) -> None:
        self._data, self._most = data, most
        self.at, self.is_cut = 0, False
        self._nested: dict[str, Callable[[Type, int], Iterator[str]]] = {
            "record": self._record,
            "array": self._array,
            "map": self._map,
            "union": self._union,
        }

    def value(self, schema: Type, depth: int) -> Iterator[str]:
        """Its tokens."""
        if depth > DEEPEST:
            raise ValueFault(f"it nests more than {DEEPEST} values")
        nested = self._nested.get(schema.kind)
        if nested is None:
            yield self._leaf(schema)
        else:
            yield from nested(schema, depth + 1)

    # -- values within values

    def _record(self, schema: Type, depth: int) -> Iterator[str]:
        before = "{"
        for name, inner in schema.fields:
            yield f"{before}{_quoted(name)}:"
            yield from self.value(inner, depth)
            before = ","
        yield "}" if schema.fields else "{}"

    def _array(self, schema: Type, depth: int) -> Iterator[str]:
        yield "["
        for number in self._items():
            if number:
                yield ","
            yield from self.value(schema.inner[0], depth)
        yield "]"

    def _map(self, schema: Type, depth: int) -> Iterator[str]:
        yield "{"
        for number in self._items():
            yield f"{',' if number else ''}{self._string()}:"
            yield from self.value(schema.inner[0], depth)
        yield "}"

    def _items(self) -> Iterator[int]:
        """Numbers of the items of an array or a map; between two the caller reads one."""
        number = 0
        while count := self._number():
            if count < 0:
                self._number()  # the bytes of the block
            for _ in range(abs(count)):
                yield number
                number += 1

    def _union(self, schema: Type, depth: int) -> Iterator[str]:
        branch = schema.inner[self._index(len(schema.inner), "branch of a union")]
        if branch.kind == "null":
            yield "null"
            return
        yield f"{{{_quoted(branch.name)}:"
        yield from self.value(branch, depth)
        yield "}"

    # -- others

    def _leaf(self, schema: Type) -> str:
        match schema.kind:
            case "null":
                return "null"
            case "boolean":
                return ("false", "true")[self._taken(1)[0] != 0]
            case "int" | "long":
                return str(self._number())
            case "float":
                return json.dumps(_FLOAT.unpack(self._taken(_FLOAT.size))[0])
            case "double":
                return json.dumps(_DOUBLE.unpack(self._taken(_DOUBLE.size))[0])
            case "string":
                return self._string()
            case "enum":
                return _quoted(schema.symbols[self._index(len(schema.symbols), "symbol of an enum")])
        return self._bytes(self._number() if schema.kind == "bytes" else schema.size)

    def _number(self) -> int:
        number, self.at = varint.decode(self._data, self.at)
        return number

    def _index(self, count: int, what: str) -> int:
        number = self._number()
        if not 0 <= number < count:
            raise ValueFault(f"it has {what} {number} of {count}")
        return number

    def _string(self) -> str:
        return _quoted(self._start(self._taken(self._number())).decode("utf-8", "replace"))

    def _bytes(self, length: int) -> str:
        """Each byte is a character, U+0000 to U+00FF."""
        return _quoted(self._start(self._taken(length)).decode("latin-1"))

    def _start(self, data: memoryview) -> bytes:
        """No more of a text than is shown."""
        self.is_cut = self.is_cut or len(data) > self._most
        return bytes(data[: self._most])

    def _taken(self, length: int) -> memoryview:
        left = len(self._data) - self.at
        if not 0 <= length <= left:
            raise ValueFault(f"it claims {length} bytes where {left} are left")
        self.at += length
        return memoryview(self._data)[self.at - length : self.at]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
