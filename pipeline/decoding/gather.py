"""Build Arrow arrays from byte strings scattered over one buffer, copied in C."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def binary(data: np.ndarray, at: np.ndarray, sizes: np.ndarray) -> pa.Array:
    """data[at : at + size] for each, null where the size is negative; positions rise and the pieces do not overlap.

    The stretch from the first piece to the end of the last must be below 2 GiB. The function lays out an array over all
    of it, in which every second value is the gap between two pieces; Arrow then takes the others.
    """
    count = len(at)
    if count == 0 or sizes.max() < 0:
        return pa.nulls(count, pa.binary())
    first = int(at[0])
    bounds = np.empty(2 * count + 1, np.int32)
    bounds[:-1:2] = at - first
    bounds[1::2] = at + np.maximum(sizes, 0) - first
    bounds[-1] = bounds[-2]
    stretch = pa.py_buffer(data[first : first + int(bounds[-1])])
    laid_out = pa.BinaryArray.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(bounds), stretch])
    every_second = np.arange(0, 2 * count, 2)
    null = sizes < 0
    return laid_out.take(pa.array(every_second, mask=null) if null.any() else pa.array(every_second))


def fixed(numbers: np.ndarray, type: pa.DataType) -> pa.Array:
    """An array of `type` over the memory of `numbers`."""
    return pa.Array.from_buffers(type, len(numbers), [None, pa.py_buffer(np.ascontiguousarray(numbers))])
