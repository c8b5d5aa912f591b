"""Build Arrow arrays from byte strings scattered over buffers: copied in C, or as views of those buffers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

ALIKE = 16
"""Pieces of one size and at equal distances, on average, from which on a copy for each such run costs less."""

VIEW = np.dtype([("size", "<i4"), ("prefix", "<u4"), ("buffer", "<i4"), ("at", "<i4")])
INLINE = 12
"""Bytes up to which a view holds the bytes themselves, from "prefix" on."""

_ZERO = np.zeros(1, np.int32)
_NOTHING = np.empty(0, np.uint8)


class Run(NamedTuple):
    """`rows` strings, the first at `at`, each of the others `step` bytes further."""

    at: int
    step: int
    rows: int


class Growing(Protocol):
    """A column of byte strings that grows piece by piece until it becomes an array; then it is empty again."""

    def add(self, data: np.ndarray, at: np.ndarray, sizes: np.ndarray) -> None:
        """Add data[at : at + size] for each, null where the size is negative.

        Positions rise and the strings do not overlap. From the first to the end of the last there are less than 2 GiB.
        """

    def add_runs(self, data: np.ndarray, runs: Sequence[Run], size: int) -> None:
        """Add strings of `size` bytes, or of -1."""

    def array(self) -> pa.Array:
        """All strings."""


def total(sizes: np.ndarray) -> int:
    """The bytes of strings of these sizes; a negative one is null."""
    return int(sizes.sum() if sizes.min(initial=0) >= 0 else np.maximum(sizes, 0).sum())


class Copies:
    """`binary`, in memory from `take`, which gets a number of bytes and may return more.

    An array keeps at most twice its bytes.
    """

    def __init__(self, take: Callable[[int], np.ndarray]) -> None:
        self._take = take
        self._begin()

    def _begin(self) -> None:
        self._room, self._used = _NOTHING, 0
        self._ends: list[np.ndarray] = [_ZERO]
        self._nulls: list[np.ndarray] = []
        self._has_nulls = False
        self._alike, self._size = 0, -1  # the last strings, if they have one size: how many, and that size

    def add(self, data: np.ndarray, at: np.ndarray, sizes: np.ndarray) -> None:
        """Of `Growing`."""
        self._end_alike()
        null = sizes < 0
        lengths = np.where(null, 0, sizes)
        size = int(lengths.sum())
        self._ends.append(np.cumsum(lengths, dtype=np.int32) + np.int32(self._used))
        self._nulls.append(null)
        self._has_nulls |= bool(null.any())
        if size:
            self._copy(data, at, sizes, size)

    def add_runs(self, data: np.ndarray, runs: Sequence[Run], size: int) -> None:
        """Of `Growing`."""
        if size != self._size:
            self._end_alike()
            self._size = size
        count, at = sum(run.rows for run in runs), 0
        if size > 0:
            room = self._next(count * size).reshape(count, size)
            for start, step, rows in runs:
                room[at : at + rows] = np.ndarray((rows, size), np.uint8, data, start, (step, 1))
                at += rows
        self._alike += count

    def _end_alike(self) -> None:
        """Note where the last strings end: once for all tables of one size, as each of numpy's steps costs some µs."""
        count, size = self._alike, max(self._size, 0)
        if count:
            self._ends.append(_counted(count) * np.int32(size) + np.int32(self._used - count * size))
            self._nulls.append(np.full(count, self._size < 0))
            self._has_nulls |= self._size < 0
            self._alike = 0

    def _copy(self, data: np.ndarray, at: np.ndarray, sizes: np.ndarray, size: int) -> None:
        runs = _runs(at, sizes)
        if len(runs) * ALIKE <= len(at):
            _copy_runs(data, at, sizes, runs, self._next(size))
        elif self._used:
            self._next(size)[:] = _taken(data, at, sizes)
        else:
            self._room, self._used = _taken(data, at, sizes), size

    def _next(self, size: int) -> np.ndarray:
        """The room for the next `size` bytes."""
        if self._used + size > len(self._room):
            former, self._room = self._room, self._take(self._used + size)
            self._room[: self._used] = former[: self._used]
        self._used += size
        return self._room[self._used - size : self._used]

    def array(self) -> pa.Array:
        """Of `Growing`."""
        self._end_alike()
        bounds, null = np.concatenate(self._ends), np.concatenate(self._nulls) if self._has_nulls else _NONE
        values = self._room[: self._used]
        if 2 * self._used < len(self._room):
            values = values.copy()
        self._begin()
        buffers = [_validity(null), pa.py_buffer(bounds), pa.py_buffer(values)]
        return pa.Array.from_buffers(pa.binary(), len(bounds) - 1, buffers)


