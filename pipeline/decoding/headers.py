"""Record headers as a column of Spark: array<struct<key: string, value: binary>>, null for records without any."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from odradek.pipeline.decoding.alike import Records
from odradek.pipeline.decoding.gather import binary
from odradek.protocol.records import varint
from odradek.protocol.records.bulk import varints, wrong

TYPE = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
MANY = 1000
"""Headers of a record above which a loop over them is cheaper than a numpy step for each: 0.5 µs, against some 30."""
MOST = 10_000_000
"""The most headers of one record that are read: this number takes 6 s and 0.8 GB, and fits into 2 kB of zstd."""


class RecordHeaders(NamedTuple):
    """All headers of some records, in order."""

    keys: np.ndarray
    key_sizes: np.ndarray
    values: np.ndarray
    value_sizes: np.ndarray


def column(records: Records) -> pa.Array:
    """The headers of `records`; RecordError INVALID_RECORD if they are malformed."""
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


def _found(records: Records) -> RecordHeaders:
    """Parse header k of all records in one step, except for records with many headers."""
    counts, data = records.header_counts, records.data
    if counts.max() > MOST:
        raise wrong(f"a record has {counts.max()} headers; the limit is {MOST}")
    found = RecordHeaders(*np.empty((4, int(counts.sum())), np.int64))
    at, slots, done = records.headers.copy(), np.cumsum(counts) - counts, 0
    for one in np.flatnonzero(counts > MANY).tolist():
        start, end, slot, count = at[one], records.ends[one], slots[one], int(counts[one])
        _put(found, slice(slot, slot + count), _walked(data[start:end].tobytes(), count, start))
        at[one] = end
    live = np.flatnonzero((counts > 0) & (counts <= MANY))
    while live.size:
        key_sizes, keys = varints(data, at[live])
        if (key_sizes < 0).any():
            raise wrong("a header key is null")
        value_sizes, values = varints(data, keys + key_sizes)
        _put(found, slots[live] + done, (keys, key_sizes, values, value_sizes))
        at[live] = values + np.maximum(value_sizes, 0)
        done += 1
        live = live[counts[live] > done]
    if (at != records.ends).any():
        raise wrong("a record does not have its declared length")
    return found


def _walked(body: bytes, count: int, start: int) -> Iterable[np.ndarray]:
    """Parse `count` headers that must fill `body`, whose first byte is at `start`."""
    decode, marks, at = varint.decode, array("q"), 0
    for _ in range(count):
        key_size, key = decode(body, at)
        if key_size < 0:
            raise wrong("a header key is null")
        value_size, value = decode(body, key + key_size)
        at = value + max(value_size, 0)
        if at > len(body):
            raise IndexError(at)
        marks.extend((key, key_size, value, max(value_size, -1)))
    if at != len(body):
        raise wrong("a record does not have its declared length")
    found = np.frombuffer(marks, np.int64).reshape(-1, 4)
    found[:, ::2] += start
    return found.T


def _put(found: RecordHeaders, places: slice | np.ndarray, parts: Iterable[np.ndarray]) -> None:
    for whole, part in zip(found, parts, strict=True):
        whole[places] = part


def _strings(keys: pa.Array) -> pa.Array:
    """Keys as text; invalid UTF-8 gets replacement characters, as in Java."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode(errors="replace") for key in keys.to_pylist()], pa.string())
