"""Validating uncompressed records of magic 2 against their batch, without an object for each record.

Producers mostly send records of one shape: equal length, key length and value length, no headers. Consecutive records
of one shape are like the rows of a table, and the fields that must be equal or rise in all of them (lengths, deltas)
are its columns: one slice with a step each, compared as a whole. Other records are walked one by one. `batch_v2.scan`
is the slow way to the same result, and the tests' reference.
"""

from __future__ import annotations

import mmap
import struct

from odradek.protocol.errors import INVALID_RECORD
from odradek.protocol.records import varint
from odradek.protocol.records.errors import RecordError

Data = bytes | bytearray | mmap.mmap

_signed = varint.ONE_BYTE
_WORTH = 6  # records of one shape: fewer cost less one by one
_ONE_BYTE, _TWO_BYTES = 64, 8192  # offset deltas below these take one byte, two bytes
_DELTAS = bytes(range(0, 128, 2))
_LOW = bytes(range(128, 256, 2)) * (_TWO_BYTES // 64)  # delta << 1 & 127 | 128
_HIGH = b"".join(bytes([high]) * 64 for high in range(_TWO_BYTES // 64))  # delta >> 6
_LONGER = bytes(range(128, 256))  # varint bytes with the continuation bit
_rising = bytes(sorted(range(128), key=_signed.__getitem__))
_NOT_ABOVE = [_rising[: _rising.index(last) + 1] for last in range(128)]
"""By one-byte varint: the one-byte varints that are not larger."""
_UPTO = [bytes(range(last + 1)) for last in range(256)]
_NO_TIMESTAMP = -1 << 70
_TOO_EARLY = -1 << 63  # below any base timestamp from -1 on
_INT = varint.INT
_MOST_KNOWN = 4096
_prefixes: dict[int, bytes] = {}


class RecordShape:
    """Records of one shape: the size of each, and the positions of its fields."""

    __slots__ = ("delta", "fixed", "size", "timestamp")

    def __init__(self, size: int, timestamp: int, delta: int, fixed: list[tuple[int, bytes]]) -> None:
        self.size = size
        self.timestamp = timestamp
        self.delta = delta
        self.fixed = fixed  # positions of the bytes that are equal in all, and those bytes


# Known shapes, by the first four bytes of their first record, with offset deltas of one byte and of two.
_START = struct.Struct("I")
_shapes: tuple[dict[int, RecordShape], dict[int, RecordShape]] = ({}, {})


def are_sound(data: Data, at: int, end: int, count: int, span: int) -> bool:
    """Whether data[at:end] is exactly `count` records with the offset deltas 0, 1, 2, …, and `span` their largest
    timestamp delta. The batch's base timestamp, which is unknown here, must be at least -1.
    """
    if count == 1 and not span:
        prefix = _prefixes.get(end - at)
        if prefix is None:
            prefix = _prefix(end - at)
        if prefix and data.find(prefix, at, at + len(prefix)) == at and not data[end - 1]:
            return True
    try:
        return _latest(data, at, end, count) == span
    except (IndexError, RecordError):
        return False


def _prefix(size: int) -> bytes:
    """The first bytes of a single record of `size` bytes with its batch's timestamp and without a key."""
    if len(_prefixes) >= _MOST_KNOWN:
        _prefixes.clear()
    found = _prefixes[size] = _lengths(size)
    return found


def _lengths(size: int) -> bytes:
    """The first bytes of such a record; b"" if no combination of varint lengths gives that size."""
    for of_length in range(1, 6):
        for of_value in range(1, 6):
            value = size - of_length - of_value - 5
            length, before = varint.encode(size - of_length), varint.encode(value)
            if value >= 0 and (len(length), len(before)) == (of_length, of_value):
                return length + b"\0\0\0\1" + before
    return b""


def _latest(data: Data, at: int, end: int, count: int) -> int:
    """The largest timestamp delta of `count` valid records in data[at:end]; RecordError or IndexError for others."""
    index, alone, latest = 0, _WORTH, _NO_TIMESTAMP
    while index < count:
        run, size, newest = _alike(data, at, end, index, count) if count - index >= _WORTH else (0, 0, 0)
        if run:
            index, at = index + run, at + run * size
        else:
            stop = min(index + alone, count)
            at, newest = _walk(data, at, end, index, stop)
            index, alone = stop, alone * 4
        latest = max(latest, newest)
    if at != end:
        raise _wrong("There are more records than the declared count")
    return latest


def _alike(data: Data, at: int, end: int, index: int, count: int) -> tuple[int, int, int]:
    """The number of valid records of one shape from `at`, their size, their largest timestamp delta.

    0 records if they are too few, or this method cannot tell: they may still be valid.
    """
    if end - at < _START.size or index >= _TWO_BYTES:
        return 0, 0, 0
    shapes, start = _shapes[index >= _ONE_BYTE], _START.unpack_from(data, at)[0]
    shape = shapes.get(start)
    run = 0 if shape is None else _run(data, at, end, index, count, shape)
    if not run:
        shape = _shape(data, at, end, index)
        run = 0 if shape is None else _run(data, at, end, index, count, shape)
        if shape is None or not run:
            return 0, 0, 0
        if len(shapes) >= _MOST_KNOWN:
            shapes.clear()
        shapes[start] = shape
    assert shape is not None
    size, newest = shape.size, None
    if _counts(data, at + shape.delta, at + run * size, index, run, size):
        newest = _newest(data, at + shape.timestamp, at + run * size, size, shape.delta - shape.timestamp)
    return (run, size, newest) if newest is not None else (0, 0, 0)


def _run(data: Data, at: int, end: int, index: int, count: int, shape: RecordShape) -> int:
    """The number of records from `at` with this shape, apart from deltas; 0 if they are too few."""
    size = shape.size
    run = min(count - index, (end - at) // size, (_ONE_BYTE if index < _ONE_BYTE else _TWO_BYTES) - index)
    if run < _WORTH:
        return 0
    for place, byte in shape.fixed:
        column = data[at + place : at + run * size : size]
        if column != byte * run:
            run -= len(column.lstrip(byte))
            if run < _WORTH:
                return 0
    return run


def _shape(data: Data, at: int, end: int, index: int) -> RecordShape | None:
    """The shape of the record at `at`; None when it has no plain shape."""
    try:
        return _plain_shape(data, at, end, index)
    except IndexError:
        return None


def _plain_shape(data: Data, at: int, end: int, index: int) -> RecordShape | None:
    length, behind = data[at], at + 1
    if length > 127:
        length, behind = length & 127 | data[behind] << 7, behind + 1
    size, timestamp = behind - at + (length >> 1), behind + 1
    delta = timestamp + 1 if data[timestamp] < 128 else timestamp + 2
    key = delta + 1 if index < _ONE_BYTE else delta + 2
    value, fixed = _behind(data, key)
    last, more = _behind(data, value)
    if length & 1 or last != at + size - 1 or last >= end or data[last] or data[behind]:
        return None
    places = (*range(at, behind + 1), *fixed, *more, last)
    return RecordShape(size, timestamp - at, delta - at, [(place - at, bytes((data[place],))) for place in places])


def _behind(data: Data, at: int) -> tuple[int, tuple[int, ...]]:
    """The end of the key or value whose length is at `at`, and that length's positions; IndexError beyond two."""
    low = data[at]
    if low < 128:
        return at + 1 + max(_signed[low], 0), (at,)
    high = data[at + 1]
    if low & 1 or high > 127:
        raise IndexError
    return at + 2 + ((low & 127 | high << 7) >> 1), (at, at + 1)


def _counts(data: Data, at: int, end: int, index: int, run: int, size: int) -> bool:
    """Whether the offset deltas, the first at `at`, count from `index`."""
    column = data[at:end:size]
    if index < _ONE_BYTE:
        return column == _DELTAS[index : index + run]
    return column == _LOW[index : index + run] and data[at + 1 : end : size] == _HIGH[index : index + run]


def _newest(data: Data, at: int, end: int, size: int, width: int) -> int | None:
    """The largest timestamp delta, the first at `at`; None if one does not have `width` bytes."""
    column = data[at:end:size]
    if width == 2:
        return _newest_of_two(column, data[at + 1 : end : size])
    if not column.isascii():
        return None
    last = column[-1]
    if not column.translate(None, _NOT_ABOVE[last]):
        return _signed[last]
    return max(map(_signed.__getitem__, column))


def _newest_of_two(low: bytes | bytearray, high: bytes | bytearray) -> int | None:
    """The largest of these two-byte varints; None if one is shorter or longer."""
    if low.translate(None, _LONGER) or not high.isascii():
        return None
    last_low, last_high = low[-1], high[-1]
    rising = not high.translate(None, _UPTO[last_high]) and not low[high.find(last_high) :].translate(
        None, _UPTO[last_low]
    )
    if rising and not last_low & 1:
        return (last_low & 127 | last_high << 7) >> 1
    numbers = [one & 127 | other << 7 for one, other in zip(low, high, strict=True)]
    return max(number >> 1 ^ -(number & 1) for number in numbers)


def _walk(data: Data, at: int, end: int, index: int, stop: int) -> tuple[int, int]:
    """Check the records from `index` to `stop` one by one; the position after them, their largest timestamp delta."""
    decode, signed, latest = varint.decode, _signed, _NO_TIMESTAMP
    # Numbers of one and two bytes are decoded in place, as in batch_v2.walk.
    for expected in range(index, stop):
        number = data[at]
        if number < 128:
            number, at = signed[number], at + 1
        elif (second := data[at + 1]) < 128 and not number & 1:
            number, at = (number & 127 | second << 7) >> 1, at + 2
        else:
            number, at = decode(data, at, _INT)
        last = at + number
        if number < 6 or last > end:
            raise _wrong("A record does not fit into its batch")
        number = data[at + 1]  # after the attributes byte, which is unused
        if number < 128:
            number, at = signed[number], at + 2
        else:
            number, at = decode(data, at + 1)
            if number <= _TOO_EARLY:
                raise _wrong("A timestamp is out of range")
        if number > latest:
            latest = number
        number = data[at]
        if number < 128:
            number, at = signed[number], at + 1
        elif (second := data[at + 1]) < 128 and not number & 1:
            number, at = (number & 127 | second << 7) >> 1, at + 2
        else:
            number, at = decode(data, at, _INT)
        if number != expected:
            raise _wrong("The offset deltas of a batch do not match its record count")
        number = data[at]
        if number == 1:
            at += 1
        elif number < 128:
            at += signed[number] + 1 if not number & 1 else 1
        else:
            number, at = decode(data, at, _INT)
            at += number if number > 0 else 0
        number = data[at]
        if number < 128:
            at += signed[number] + 1 if not number & 1 else 1
        elif (second := data[at + 1]) < 128 and not number & 1:
            at += ((number & 127 | second << 7) >> 1) + 2
        else:
            number, at = decode(data, at, _INT)
            at += number if number > 0 else 0
        if at >= last:
            raise _wrong("A record does not have its declared length")
        at = _past_headers(data, at, last) if data[at] else at + 1
        if at != last:
            raise _wrong("A record does not have its declared length")
    return at, latest


def _wrong(what: str) -> RecordError:
    return RecordError(INVALID_RECORD, what)


def _past_headers(data: Data, at: int, end: int) -> int:
    count, at = varint.decode(data, at, _INT)
    if not 0 <= count <= end - at:
        raise _wrong(f"A record claims {count} headers")
    for _ in range(count):
        size, at = varint.decode(data, at, _INT)
        if size < 0:
            raise _wrong("A header key is null")
        size, at = varint.decode(data, at + size, _INT)
        at += max(size, 0)
        if at > end:
            raise _wrong("A header does not fit into its record")
    return at
