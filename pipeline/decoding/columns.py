"""Where the parts of every record stand, found for tens of thousands of records at once.

Records are walked from one length to the next, record k of all batches in one step where there are many batches, and
in a loop of Python where there are few. All that follows is one operation of numpy a field for all records together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from odradek.pipeline.decoding.bodies import ENOUGH, Bodies
from odradek.protocol.records import batch_v2, varint
from odradek.protocol.records.errors import INVALID_RECORD, RecordError

WIDE = 64  # batches from which on a step for all costs less than a loop over each
LAST_MS = (1 << 63) // 1000 - 1  # what Spark's timestamps, in µs, can hold
_FAR = 1 << 60
# What to add to the position for a length of one byte and, without its second byte, of two; no record has fewer than
# six bytes, and no batch has _FAR.
_STEP = [(byte >> 1) + 1 if not byte & 1 and byte >= 12 else _FAR for byte in range(128)]
_STEP_OF_TWO = [((byte & 127) >> 1) + 2 if not byte & 1 else _FAR for byte in range(256)]


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


def wrong(what: str) -> RecordError:
    return RecordError(INVALID_RECORD, what)


def records(bodies: Bodies, rows: int) -> Iterator[Records]:
    """The records of `bodies`, at most `rows` at once if these are of one batch, else all.

    RecordError INVALID_RECORD if any is not what it claims. Headers are only counted.
    """
    try:
        if len(bodies.heads) == 1:
            for starts, ends in _walk(bodies, rows):
                yield _parsed(bodies, np.zeros(len(starts), np.intp), starts, ends)
        else:
            starts, ends = _walk_together(bodies)
            yield _parsed(bodies, np.repeat(np.arange(len(bodies.heads)), bodies.heads["count"]), starts, ends)
    except IndexError:
        raise wrong("a record does not fit into its batch") from None


def varints(data: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The zig-zag varints at `at`, and the positions after them; IndexError past the end of `data`."""
    numbers = data.take(at).astype(np.uint64)
    at = at + 1
    longer, shift = np.flatnonzero(numbers > 127), 7
    while longer.size:
        byte = data.take(at[longer])
        if shift == 63 and (byte > 1).any():
            raise wrong("a number has more than 64 bits")
        # The bit that said "longer" is as much as one of the next byte: it is taken off there.
        numbers[longer] += (byte.astype(np.uint64) - np.uint64(1)) << np.uint64(shift)
        at[longer] += 1
        longer, shift = longer[byte > 127], shift + 7
    return (numbers >> np.uint64(1)).view(np.int64) ^ -(numbers & np.uint64(1)).view(np.int64), at


def _walk(bodies: Bodies, rows: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Where the records of the only batch start and end, `rows` at a time."""
    start, end, left = int(bodies.starts[0]), int(bodies.ends[0]), int(bodies.heads["count"][0])
    body, at = _indexable(bodies.data[start:end]), 0
    while left > 0:
        marks = _marks(body, at, min(left, rows))
        at, left = marks[-1], left - rows
        found = np.array(marks, np.int64) + start
        yield found[:-1], found[1:]
    if at != len(body):
        raise wrong("its records do not end where it does")


def _indexable(body: np.ndarray) -> bytes | memoryview:
    """`body` as what Python indexes fastest: a copy where that is cheap."""
    return body.tobytes() if len(body) <= ENOUGH else body.data


def _marks(body: bytes | memoryview, at: int, count: int) -> list[int]:
    """Where each of `count` records starts, the first at `at`, and where the last one ends."""
    marks: list[int] = []
    append, step, step_of_two = marks.append, _STEP, _STEP_OF_TWO
    for _ in range(count):
        append(at)
        byte = body[at]
        if byte < 128:
            at += step[byte]
        elif (second := body[at + 1]) < 128:
            at += (second << 6) + step_of_two[byte]
        else:
            length, at = varint.decode(body, at)
            at += length if length > 0 else _FAR
    if at > len(body):
        raise wrong("a record does not fit into its batch")
    append(at)
    return marks


def _walk_together(bodies: Bodies) -> tuple[np.ndarray, np.ndarray]:
    """Where the records of all batches start and end: in steps for all batches, the last few batches one by one."""
    counts = bodies.heads["count"].astype(np.int64)
    if (counts < 0).any():
        raise wrong("it declares fewer records than none")
    longest_first = np.argsort(-counts, kind="stable")
    slots = (np.cumsum(counts) - counts)[longest_first]  # of the next record of each batch
    at, stop, counts = bodies.starts[longest_first], bodies.ends[longest_first], counts[longest_first]
    starts, ends = np.empty((2, int(counts.sum())), np.int64)
    done, live = 0, int(np.count_nonzero(counts))
    while live >= WIDE:
        starts[slots[:live]] = at[:live]
        lengths, after = varints(bodies.data, at[:live])
        ends[slots[:live]] = at[:live] = after + lengths
        slots += 1
        done += 1
        live = int(np.searchsorted(-counts, -done))
    for index in range(live):
        slot, left, start = slots[index], int(counts[index]) - done, int(at[index])
        marks = np.array(_marks(_indexable(bodies.data[start : stop[index]]), 0, left), np.int64) + start
        starts[slot : slot + left], ends[slot : slot + left], at[index] = marks[:-1], marks[1:], marks[-1]
    if (at != stop).any():
        raise wrong("its records do not end where it does")
    return starts, ends


def _parsed(bodies: Bodies, batch: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> Records:
    """The fields of the records at `starts`, which are of the batches with the indexes `batch`.

    Whatever the sizes are, positions rise from field to field: none that leaves its record comes back to the end of
    it, so that is the only check. Past the end of `data` there is IndexError.
    """
    data = bodies.data
    _, at = varints(data, starts)
    deltas, at = varints(data, at + 1)  # behind the attributes, of which there are none
    steps, at = varints(data, at)
    key_sizes, keys, at = _field(data, at)
    value_sizes, values, at = _field(data, at)
    header_counts, headers = varints(data, at)
    left = ends - headers
    if ((header_counts < 0) | (header_counts > left >> 1) | ((header_counts == 0) != (left == 0))).any():
        raise wrong("a record does not end where it says")
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
        raise wrong("an offset is outside of its batch")
    return heads["base_offset"][batch] + steps


def _times(heads: np.ndarray, batch: np.ndarray, deltas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Timestamps and their types: with LogAppendTime all have the batch's. Sums beyond 64 bits go round, as in Java."""
    times = heads["base_timestamp"][batch] + deltas
    appended = (heads["attributes"] & batch_v2.TIMESTAMP_TYPE != 0)[batch]
    if appended.any():
        times = np.where(appended, heads["max_timestamp"][batch], times)
    return times, appended.astype(np.int32)


def micros(times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Times of ms in µs; and which of them Spark cannot show: they become the nearest that it can."""
    far = np.flatnonzero((times > LAST_MS) | (times < -LAST_MS))
    return (np.clip(times, -LAST_MS, LAST_MS) if far.size else times) * 1000, far
