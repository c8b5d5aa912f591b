"""Reading Kafka's primitive types from a buffer by position, for the two hand-written APIs.

Every function returns (value, next position). Reading past the end raises WireError (callers convert struct.error and
IndexError in one `except`): the frame is malformed and its connection is closed.
"""

from __future__ import annotations

import struct

I16 = struct.Struct(">h")
I32 = struct.Struct(">i")
I64 = struct.Struct(">q")

INT16_MAX = 0x7FFF
INT32_MAX = 0x7FFFFFFF
INT64_MAX = 0x7FFFFFFFFFFFFFFF


# An element may take one byte on the wire, hundreds in memory, and microseconds to handle, while all clients wait.
MOST_ELEMENTS = 1 << 16


def next_correlation(last: int) -> int:
    """The correlation id of the request after the one with `last`; 31 bits, wrapping to 0."""
    return last + 1 & INT32_MAX


class WireError(ValueError):
    """The frame does not match its version's schema."""


# The exceptions that decoding raises on bytes that do not match their version.
MALFORMED = (ValueError, IndexError, struct.error, KeyError, TypeError, EOFError, OverflowError, MemoryError)


def uvarint(buf: memoryview | bytearray | bytes, at: int) -> tuple[int, int]:
    """An unsigned varint of at most 5 bytes."""
    value = shift = 0
    while True:
        byte = buf[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 28:
            raise WireError("varint longer than 5 bytes")


def pack_uvarint(value: int) -> bytes:
    """`value` as an unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


LONGEST_STRING = 0x7FFF
"""Bytes of a string, in compact form too: Kafka's decoders refuse longer ones, as records have 16-bit lengths."""


def string(buf: memoryview, at: int, end: int, flexible: bool) -> tuple[bytes | None, int]:
    """A (compact) nullable string as its bytes."""
    if flexible:
        length, at = uvarint(buf, at)
        length -= 1
        if length > LONGEST_STRING:
            raise WireError(f"string of {length} bytes, of {LONGEST_STRING} at most")
    else:
        (length,) = I16.unpack_from(buf, at)
        at += 2
    if length < 0:
        return None, at
    if length > end - at:
        raise WireError(f"string of {length} bytes in a frame with {end - at} left")
    return bytes(buf[at : at + length]), at + length


def span(buf: memoryview, at: int, end: int, flexible: bool) -> tuple[int, int]:
    """(compact) nullable bytes: (length or -1, position of the first byte); checked to lie inside the frame."""
    if flexible:
        length, at = uvarint(buf, at)
        length -= 1
    else:
        (length,) = I32.unpack_from(buf, at)
        at += 4
    if length > end - at:
        raise WireError(f"{length} bytes promised in a frame with {end - at} left")
    return length, at


def count(buf: memoryview, at: int, end: int, flexible: bool) -> tuple[int, int]:
    """The length of a (compact) array, -1 for null; refused when the rest of the frame cannot hold it."""
    if flexible:
        length, at = uvarint(buf, at)
        length -= 1
    else:
        (length,) = I32.unpack_from(buf, at)
        at += 4
    if length > end - at:
        raise WireError(f"array of {length} elements in a frame with {end - at} bytes left")
    return length, at


def present(buf: memoryview, at: int, end: int, flexible: bool) -> tuple[int, int]:
    """`count` of a non-nullable array."""
    length, at = count(buf, at, end, flexible)
    if length < 0:
        raise WireError("array is null")
    return length, at


def check_elements(number: int) -> None:
    """WireError when a request has more than MOST_ELEMENTS elements, including nested ones, or tagged fields."""
    if number > MOST_ELEMENTS:
        raise WireError(f"more than {MOST_ELEMENTS} elements")


def skip_tags(buf: memoryview, at: int, end: int) -> int:
    """The position after a section of tagged fields, without reading their contents."""
    return pass_tags(buf, at, end, 0)[0]


def pass_tags(buf: memoryview, at: int, end: int, number: int) -> tuple[int, int]:
    """`skip_tags` for a request with `number` tagged fields before; returns the position and the new number."""
    fields, at = uvarint(buf, at)
    number += fields
    check_elements(number)
    for _ in range(fields):
        _, at = uvarint(buf, at)
        size, at = uvarint(buf, at)
        at += size
        if at > end:
            raise WireError("tagged field runs past its frame")
    return at, number


def tags(buf: memoryview, at: int, end: int) -> tuple[list[tuple[int, int, int]], int]:
    """Tagged fields as (tag, start, end)."""
    fields, at = uvarint(buf, at)
    check_elements(fields)
    found = []
    for _ in range(fields):
        tag, at = uvarint(buf, at)
        size, at = uvarint(buf, at)
        found.append((tag, at, at + size))
        at += size
        if at > end:
            raise WireError("tagged field runs past its frame")
    return found, at


def pack_string(text: bytes | None, flexible: bool) -> bytes:
    """A (compact) nullable string."""
    if text is None:
        return b"\x00" if flexible else b"\xff\xff"
    if flexible:
        return pack_uvarint(len(text) + 1) + text
    return I16.pack(len(text)) + text


def pack_count(length: int, flexible: bool) -> bytes:
    """The length of a (compact) array."""
    return pack_uvarint(length + 1) if flexible else I32.pack(length)