class Views:
    """`binary_view`s that keep `data` alive, whose bytes must not change any more, where a string is not inline."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._found: list[np.ndarray] = []
        self._nulls: list[np.ndarray] = []
        self._buffers: list[pa.Buffer] = []

    def add(self, data: np.ndarray, at: np.ndarray, sizes: np.ndarray) -> None:
        """Of `Growing`."""
        found, long = np.zeros(len(at), VIEW), sizes > INLINE
        if len(at) and sizes.max() >= 0:
            found["size"] = np.maximum(sizes, 0)
            places = at if long.all() else at[long]
            found["at"][long] = places - at[0]
            if places.size:
                found["prefix"][long] = np.ndarray(len(data) - 3, "<u4", data, 0, 1)[places]
                found["buffer"][long] = self._refer(data[int(at[0]) : int(at[-1] + max(sizes[-1], 0))])
            _put_inline(found, data, at, np.where(long, 0, sizes))
        self._found.append(found)
        self._nulls.append(sizes < 0)

    def add_runs(self, data: np.ndarray, runs: Sequence[Run], size: int) -> None:
        """Of `Growing`."""
        for at, step, rows in runs:
            if size <= INLINE:
                self.add(data, np.arange(at, at + rows * step, step), np.full(rows, size))
                continue
            found = np.empty(rows, VIEW)
            found["size"], found["at"] = size, np.arange(0, rows * step, step)
            found["prefix"] = np.ndarray(rows, "<u4", data, at, (step,))
            found["buffer"] = self._refer(data[at : at + (rows - 1) * step + size])
            self._found.append(found)
            self._nulls.append(np.zeros(rows, bool))

    def _refer(self, data: np.ndarray) -> int:
        """The number of the buffer with these bytes."""
        self._buffers.append(pa.py_buffer(data))
        return len(self._buffers) - 1

    def array(self) -> pa.Array:
        """Of `Growing`."""
        null = np.concatenate((_NONE, *self._nulls))
        found = np.concatenate((np.zeros(0, VIEW), *self._found))
        buffers = [_validity(null), pa.py_buffer(found), *self._buffers]
        self._begin()
        return pa.Array.from_buffers(pa.binary_view(), len(null), buffers)


def _counted(count: int) -> np.ndarray:
    """1, 2, 3, … up to `count`."""
    return _COUNTED[:count] if count <= len(_COUNTED) else np.arange(1, count + 1, dtype=np.int32)


_COUNTED = np.arange(1, 10_001, dtype=np.int32)


def binary(data: np.ndarray, at: np.ndarray, sizes: np.ndarray) -> pa.Array:
    """data[at : at + size] for each, as `Growing.add`."""
    column = Copies(lambda size: np.empty(size, np.uint8))
    column.add(data, at, sizes)
    return column.array()


def views(data: np.ndarray, at: np.ndarray, sizes: np.ndarray) -> pa.Array:
    """The same as a `binary_view` that keeps `data` alive, whose bytes must not change any more."""
    column = Views()
    column.add(data, at, sizes)
    return column.array()


def _put_inline(found: np.ndarray, data: np.ndarray, at: np.ndarray, sizes: np.ndarray) -> None:
    """The bytes of those of these sizes: the k-th of all in one step."""
    raw, short = found.view(np.uint8).reshape(-1, VIEW.itemsize), np.flatnonzero(sizes > 0)
    for place in range(INLINE):
        raw[short, 4 + place] = data[at[short] + place]
        short = short[sizes[short] > place + 1]


def _runs(at: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Where each run of pieces of one size and at equal distances starts: a piece behind a gap is alone in its run."""
    steps = np.diff(at)
    breaks = sizes[1:] != sizes[:-1]
    breaks[1:] |= steps[1:] != steps[:-1]
    return np.concatenate(([0], np.flatnonzero(breaks) + 1))


def _copy_runs(data: np.ndarray, at: np.ndarray, sizes: np.ndarray, runs: np.ndarray, room: np.ndarray) -> None:
    """Each run is a table of bytes, whose rows lie apart in `data`."""
    counts = np.diff(runs, append=len(at))
    steps = at[np.minimum(runs + 1, len(at) - 1)] - at[runs]
    columns, to = (counts, sizes[runs], at[runs], steps), 0
    for count, size, start, step in zip(*(column.tolist() for column in columns), strict=True):
        if size > 0:
            rows = np.ndarray((count, size), np.uint8, data, start, (step if count > 1 else size, 1))
            room[to : to + count * size].reshape(count, size)[:] = rows
            to += count * size


def _taken(data: np.ndarray, at: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The bytes of all. An array over all of the stretch has the gap between two strings as every second value; Arrow
    takes the others."""
    count, first = len(at), int(at[0])
    bounds = np.empty(2 * count + 1, np.int32)
    bounds[:-1:2] = at - first
    bounds[1::2] = at + np.maximum(sizes, 0) - first
    bounds[-1] = bounds[-2]
    stretch = pa.py_buffer(data[first : first + int(bounds[-1])])
    laid_out = pa.BinaryArray.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(bounds), stretch])
    taken = laid_out.take(fixed(np.arange(0, 2 * count, 2), pa.int64()))
    return np.frombuffer(taken.buffers()[2], np.uint8)[: total(sizes)]


def _validity(null: np.ndarray) -> pa.Buffer | None:
    return pa.py_buffer(np.packbits(~null, bitorder="little")) if null.any() else None


_NONE = np.zeros(0, bool)


def fixed(numbers: np.ndarray, type: pa.DataType) -> pa.Array:
    """An array of `type` over the memory of `numbers`.

    (`pyarrow.array` would do, but imports numpy's masked arrays, a twentieth of a second, for the first one.)
    """
    return pa.Array.from_buffers(type, len(numbers), [None, pa.py_buffer(np.ascontiguousarray(numbers))])
