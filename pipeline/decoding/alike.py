"""Records of one shape, one after the other: their fields are the columns of a table of bytes.

Producers mostly send records of one size, with keys of one size, and without headers. Where the bytes of all lengths
are equal, and those of deltas as many, nothing else of a record need be decoded. Whatever differs from that, well
formed or not, is left to `columns`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from odradek.protocol.batch import TIMESTAMP_TYPE
from odradek.protocol.records import varint
from odradek.protocol.records.bulk import ONE_BYTE, of_two_bytes, varints

_CONTINUED = bytes(range(128, 256))  # bytes of a varint that are not its last
_LOW = (
    bytes(delta << 1 for delta in range(64)),
    bytes(delta << 1 & 127 | 128 for delta in range(8192)),
)
_HIGH = bytes(delta >> 6 for delta in range(8192))
"""The bytes of offset deltas: of those below 64 the only one, of those below 8192 the first and the second one."""


class Records(NamedTuple):
    """Records in their order. Positions are into `data`; a size of -1 is null."""

    data: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    offsets: np.ndarray
    times: np.ndarray  # ms
    time_types: np.ndarray
    keys: np.ndarray
    key_sizes: np.ndarray
    values: np.ndarray
    value_sizes: np.ndarray
    headers: np.ndarray
    header_counts: np.ndarray

    def only(self, chosen: np.ndarray | slice) -> Records:
        return Records(self.data, *(column[chosen] for column in self[1:]))


def room(data: np.ndarray, count: int) -> Records:
    """Columns for `count` records, of which none is known yet."""
    types = (np.int32 if name == "time_types" else np.int64 for name in Records._fields[1:])
    return Records(data, *(np.empty(count, type) for type in types))


class Head(NamedTuple):
    """What the records' fields need of their batch's header; `time` is that of all records, or None."""

    base_offset: int
    last_delta: int
    base_time: int
    time: int | None


def heads(found: np.ndarray) -> list[Head]:
    """Of headers of type HEAD."""
    names = ("base_offset", "last_offset_delta", "base_timestamp", "max_timestamp", "attributes")
    return [
        Head(base, last, base_time, latest if attributes & TIMESTAMP_TYPE else None)
        for base, last, base_time, latest, attributes in zip(*(found[name].tolist() for name in names), strict=True)
    ]


class Shape(NamedTuple):
    """Where a record's fields are, counted from its start; at `fixed` all records of the shape have the same bytes."""

    timestamp: int
    delta: int
    step: int  # the first offset delta
    key_size: int
    key: int
    key_bytes: int
    value: int
    value_bytes: int
    fixed: list[int]


def shape_at(body: memoryview, at: int, size: int) -> Shape | None:
    """Of the record at `at`; None where it has headers, or is malformed. IndexError, RecordError likewise."""
    timestamp = varint.decode(body, at)[1] + 1
    delta = varint.decode(body, timestamp)[1]
    step, key_size = varint.decode(body, delta)
    key_bytes, key = varint.decode(body, key_size)
    value_size = key + max(key_bytes, 0)
    value_bytes, value = varint.decode(body, value_size)
    last = value + max(value_bytes, 0)
    if last != at + size - 1 or body[last] or key_bytes < -1 or value_bytes < -1:
        return None
    fixed = [place - at for place in (*range(key_size, key), *range(value_size, value), last)]
    return Shape(timestamp - at, delta - at, step, key_size - at, key - at, key_bytes, value - at, value_bytes, fixed)


def fill(records: Records, size: int, head: Head) -> bool:
    """Fill in all columns but `ends` for records that have `size` bytes each, with equal bytes for the length, and lie
    one after the other. False, with columns that have no meaning, when they have not all one shape.
    """
    start = int(records.starts[0])
    shape = shape_at(records.data.data, start, size)
    if shape is None:
        return False
    table = Table(records.data, start, size, len(records.starts))
    if not table.are_equal(shape.fixed) or not table.offsets(shape, head, records.offsets):
        return False
    if not table.numbers(shape.timestamp, shape.delta, head.base_time, records.times):
        return False  # also where the batch has the time: one of another width moves what follows it
    if head.time is not None:
        records.times[:] = head.time
    records.time_types[:] = head.time is not None
    _put(records, shape, size)
    return True


def _put(records: Records, shape: Shape, size: int) -> None:
    """The fields that are at the same place in each record."""
    np.add(records.starts, shape.key, out=records.keys)
    np.add(records.starts, shape.value, out=records.values)
    np.add(records.starts, size, out=records.headers)
    records.key_sizes[:] = max(shape.key_bytes, -1)
    records.value_sizes[:] = max(shape.value_bytes, -1)
    records.header_counts[:] = 0


class Table(NamedTuple):
    """`rows` rows of `size` bytes from `start` on."""

    data: np.ndarray
    start: int
    size: int
    rows: int

    def column(self, place: int) -> bytes:
        at = self.start + place
        return self.data[at : at + (self.rows - 1) * self.size + 1 : self.size].tobytes()

    def are_equal(self, places: list[int]) -> bool:
        """Whether all rows have the bytes of the first one at `places`."""
        return all(column == column[:1] * self.rows for column in map(self.column, places))

    def numbers(self, begin: int, end: int, base: int, out: np.ndarray) -> bool:
        """Put `base` plus the varints in these columns into `out`; False when one has another number of bytes."""
        first, last = self.column(begin), self.column(end - 1)
        if end - begin > 2:
            found, behind = varints(self.data, np.arange(self.rows) * self.size + (self.start + begin))
            if (behind != np.arange(self.rows) * self.size + (self.start + end)).any():
                return False
        elif not last.isascii() or (end - begin == 2 and first.translate(None, _CONTINUED)):
            return False
        elif end - begin == 1:
            found = ONE_BYTE.take(np.frombuffer(last, np.uint8))
        else:
            found = of_two_bytes(np.frombuffer(first, np.uint8), np.frombuffer(last, np.uint8))
        np.add(found, base, out=out)
        return True

    def offsets(self, shape: Shape, head: Head, out: np.ndarray) -> bool:
        """Put the offsets into `out`; False when one is outside of its batch, or has another number of bytes.

        Offset deltas mostly rise by 1, which shows in their bytes.
        """
        begin, end = shape.delta, shape.key_size
        if end - begin <= 2 and rise([self.column(place) for place in range(begin, end)], shape.step):
            if shape.step + self.rows - 1 > head.last_delta:
                return False
            first = head.base_offset + shape.step
            out[:] = np.arange(first, first + self.rows)
            return True
        return self.numbers(begin, end, head.base_offset, out) and bool(
            out.min() >= head.base_offset and out.max() <= head.base_offset + head.last_delta
        )


def rise(columns: list[bytes], step: int) -> bool:
    """Whether the varints in these one or two columns are `step`, `step` + 1, …"""
    upto = step + len(columns[0])
    if step < 0 or upto > (64, 8192)[len(columns) - 1]:
        return False
    if len(columns) == 1:
        return columns[0] == _LOW[0][step:upto]
    return columns[0] == _LOW[1][step:upto] and columns[1] == _HIGH[step:upto]
