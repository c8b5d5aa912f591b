"""Find the position of each field of every record, for tens of thousands of records at once.

protocol.records.bulk walks from one length to the next. Then each field takes one numpy operation for all records
together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from odradek.pipeline.decoding.bodies import Bodies
from odradek.pipeline.types import LAST_MS
from odradek.protocol.batch import TIMESTAMP_TYPE
from odradek.protocol.records.bulk import indexable, marks, varints, walk, wrong


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


def records(bodies: Bodies, rows: int) -> Iterator[Records]:
    """The records of `bodies`: at most `rows` at once if there is one batch, else all.

    RecordError INVALID_RECORD if any record is malformed. Headers are only counted.
    """
    try:
        if len(bodies.heads) == 1:
            for starts, ends in _walk(bodies, rows):
                yield _parsed(bodies, np.zeros(len(starts), np.intp), starts, ends)
        else:
            starts, ends = walk(bodies.data, bodies.starts, bodies.ends, bodies.heads["num_records"])
            yield _parsed(bodies, np.repeat(np.arange(len(bodies.heads)), bodies.heads["num_records"]), starts, ends)
    except IndexError:
        raise wrong("a record does not fit into its batch") from None


def _walk(bodies: Bodies, rows: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Where the records of the only batch start and end, `rows` at a time."""
    start, end, left = int(bodies.starts[0]), int(bodies.ends[0]), int(bodies.heads["num_records"][0])
    body, at = indexable(bodies.data[start:end]), 0
    while left > 0:
        marked = marks(body, at, min(left, rows))
        at, left = marked[-1], left - rows
        found = np.array(marked, np.int64) + start
        yield found[:-1], found[1:]
    if at != len(body):
        raise wrong("its records do not end at its end")


def _parsed(bodies: Bodies, batch: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Records:
    """The fields of the records at `starts`; `batch` has the index of each record's batch.

    Whatever the sizes are, positions rise from field to field: a field that leaves its record cannot return to the
    record's end, so that is the only check. IndexError past the end of `data`.
    """
    data = bodies.data
    _, at = varints(data, starts)
    deltas, at = varints(data, at + 1)  # behind the attributes, a byte without meaning
    steps, at = varints(data, at)
    key_sizes, keys, at = _field(data, at)
    value_sizes, values, at = _field(data, at)
    header_counts, headers = varints(data, at)
    left = ends - headers
    if ((header_counts < 0) | (header_counts > left >> 1) | ((header_counts == 0) != (left == 0))).any():
        raise wrong("a record does not have its declared length")
    offsets = _offsets(bodies.heads, batch, steps)
    times, types = _times(bodies.heads, batch, deltas)
    fields = (keys, key_sizes, values, value_sizes, headers, header_counts)
    return Records(data, starts, ends, offsets, times, types, *fields)


def _field(data: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sizes and positions of the byte strings at `at`, and the positions after them."""
    sizes, at = varints(data, at)
    return sizes, at, at + np.maximum(sizes, 0)


def _offsets(heads: np.ndarray, batch: np.ndarray, steps: np.ndarray) -> np.ndarray:
    if ((steps < 0) | (steps > heads["last_offset_delta"][batch])).any():
        raise wrong("an offset is outside its batch")
    offsets: np.ndarray = heads["base_offset"][batch] + steps
    return offsets


def _times(heads: np.ndarray, batch: np.ndarray, deltas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Timestamps and their types: LogAppendTime uses the batch's time. Sums beyond 64 bits wrap around, as in Java."""
    times = heads["base_timestamp"][batch] + deltas
    appended = (heads["attributes"] & TIMESTAMP_TYPE != 0)[batch]
    if appended.any():
        times = np.where(appended, heads["max_timestamp"][batch], times)
    return times, appended.astype(np.int32)


def micros(times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Convert ms to µs; also returns which times Spark cannot show: they become the nearest that it can."""
    far = np.flatnonzero((times > LAST_MS) | (times < -LAST_MS))
    return (np.clip(times, -LAST_MS, LAST_MS) if far.size else times) * 1000, far
