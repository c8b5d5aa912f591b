"""Large batches whose records have one shape: a few tables of bytes, without a position for each record.

Offset deltas below 64 have one byte, those below 8192 two, and times likewise. So the records of a batch with keys of
one size, and values too, have one size up to the 64th, and another one from there on. What a record looks like is known
from the batch before, mostly: then all records are compared with that at once. Whatever differs is left to `columns`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from odradek.pipeline.decoding.alike import Shape, Table, rise, shape_at
from odradek.pipeline.decoding.bodies import ENOUGH
from odradek.pipeline.decoding.gather import Run
from odradek.pipeline.decoding.selection import LargeBatches
from odradek.pipeline.types import Range
from odradek.protocol.batch import COMPRESSION, HEADER_SIZE, TIMESTAMP_TYPE
from odradek.protocol.records import varint
from odradek.protocol.records.batch_v2 import Header
from odradek.protocol.records.bulk import LEAST_RECORD, ONE_BYTE, WORTH, of_two_bytes
from odradek.protocol.records.errors import RecordError

_WIDER = (64, 8192)
"""The first offset deltas of two and of three bytes."""

_FRONT = 64
"""The first bytes of a record, in which its short fields mostly are."""

_Key = tuple[bytes, int]
"""The first bytes of a record, in which its length mostly is, and the width of its offset delta."""

_KEY_BYTES, _MOST_KNOWN, _MOST_PARTS = 2, 64, 8
_SHORT, _CONTINUED = bytes(range(128)), bytes(range(128, 256))
"""The bytes of varints that are the last one, and that are not."""


class Part(NamedTuple):
    """`rows` records of `size` bytes, one after the other, the first at `start`."""

    start: int
    rows: int
    size: int
    shape: Shape


class RecordTable(NamedTuple):
    """The records of a batch. Keys have all one size, and values too; -1 is null."""

    data: np.ndarray
    parts: list[Part]
    offsets: np.ndarray
    times: np.ndarray  # ms
    time_type: int

    def size_of(self, name: str) -> int:
        """The bytes of each `key` or `value`, or -1."""
        shape = self.parts[0].shape
        return shape.key_bytes if name == "key" else shape.value_bytes

    def runs(self, name: str) -> list[Run]:
        """Where the keys or the values are."""
        return [
            Run(part.start + (part.shape.key if name == "key" else part.shape.value), part.size, part.rows)
            for part in self.parts
        ]

    @property
    def time_types(self) -> np.ndarray:
        """That of each record."""
        return np.full(len(self.offsets), self.time_type, np.int32)


class _Known(NamedTuple):
    """A shape, the size of its records, the bytes at its `fixed` places, and how many bytes are looked at in a row."""

    shape: Shape
    size: int
    fixed: list[tuple[int, bytes]]
    front: int


class Tables:
    """Finds the tables of batches of one range; remembers what records looked like."""

    def __init__(self, range: Range, rows: int) -> None:
        """`rows` is the most in one table."""
        self._range, self._rows = range, rows
        self._known: dict[_Key, _Known] = {}

    def of(self, batches: LargeBatches, index: int) -> RecordTable | None:
        """The records of a batch that are within the range; None where they are no table."""
        head, start, end = batches.heads[index], batches.starts[index], batches.ends[index]
        if not self._may_be(head, end - start):
            return None
        try:
            return self._table(np.frombuffer(batches.data, np.uint8)[:end], head, start + HEADER_SIZE)
        except (IndexError, RecordError):
            return None

    def _may_be(self, head: Header, size: int) -> bool:
        fits = 0 < head.num_records <= min(self._rows, head.last_offset_delta + 1) and size <= ENOUGH
        return fits and not head.attributes & COMPRESSION

    def _table(self, data: np.ndarray, head: Header, at: int) -> RecordTable | None:
        """The records from `at` to the end of `data`."""
        parts, deltas, done = list[Part](), list[np.ndarray](), 0
        while done < head.num_records:
            width = bisect_right(_WIDER, done)
            if width == len(_WIDER) or len(parts) == _MOST_PARTS:
                return None
            part = self._part(data, at, min(head.num_records, _WIDER[width]) - done, done, width, deltas)
            if part is None:
                return None
            parts.append(part)
            at, done = at + part.rows * part.size, done + part.rows
        if at != len(data) or not _have_equal_sizes(parts):
            return None
        return self._within(RecordTable(data, parts, *_numbers(head, deltas)), head)

    def _within(self, table: RecordTable, head: Header) -> RecordTable:
        """Only the records of the range."""
        first = max(self._range.start - head.base_offset, 0)
        behind = min(self._range.end - head.base_offset, head.num_records)
        if behind - first == head.num_records:
            return table
        kept = slice(first, max(first, behind))
        parts = list(_kept(table.parts, kept.start, kept.stop))
        return table._replace(parts=parts, offsets=table.offsets[kept], times=table.times[kept])

    def _part(
        self, data: np.ndarray, at: int, count: int, step: int, width: int, deltas: list[np.ndarray]
    ) -> Part | None:
        """At most the next `count` records, the first with the offset delta `step`; their times go to `deltas`."""
        key = data[at : at + _KEY_BYTES].tobytes(), width
        if (known := self._known.get(key)) and (found := _filled(data, at, count, step, known, deltas)):
            return found
        if (known := _look(data, at)) is None:
            return None
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[key] = known
        return _filled(data, at, count, step, known, deltas)


def _kept(parts: list[Part], first: int, behind: int) -> Iterator[Part]:
    """The records from the one with index `first` on, up to the one with index `behind`."""
    done = 0
    for part in parts:
        begin, end = max(first - done, 0), min(behind - done, part.rows)
        if begin < end:
            yield part._replace(start=part.start + begin * part.size, rows=end - begin)
        done += part.rows


def _have_equal_sizes(parts: list[Part]) -> bool:
    return len({(part.shape.key_bytes, part.shape.value_bytes) for part in parts}) == 1


def _numbers(head: Header, deltas: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray, int]:
    """Offsets, times, and the type of times."""
    count = head.num_records
    offsets = np.arange(head.base_offset, head.base_offset + count)
    if head.attributes & TIMESTAMP_TYPE:
        return offsets, np.full(count, head.max_timestamp), 1
    return offsets, np.concatenate(deltas) + head.base_timestamp, 0


def _look(data: np.ndarray, at: int) -> _Known | None:
    """The shape of the record at `at`; IndexError, RecordError, or None where it has none that is known here."""
    length, behind = varint.decode(data.data, at)
    size = behind - at + length
    shape = shape_at(data.data, at, size) if LEAST_RECORD <= size <= len(data) - at else None
    if shape is None or max(shape.delta - shape.timestamp, shape.key_size - shape.delta) > 2:
        return None
    places = [*range(behind - at), *shape.fixed]
    front = 1 + max(place for place in (*places[:-1], shape.key_size - 1) if place < _FRONT)
    return _Known(shape, size, [(place, data[at + place].tobytes()) for place in places], front)


def _filled(data: np.ndarray, at: int, count: int, step: int, known: _Known, deltas: list[np.ndarray]) -> Part | None:
    """The records from `at` on that have this shape, with offset deltas that rise by 1 from `step` on; None if few.

    The first bytes of all records are copied at once: other threads may run meanwhile, which is costly when it comes
    to a byte of each.
    """
    shape, size, fixed, width = known
    most = min(count, (len(data) - at) // size)
    front, run = np.ndarray(most, f"V{width}", data, at, (size,)).tobytes(), most
    table = Table(data, at, size, most)
    for place, byte in fixed:
        column = front[place::width] if place < width else table.column(place)
        if column != byte * most:
            run = min(run, most - len(column.lstrip(byte)))
    low, *high = (front[place::width][:run] for place in range(shape.timestamp, shape.delta))
    run = min(run, _leading(high[0] if high else low, _SHORT), _leading(low, _CONTINUED) if high else run)
    steps = [front[place::width][:run] for place in range(shape.delta, shape.key_size)]
    if run < min(count, WORTH) or not rise(steps, step):
        return None
    deltas.append(_varints(low[:run], *high))
    return Part(at, run, size, shape)


def _leading(column: bytes, allowed: bytes) -> int:
    """How many of the first bytes are among those that are allowed."""
    return len(column) - len(column.lstrip(allowed))


def _varints(low: bytes, high: bytes | None = None) -> np.ndarray:
    """The varints of one or two bytes in these columns."""
    first = np.frombuffer(low, np.uint8)
    return ONE_BYTE.take(first) if high is None else of_two_bytes(first, np.frombuffer(high, np.uint8, len(low)))
