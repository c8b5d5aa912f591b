"""Requests that are valid on the wire, with odd values, for any request class of kafka-python's or ours.

    rng = random.Random(seed)
    values = OddValues(rng, {"group_id": [b"g"], "StopReplica.controller_id": [0]}, spice=0.1)
    body = valid_body(message_class("JoinGroupRequest"), 9, values)

A field takes a value of its pool (`array.field`, `Api.field` or `field`) if it has one, and always if the pool is a
tuple; else an ordinary value of its type. A share `spice` of them is odd: an extreme number, an empty, huge or
non-ASCII string, an array of many or equal elements, one or many unknown tags. One request in hundreds has
room for more than 2 MB. Null is drawn where it is allowed. Every length is correct; a decoder refuses only strings that
are too long for Kafka, and more elements than a request may have.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from odradek.protocol.wire import pack_uvarint

from .grammar import FORMATS

NULL_SHARE = 0.2
POOL_SHARE = 0.9
MOST_DEEP = 5
LONGEST = 32_767  # bytes of a string, in any encoding
ROOM, MORE_ROOM = 2 << 20, 12 << 20  # approximate bytes of strings and array elements in one request

ODD_TEXTS = (
    b"", b" ", b"-", b"a\0b", b"a b", b"../escaped", b".", b"a/b", b"%s%n{}", b"\r\nX", "Ωδρ-δ".encode(),
    "\N{PILE OF POO}\N{COMBINING ACUTE ACCENT}".encode(), b"__consumer_offsets", b"__transaction_state",
    b"x" * 249, b"x" * 250, b"x" * 4097, b"x" * LONGEST, "Ω".encode() * (LONGEST // 2),
)  # fmt: skip
TOO_LONG = (b"y" * (LONGEST + 1), b"y" * 65_536, b"y" * 100_000)
"""Only a compact string can have these lengths; Kafka ends the connection."""

ODD_BLOBS = (
    b"", b"\0", b"\xff" * 7, b"\0\0\0\0\0\1\0\1t", b"\0\1\x7f\xff\xff\xff", b"b" * 5000, b"B" * 1_200_000,
    b"C" * 5_000_000,
)  # fmt: skip


class OddValues:
    """Values for the fields of one request. `pools`: meaningful values by field, or by `Api.field`."""

    MANY = 3_000  # different elements; drawing each one takes time
    # How often an element is repeated; a request may have 65,536 in all.
    EQUAL: tuple[int, ...] = (1, 1, 1, 2, 300, 5_000, 30_000)
    LARGE_SHARE = 0.005  # share of requests with MORE_ROOM

    def __init__(self, rng: random.Random, pools: Mapping[str, Sequence[Any]], spice: float = 0.05) -> None:
        self.rng = rng
        self._pools = pools
        self._spice = spice
        self._room = MORE_ROOM if rng.random() < self.LARGE_SHARE else ROOM
        self.within = ""
        """The array whose elements are being drawn."""

    def odd(self) -> bool:
        """Whether to draw an odd value next."""
        return self.rng.random() < self._spice

    def null(self, name: str) -> bool:
        """Whether the nullable field `name` is null."""
        return self.rng.random() < NULL_SHARE

    def known(self, api: str, name: str) -> Any:
        """A value of the pool of the field; None if there is no pool, or if another value is due."""
        pool = self.pool(api, name)
        if isinstance(pool, tuple):
            return self.rng.choice(pool)
        if not pool or self.odd() or self.rng.random() > POOL_SHARE:
            return None
        return self.rng.choice(pool)

    def pool(self, api: str, name: str) -> Sequence[Any] | None:
        """The pool of a field."""
        pools = self._pools
        return pools.get(f"{self.within}.{name}") or pools.get(f"{api}.{name}") or pools.get(name)

    def number(self, bits: int) -> int:
        """A signed integer of this many bits."""
        if self.odd():
            edge = 1 << bits - 1
            return self.rng.choice((-1, -2, -edge, edge - 1, edge - 2, self.rng.randrange(-edge, edge)))
        return self.rng.choice((0, 0, 1, 1, 2, 5, 100, -1))

    def text(self, compact: bool) -> bytes:
        """A string."""
        if not self.odd():
            return self.rng.choice((b"a", b"b", b"range", b"consumer"))
        return self._fitting(TOO_LONG if compact and self.odd() else ODD_TEXTS)

    def blob(self) -> bytes:
        """Bytes."""
        return self._fitting(ODD_BLOBS) if self.odd() else self.rng.choice(ODD_BLOBS[:4])

    def unknown_tags(self) -> list[tuple[int, bytes]]:
        """Unknown tagged fields."""
        count = self.rng.choice((1, 1, 1, 2, 300, self.MANY)) if self.odd() and self._room > 0 else 0
        self._room -= 16 * count
        return [(99 + tag, self.rng.choice((b"odd", b""))) for tag in range(count)]

    def _fitting(self, choices: Sequence[bytes]) -> bytes:
        chosen = self.rng.choice(choices)
        self._room -= len(chosen)
        return chosen if self._room > 0 else b""

    def repeats(self, name: str, size: int) -> int:
        """How often the array `name` repeats its first element, which has `size` bytes."""
        if not self.odd():
            return 0
        times = min(self.rng.choice(self.EQUAL), max(self._room, 0) // (size + 64))
        self._room -= times * (size + 64)
        return times

    def count(self, name: str, depth: int) -> int:
        """The number of elements of the array `name`, from the pool `name.count` if there is one."""
        pool = self._pools.get(f"{name}.count")
        if pool:
            return int(self.rng.choice(pool))
        if depth >= MOST_DEEP or self._room < 0:
            return 0
        count = self.rng.choice((0, 2, 17, 300, self.MANY)) if self.odd() else self.rng.choice((1, 1, 1, 2, 3))
        self._room -= 64 * count
        return count


def is_ours(kind: Any) -> bool:
    """Whether a message class is built from our schemas; kafka-python has a class for each version, `kind[3]`."""
    return not hasattr(type(kind), "__getitem__")


def valid_body(request_class: Any, version: int, values: OddValues) -> bytes:
    """The body of one request with fields drawn from `values`."""
    flexible = request_class.flexible_version_q(version)
    api = request_class.__name__.removesuffix("Request")
    return _Body(api, version, flexible, values).struct(request_class._struct, 0)


class _Body:
    """Writes the body of one request."""

    def __init__(self, api: str, version: int, flexible: bool, values: OddValues) -> None:
        self._api = api
        self._version = version
        self._flexible = flexible
        self._values = values

    def struct(self, schema: Any, depth: int) -> bytes:
        """The fields of a struct, then its tags."""
        out = b"".join(self._field(field, depth) for field in schema.untagged_fields(self._version))
        return out + self._tags(schema, depth) if self._flexible else out

    def _field(self, field: Any, depth: int) -> bytes:
        if field.is_struct_array():
            return self._array(field, depth, lambda: self._element(field, depth))
        if field.is_array():
            return self._array(field, depth, lambda: self._simple(field.array_of, field.name, element=True))
        if field.is_struct():
            return self._nested(field, depth)
        return self._simple(field, field.name)

    def _element(self, field: Any, depth: int) -> bytes:
        outer, self._values.within = self._values.within, field.name
        try:
            return self.struct(field.array_of, depth + 1)
        finally:
            self._values.within = outer

    def _nested(self, field: Any, depth: int) -> bytes:
        if not field.nullable_for_version_q(self._version):
            return self.struct(field, depth + 1)
        return b"\xff" if self._values.null(field.name) else b"\x01" + self.struct(field, depth + 1)

    def _array(self, field: Any, depth: int, element: Callable[[], bytes]) -> bytes:
        if field.nullable_for_version_q(self._version) and self._values.null(field.name):
            return self._length(-1, ">i")
        count = self._values.count(field.name, depth)
        elements = [element() for _ in range(count)]
        if elements:
            elements += [elements[0]] * self._values.repeats(field.name, len(elements[0]))
        return self._length(len(elements), ">i") + b"".join(elements)

    def _simple(self, field: Any, name: str, *, element: bool = False) -> bytes:
        """A single value, or an array element, which is never null though the array may be."""
        kind = field.type_str.removeprefix("[]")
        known = self._values.known(self._api, name)
        if kind in FORMATS:
            layout = struct.Struct(">" + FORMATS[kind])
            value = self._values.number(8 * layout.size) if known is None else known
            return layout.pack(value & (1 << 8 * layout.size) - 1 if FORMATS[kind].isupper() else value)
        if kind == "bool":
            return bytes((self._values.rng.choice((0, 1)) if known is None else known,))
        if kind == "float64":
            odd = self._values.rng.choice((0.0, -1.0, float("inf"), float("nan")))
            return struct.pack(">d", odd if known is None else known)
        if kind == "uuid":
            return self._values.rng.choice((bytes(16), b"\xff" * 16)) if known is None else bytes(known)
        nullable = not element and field.nullable_for_version_q(self._version)
        return self._sized(field, kind == "string", known, nullable)

    def _sized(self, field: Any, text: bool, known: Any, nullable: bool) -> bytes:
        layout = ">h" if text else ">i"
        if nullable and self._values.null(field.name):
            return self._length(-1, layout)
        if known is None:
            known = self._values.text(self._flexible) if text else self._values.blob()
        return self._length(len(known), layout) + known

    def _length(self, length: int, layout: str) -> bytes:
        return pack_uvarint(length + 1) if self._flexible else struct.pack(layout, length)

    def _tags(self, schema: Any, depth: int) -> bytes:
        known = [field for field in schema._fields if field.tagged_field_q(self._version)]
        chosen = [field for field in known if not self._values.null(field.name)]
        rows = [(field.tag, self._field(field, depth + 1)) for field in sorted(chosen, key=lambda field: field.tag)]
        rows += self._values.unknown_tags()
        return pack_uvarint(len(rows)) + b"".join(pack_uvarint(t) + pack_uvarint(len(v)) + v for t, v in rows)
