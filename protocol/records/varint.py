"""Zig-zag varints as in magic 2 records and Protocol Buffers (KIP-98): 7 bits per byte, low first."""

from mmap import mmap

from odradek.protocol.errors import INVALID_RECORD
from odradek.protocol.records.errors import RecordError
from odradek.protocol.wire import pack_uvarint


def _encode(number: int) -> bytes:
    return pack_uvarint((number << 1) ^ (number >> 63))


# Lengths and deltas are nearly always small: a dict lookup is four times faster than the loop.
CACHE = {number: _encode(number) for number in range(-64, 2048)}
# The values of one-byte varints: 0, -1, 1, -2, …
ONE_BYTE = [byte >> 1 ^ -(byte & 1) for byte in range(128)]

# Bits of the longest varints of 32 and 64 bits. Java's clients refuse longer ones, even if they only add zeros.
INT, LONG = 35, 70


def encode(number: int) -> bytes:
    """`number` (signed, 64 bits) as a zig-zag varint of 1 to 10 bytes."""
    return CACHE.get(number) or _encode(number)


def decode(data: bytes | bytearray | memoryview | mmap, position: int, bits: int = LONG) -> tuple[int, int]:
    """The varint at `position` and the position after it.

    IndexError past the end of `data`; RecordError INVALID_RECORD when it does not end within `bits`.
    """
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift == bits:
            raise RecordError(INVALID_RECORD, f"A variable-length number does not end within {bits // 7} bytes")
