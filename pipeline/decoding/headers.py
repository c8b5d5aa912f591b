"""The headers of records as a column of Spark: array<struct<key: string, value: binary>>, null where there are none."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from odradek.pipeline.decoding.columns import Records, varints, wrong
from odradek.pipeline.decoding.gather import binary

TYPE = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
MOST = 100_000
"""Headers of one record that are read. They are found one after the other, and a few kB of zstd can hold millions."""


class Found(NamedTuple):
    """All headers of some records, in their order."""

    keys: np.ndarray
    key_sizes: np.ndarray
    values: np.ndarray
    value_sizes: np.ndarray


def column(records: Records) -> pa.Array:
    """The headers of `records`; RecordError INVALID_RECORD if they are not what they claim."""
    if not records.header_counts.any():
        return pa.nulls(len(records.starts), TYPE)
    try:
        found = _found(records)
    except IndexError:
        raise wrong("a header does not fit into its record") from None
    keys = _strings(binary(records.data, found.keys, found.key_sizes))
    values = binary(records.data, found.values, found.value_sizes)
    bounds = np.concatenate(([0], np.cumsum(records.header_counts))).astype(np.int32)
    pairs = pa.StructArray.from_arrays([keys, values], fields=list(TYPE.value_type))
    return pa.ListArray.from_arrays(pa.array(bounds), pairs, type=TYPE, mask=pa.array(records.header_counts == 0))


def _found(records: Records) -> Found:
    """Header k of all records in one step."""
    counts, data = records.header_counts, records.data
    if counts.max() > MOST:
        raise wrong(f"a record has {counts.max()} headers, of which at most {MOST} are read")
    found = Found(*np.empty((4, int(counts.sum())), np.int64))
    at, slots, live, done = records.headers.copy(), np.cumsum(counts) - counts, np.flatnonzero(counts), 0
    while live.size:
        key_sizes, keys = varints(data, at[live])
        if (key_sizes < 0).any():
            raise wrong("the name of a header is null")
        value_sizes, values = varints(data, keys + key_sizes)
        for whole, part in zip(found, (keys, key_sizes, values, value_sizes), strict=True):
            whole[slots[live] + done] = part
        at[live] = values + np.maximum(value_sizes, 0)
        done += 1
        live = live[counts[live] > done]
    if (at != records.ends).any():
        raise wrong("a record does not end where it says")
    return found


def _strings(keys: pa.Array) -> pa.Array:
    """Keys as text; what is no UTF-8 gets replacement characters, as in Java."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode(errors="replace") for key in keys.to_pylist()], pa.string())
