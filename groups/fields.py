"""The fields in records of Kafka's internal topics.

Big-endian numbers; strings are int16 length + UTF-8 (-1: null), bytes and arrays start with an int32 length. Flexible
versions have varint lengths plus one instead, and tagged fields at the end of each structure.
"""

from __future__ import annotations

import struct

from odradek.protocol import wire
from odradek.protocol.wire import I16, I32, I64


class RecordError(ValueError):
    """A record that does not match the known versions of its format."""


TOO_SHORT = (struct.error, IndexError, wire.WireError)
"""Errors of a read past the end of a record, where no length field reveals it before."""


def string(text: str | None) -> bytes:
    """`text` as a nullable string."""
    return wire.pack_string(None if text is None else text.encode("utf-8", "surrogateescape"), False)


def blob(data: bytes) -> bytes:
    """`data` after its length."""
    return I32.pack(len(data)) + data


class Reader:
    """A cursor over one key or value; `flexible` switches strings, bytes and arrays to varint lengths."""

    def __init__(self, data: bytes | memoryview, flexible: bool = False, errors: str = "surrogateescape") -> None:
        self._data = memoryview(data)
        self._at = 0
        self._errors = errors
        self.flexible = flexible

    def take(self, layout: struct.Struct) -> tuple[int, ...]:
        """The numbers of `layout`."""
        fields = layout.unpack_from(self._data, self._at)
        self._at += layout.size
        return fields

    def i16(self) -> int:
        return self.take(I16)[0]

    def i32(self) -> int:
        return self.take(I32)[0]

    def i64(self) -> int:
        return self.take(I64)[0]

    def varint(self) -> int:
        value, self._at = wire.uvarint(self._data, self._at)
        return value

    def _bytes(self, length: int) -> bytes:
        if not 0 <= length <= len(self._data) - self._at:
            raise RecordError(f"a field of {length} bytes does not fit the record")
        self._at += length
        return bytes(self._data[self._at - length : self._at])

    def nullable(self) -> str | None:
        length = self.varint() - 1 if self.flexible else self.i16()
        return None if length < 0 else self._bytes(length).decode("utf-8", self._errors)

    def string(self) -> str:
        return self.nullable() or ""

    def nullable_blob(self) -> bytes | None:
        length = self.count()
        return None if length < 0 else self._bytes(length)

    def blob(self) -> bytes:
        return self._bytes(self.count())

    def count(self) -> int:
        """An array's length, -1 for null."""
        return self.varint() - 1 if self.flexible else self.i32()

    def tags(self) -> dict[int, bytes]:
        """The tagged fields; none where the version has none."""
        if not self.flexible:
            return {}
        return {self.varint(): self._bytes(self.varint()) for _ in range(self.varint())}
