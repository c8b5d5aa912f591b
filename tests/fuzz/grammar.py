"""Requests that follow Kafka's grammar, with edge values: every API and version that a broker offers.

This module encodes the fields of kafka-python's schemas itself, because kafka-python's encoders write no invalid bytes:
here a length may exceed the data, a field that is not nullable may be null, and a string may not be UTF-8.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import Any

from odradek.protocol import delegation_tokens
from odradek.protocol.library import message_class
from odradek.protocol.wire import pack_uvarint

from ..clients.raw.batches import batch, message
from ..clients.test_every_version import request_classes
from ..harness.wire import header

_BITS = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "int64": 64, "bitfield": 32}
FORMATS = {"int8": "b", "int16": "h", "uint16": "H", "int32": "i", "int64": "q", "bitfield": "I"}
_TEXTS = [
    b"",
    b"\xff\xfe",
    b"\xc3",
    b"a\0b",
    b"../x",
    b"\xed\xa0\x80",
    b"x" * 300,
    "Ωδρ".encode(),
    b"__consumer_offsets",
]
_MOST_DEEP = 6


class Grammar:
    """Random requests. `names` are strings that exist on this broker (topics, groups), `ids` the ids of topics."""

    def __init__(self, offered: dict[int, tuple[int, int]], names: list[bytes], ids: list[bytes]) -> None:
        self.names = names
        self.ids = ids
        ours = {schema.key: message_class(f"{schema.name}Request") for schema in delegation_tokens.SCHEMAS}
        classes = request_classes() | ours
        self.rows = [
            (classes[key], version)
            for key, (low, high) in sorted(offered.items())
            for version in range(low, min(high, classes[key].max_version) + 1)
        ]

    def frame(self, rng: random.Random) -> bytes:
        """One request with its size; mostly well formed."""
        request, version = rng.choice(self.rows)
        return framed(self.request(request, version, rng))

    def request(self, request: Any, version: int, rng: random.Random) -> bytes:
        """Header and body of one request of a class of kafka-python's."""
        flexible = request.flexible_version_q(version)
        spice = rng.choice((0.0, 0.02, 0.1, 0.3))  # share of edge values
        body = b"".join(_Body(self, rng, version, flexible, spice).struct(request._struct, 0))
        return header(request.API_KEY, version, rng.randrange(1 << 31), flexible=flexible, client="fuzz") + body


def framed(request: bytes) -> bytes:
    """A request with its size."""
    return struct.pack(">i", len(request)) + request


