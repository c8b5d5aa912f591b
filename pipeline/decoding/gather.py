"""Build Arrow arrays from byte strings scattered over one buffer: copied in C, or as views of that buffer."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

ALIKE = 16
"""Pieces of one size and at equal distances, on average, from which on a copy for each such run costs less."""


def binary(data: np.ndarray, at: np.ndarray, sizes: np.ndarray) -> pa.Array:
    """data[at : at + size] for each, null where the size is negative; positions rise and the pieces do not overlap.

    The stretch from the first piece to the end of the last must be below 2 GiB.
    """
    if len(at) == 0 or sizes.max() < 0:
        return pa.nulls(len(at), pa.binary())
    runs = _runs(at, sizes)
    return _copied(data, at, sizes, runs) if len(runs) * ALIKE <= len(at) else _taken(data, at, sizes)


_VIEW = np.dtype([("size", "<i4"), ("prefix", "<u4"), ("buffer", "<i4"), ("at", "<i4")])
_INLINE = 12  # bytes up to which a view holds the bytes themselves, from "prefix" on


def views(data: np.ndarray, at: np.ndarray, sizes: np.ndarray) -> pa.Array:
    """The same as a `binary_view` that keeps `data` alive, whose bytes must not change any more.

    The stretch from the first piece to the end of the last must be below 2 GiB.
    """
    if len(at) == 0 or sizes.max() < 0:
        return pa.nulls(len(at), pa.binary_view())
    first, end = int(at[0]), int(at[-1] + max(sizes[-1], 0))
    found, long = np.zeros(len(at), _VIEW), sizes > _INLINE
    found["size"] = np.maximum(sizes, 0)
    places = at if long.all() else at[long]
    found["at"][long] = places - first
    if places.size:
        found["prefix"][long] = np.ndarray(len(data) - 3, "<u4", data, 0, 1)[places]
    _put_inline(found, data, at, np.where(long, 0, sizes))
    buffers = [_validity(sizes < 0), pa.py_buffer(found), pa.py_buffer(data[first:end])]
    return pa.Array.from_buffers(pa.binary_view(), len(at), buffers)


def _put_inline(found: np.ndarray, data: np.ndarray, at: np.ndarray, sizes: np.ndarray) -> None:
    """The bytes of those of these sizes: the k-th of all in one step."""
    raw, short = found.view(np.uint8).reshape(-1, _VIEW.itemsize), np.flatnonzero(sizes > 0)
    for place in range(_INLINE):
        raw[short, 4 + place] = data[at[short] + place]
        short = short[sizes[short] > place + 1]


def _runs(at: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Where each run of pieces of one size and at equal distances starts: a piece behind a gap is alone in its run."""
    steps = np.diff(at)
    breaks = sizes[1:] != sizes[:-1]
    breaks[1:] |= steps[1:] != steps[:-1]
    return np.concatenate(([0], np.flatnonzero(breaks) + 1))


def _copied(data: np.ndarray, at: np.ndarray, sizes: np.ndarray, runs: np.ndarray) -> pa.Array:
    """Each run is a table of bytes, whose rows lie apart in `data`."""
    null, bounds = sizes < 0, np.zeros(len(at) + 1, np.int32)
    np.cumsum(np.maximum(sizes, 0), dtype=np.int32, out=bounds[1:])
    values = pa.allocate_buffer(int(bounds[-1]))
    room = np.frombuffer(values, np.uint8)
    counts = np.diff(runs, append=len(at))
    steps = at[np.minimum(runs + 1, len(at) - 1)] - at[runs]
    columns = (counts, sizes[runs], at[runs], steps, bounds[runs])
    for count, size, start, step, to in zip(*(column.tolist() for column in columns), strict=True):
        if size > 0:
            rows = np.ndarray((count, size), np.uint8, data, start, (step if count > 1 else size, 1))
            room[to : to + count * size].reshape(count, size)[:] = rows
    return pa.Array.from_buffers(pa.binary(), len(at), [_validity(null), pa.py_buffer(bounds), values])


def _taken(data: np.ndarray, at: np.ndarray, sizes: np.ndarray) -> pa.Array:
    """Lay out an array over all of the stretch, in which every second value is the gap between two pieces; Arrow takes
    the others."""
    count, first = len(at), int(at[0])
    bounds = np.empty(2 * count + 1, np.int32)
    bounds[:-1:2] = at - first
    bounds[1::2] = at + np.maximum(sizes, 0) - first
    bounds[-1] = bounds[-2]
    stretch = pa.py_buffer(data[first : first + int(bounds[-1])])
    laid_out = pa.BinaryArray.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(bounds), stretch])
    return laid_out.take(fixed(np.arange(0, 2 * count, 2), pa.int64(), sizes < 0))


def _validity(null: np.ndarray) -> pa.Buffer | None:
    return pa.py_buffer(np.packbits(~null, bitorder="little")) if null.any() else None


_NONE = np.zeros(0, bool)


def fixed(numbers: np.ndarray, type: pa.DataType, null: np.ndarray = _NONE) -> pa.Array:
    """An array of `type` over the memory of `numbers`, null where `null` is.

    (`pyarrow.array` would do, but imports numpy's masked arrays, a twentieth of a second, for the first one.)
    """
    return pa.Array.from_buffers(type, len(numbers), [_validity(null), pa.py_buffer(np.ascontiguousarray(numbers))])
