"""Find the position of each field of every record, for tens of thousands of records at once.

protocol.records.bulk walks from one length to the next. Where it finds many records of one size, `alike` compares their
fields in place. For all others each field takes one numpy operation.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from odradek.pipeline.decoding import alike
from odradek.pipeline.decoding.alike import Records
from odradek.pipeline.decoding.bodies import Bodies
from odradek.pipeline.types import LAST_MS
from odradek.protocol.batch import TIMESTAMP_TYPE
from odradek.protocol.records.bulk import WIDE, checked, stretches, varints, walk, wrong


def records(bodies: Bodies, rows: int) -> Iterator[Records]:
    """The records of `bodies`: at most `rows` at once if there is one batch, else all.

    RecordError INVALID_RECORD if any record is malformed. Headers are only counted.
    """
    try:
        counts = checked(bodies.heads["num_records"], bodies.ends - bodies.starts)
        if len(counts) == 1:
            yield from _in_parts(bodies, int(counts[0]), rows)
        elif len(counts) < WIDE:
            yield _together(bodies, counts)
        else:
            yield _parsed(bodies, counts, *walk(bodies.data, bodies.starts, bodies.ends, counts))
    except IndexError:
        raise wrong("a record does not fit into its batch") from None


def _in_parts(bodies: Bodies, left: int, rows: int) -> Iterator[Records]:
    """The records of the only batch, `rows` at a time."""
    at = int(bodies.starts[0])
    while left > 0:
        found = _Found(bodies, min(left, rows))
        at = found.add(0, at, min(left, rows))
        left -= rows
        yield found.all()
    if at != bodies.ends[0]:
        raise wrong("its records do not end at its end")


def _together(bodies: Bodies, counts: np.ndarray) -> Records:
    """The records of a few batches."""
    found = _Found(bodies, int(counts.sum()))
    for index, (start, end, count) in enumerate(zip(bodies.starts, bodies.ends, counts.tolist(), strict=True)):
        if found.add(index, int(start), count) != end:
            raise wrong("its records do not end at its end")
    return found.all()


class _Found:
    """`count` records of some batches, in their order, while they are found."""

    def __init__(self, bodies: Bodies, count: int) -> None:
        self._bodies = bodies
        self._heads = alike.heads(bodies.heads)
        self._records = alike.room(bodies.data, count)
        self._done = 0
        self._others: list[np.ndarray] = []  # indexes of records whose fields are not known yet
        self._counts = np.zeros(len(bodies.heads), np.int64)  # how many they are of each batch

    def add(self, index: int, at: int, count: int) -> int:
        """The next `count` records of a batch, the first at `at`; returns the end of the last one."""
        records, first, end = self._records, self._done, at
        last = first + count - 1
        for starts, behind, size in stretches(self._bodies.data[: self._bodies.ends[index]], at, count):
            part = slice(self._done, self._done + len(starts))
            records.starts[part] = starts
            if not size or not alike.fill(records.only(part), size, self._heads[index]):
                self._others.append(np.arange(part.start, part.stop))
                self._counts[index] += len(starts)
            self._done, end = part.stop, behind
        if count:
            records.ends[first:last] = records.starts[first + 1 : last + 1]
            records.ends[last] = end
        return end

    def all(self) -> Records:
        """All of them."""
        records = self._records
        if self._others:
            places = np.concatenate(self._others)
            others = _parsed(self._bodies, self._counts, records.starts[places], records.ends[places])
            if len(places) == len(records.starts):
                return others
            for column, part in zip(records[3:], others[3:], strict=True):
                column[places] = part
        return records


def _parsed(bodies: Bodies, counts: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Records:
    """The fields of the records at `starts`, of which batch i has counts[i].

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
    if (left.any() or header_counts.any()) and (
        (header_counts < 0) | (header_counts > left >> 1) | ((header_counts == 0) != (left == 0))
    ).any():
        raise wrong("a record does not have its declared length")
    offsets = _offsets(bodies.heads, counts, steps)
    times, types = _times(bodies.heads, counts, deltas)
    fields = (keys, key_sizes, values, value_sizes, headers, header_counts)
    return Records(data, starts, ends, offsets, times, types, *fields)


def _field(data: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sizes and positions of the byte strings at `at`, and the positions after them."""
    sizes, at = varints(data, at)
    return sizes, at, at + np.maximum(sizes, 0)


def _offsets(heads: np.ndarray, counts: np.ndarray, steps: np.ndarray) -> np.ndarray:
    if ((steps < 0) | (steps > np.repeat(heads["last_offset_delta"], counts))).any():
        raise wrong("an offset is outside its batch")
    offsets: np.ndarray = np.repeat(heads["base_offset"], counts) + steps
    return offsets


def _times(heads: np.ndarray, counts: np.ndarray, deltas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Timestamps and their types: LogAppendTime uses the batch's time. Sums beyond 64 bits wrap around, as in Java."""
    times = np.repeat(heads["base_timestamp"], counts) + deltas
    by_broker = heads["attributes"] & TIMESTAMP_TYPE != 0
    if not by_broker.any():
        return times, np.zeros(len(times), np.int32)
    appended = np.repeat(by_broker, counts)
    return np.where(appended, np.repeat(heads["max_timestamp"], counts), times), appended.astype(np.int32)


def micros(times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Convert ms to µs; also returns which times Spark cannot show: they become the nearest that it can."""
    if not times.size or (times.max() <= LAST_MS and times.min() >= -LAST_MS):
        return times * 1000, np.empty(0, np.intp)
    far = np.flatnonzero((times > LAST_MS) | (times < -LAST_MS))
    return np.clip(times, -LAST_MS, LAST_MS) * 1000, far