class _Body:
    """Builds the body of one request."""

    def __init__(self, grammar: Grammar, rng: random.Random, version: int, flexible: bool, spice: float) -> None:
        self._grammar = grammar
        self._dice = rng
        self._version = version
        self._flexible = flexible
        self._spice = spice

    def _edge(self) -> bool:
        return self._dice.random() < self._spice

    def struct(self, schema: Any, depth: int) -> Iterator[bytes]:
        """The fields of a struct, then its tags."""
        for field in schema.untagged_fields(self._version):
            yield from self._field(field, depth)
        if self._flexible:
            yield from self._tags(schema, depth)

    def _field(self, field: Any, depth: int) -> Iterator[bytes]:
        if field.is_struct_array():
            yield from self._array(field, depth, lambda: self.struct(field.array_of, depth + 1))
        elif field.is_array():
            yield from self._array(field, depth, lambda: iter((self._simple(field.array_of),)))
        elif field.is_struct():
            yield from self._nested(field, depth)
        else:
            yield self._simple(field)

    def _nested(self, field: Any, depth: int) -> Iterator[bytes]:
        nullable = field.nullable_for_version_q(self._version)
        if nullable and self._dice.random() < 0.5:
            yield b"\xff"
            return
        if nullable:
            yield b"\x01"
        yield from self.struct(field, depth + 1)

    def _array(self, field: Any, depth: int, element: Any) -> Iterator[bytes]:
        null = field.nullable_for_version_q(self._version) and self._dice.random() < 0.2
        if null or self._edge():
            yield self._count(-1 if null else self._wrong_count())
            return
        count = self._dice.choice((0, 1, 1, 1, 2, 3, 20)) if depth < _MOST_DEEP else 0
        yield self._count(count + (self._dice.choice((-1, 1, 1000)) if self._edge() else 0))
        for _ in range(count):
            yield from element()

    def _wrong_count(self) -> int:
        return self._dice.choice((-1, -2, -(1 << 31), 1 << 20, (1 << 31) - 2, self._dice.randrange(1 << 31)))

    def _count(self, count: int) -> bytes:
        if not self._flexible:
            return struct.pack(">i", max(count, -(1 << 31)))
        return pack_uvarint((count + 1) & 0xFFFFFFFF) if not self._edge() else b"\xff" * self._dice.randrange(1, 12)

    def _simple(self, field: Any) -> bytes:
        kind = field.type_str.removeprefix("[]")
        if kind in FORMATS:
            return struct.pack(">" + FORMATS[kind], self._number(kind))
        if kind == "bool":
            return bytes((self._dice.choice((0, 1, 1, 255)),))
        if kind == "float64":
            return struct.pack(">d", self._dice.choice((0.0, -1.0, float("inf"), float("nan"))))
        if kind == "uuid":
            return self._dice.choice((*self._grammar.ids, bytes(16), self._dice.randbytes(16)))
        return self._bytes(field, kind)

    def _number(self, kind: str) -> int:
        bits = _BITS[kind]
        if self._edge():
            value = self._dice.choice((-1, -2, 1 << bits - 1, (1 << bits - 1) - 1, self._dice.getrandbits(bits)))
        else:
            value = self._dice.choice((0, 0, 0, 1, 1, 2, 5, 100, -1))
        value &= (1 << bits) - 1
        return value if kind in ("uint16", "bitfield") or value < 1 << bits - 1 else value - (1 << bits)

    def _bytes(self, field: Any, kind: str) -> bytes:
        nullable = field.nullable_for_version_q(self._version)
        if (nullable and self._dice.random() < 0.3) or self._edge():
            return self._length(-1, kind)
        if kind == "string":
            value = self._dice.choice(_TEXTS) if self._edge() else self._dice.choice(self._grammar.names)
        elif kind == "records" or field.name == "records":
            value = self._records()
        else:
            value = self._dice.randbytes(self._dice.choice((0, 1, 10, 100)))
        lie = self._dice.choice((-2, -1, 1, 100, 30_000)) if self._edge() else 0
        return self._length(len(value) + lie, kind) + value

    def _length(self, length: int, kind: str) -> bytes:
        if self._flexible:
            return pack_uvarint((length + 1) & 0xFFFFFFFF)
        return struct.pack(">h" if kind == "string" else ">i", max(-(1 << 15), min(length, (1 << 15) - 1)))

    def _records(self) -> bytes:
        rng = self._dice
        if rng.random() < 0.2:
            return message(b"old", b"k", magic=rng.choice((0, 1)), attributes=self._number("int8"))
        fields: dict[str, Any] = {name: self._number(kind) for name, kind in _HEADER_FIELDS.items() if self._edge()}
        good = batch([b"v" * rng.choice((0, 10, 200))] * rng.choice((1, 1, 3)), break_crc=self._edge(), **fields)
        return bytes(good) if not self._edge() else mangled(good, rng)

    def _tags(self, schema: Any, depth: int) -> Iterator[bytes]:
        if not self._edge():
            yield b"\0"
            return
        known = [field for field in schema._fields if field.tagged_field_q(self._version)]
        yield pack_uvarint(self._dice.choice((1, 1, 2, 1 << 28)))
        for field in known[:1]:
            value = b"".join(self._field(field, depth + 1))
            yield pack_uvarint(field.tag) + pack_uvarint(len(value) + self._dice.choice((0, 0, 1, 100))) + value
        yield pack_uvarint(self._dice.choice((0, 1, 77))) + pack_uvarint(self._dice.choice((0, 3, 1 << 30))) + b"abc"


_HEADER_FIELDS = {
    "producer": "int64",
    "epoch": "int16",
    "sequence": "int32",
    "attributes": "int16",
    "timestamp": "int64",
    "last_delta": "int32",
    "count": "int32",
}


def mangled(data: bytes, rng: random.Random) -> bytes:
    """`data` mutated: bits, lengths, cuts, repetitions."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(out)) if out else 0
        what = rng.randrange(6)
        if what == 0 and out:
            out[at] ^= 1 << rng.randrange(8)
        elif what == 1 and len(out) - at >= 4:
            out[at : at + 4] = struct.pack(">i", rng.choice((-1, 0, 1 << 20, (1 << 31) - 1, -(1 << 31), len(out))))
        elif what == 2 and len(out) - at >= 2:
            out[at : at + 2] = rng.choice((b"\xff\xff", b"\x7f\xff", b"\x80\x00", b"\0\0"))
        elif what == 3:
            del out[at : at + rng.choice((1, 2, 10, 1000))]
        elif what == 4:
            out[at:at] = out[at : at + rng.choice((1, 4, 30))] * rng.choice((1, 3, 50))
        else:
            out[at:at] = rng.randbytes(rng.choice((1, 2, 8)))
    return bytes(out)
