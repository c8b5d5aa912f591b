"""Batches of magic 2 in bulk: headers as one array, and records walked in lockstep, with numpy.

With many batches, record k of all batches is one step; the last few are walked one by one, in a Python loop. numpy is
heavy: only processes that read whole logs import this.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from odradek.protocol.batch import FIELDS, HEADER
from odradek.protocol.errors import INVALID_RECORD
from odradek.protocol.records import varint
from odradek.protocol.records.errors import RecordError

# HEADER as an array type, in file byte order and in native byte order.
WIRE = np.dtype([(name, f">{form}") for name, form in zip(FIELDS, HEADER.format[1:], strict=True)])
HEAD = WIRE.newbyteorder("=")
WIDE = 64  # from this number of batches on a step for all costs less than a loop over each
LEAST_RECORD = 7  # bytes of a record with its length
WORTH = 32  # records of one size: fewer cost less one by one
COPIED = 256  # bytes of a record up to which copying it costs less than to index it in place
_FAR = 1 << 60
_FIRST_MANY = 64  # in most batches the 64 first offset deltas have one byte, the next ones two
_LONGEST_LENGTH = 10  # bytes of a varint
ONE_BYTE = np.array(varint.ONE_BYTE, np.int64)
# The step to add to the position for a length of one byte and, without its second byte, of two; no record has fewer
# than six bytes, and no batch has _FAR.
_STEP = [(byte >> 1) + 1 if not byte & 1 and byte >= 12 else _FAR for byte in range(128)]
_STEP_OF_TWO = [((byte & 127) >> 1) + 2 if not byte & 1 else _FAR for byte in range(256)]


def wrong(what: str) -> RecordError:
    return RecordError(INVALID_RECORD, what)


def heads(flat: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """The headers (of type HEAD) of the batches that start at `starts` in the bytes `flat`."""
    found: np.ndarray = np.lib.stride_tricks.sliding_window_view(flat, WIRE.itemsize)[starts].view(WIRE)[:, 0]
    return found.astype(HEAD)


def varints(data: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The zig-zag varints at `at`, and the positions after them; IndexError past the end of `data`."""
    first, after = data.take(at), at + 1
    long = first > 127
    if not long.any():
        return ONE_BYTE.take(first), after
    if long.all():
        return _longer(data, first, after)
    numbers, some = ONE_BYTE.take(first & 127), np.flatnonzero(long)
    numbers[some], after[some] = _longer(data, first[some], after[some])
    return numbers, after


def _longer(data: np.ndarray, first: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same for varints with the first bytes `first`, which are not the last; the second ones are at `at`."""
    second = data.take(at)
    if (second > 127).any():
        return _of_any_length(data, first, at)
    return of_two_bytes(first, second), at + 1


def of_two_bytes(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The varints with these first and second bytes."""
    numbers = second.astype(np.int16) << 7 | (first & 127)
    return ((numbers >> 1) ^ -(numbers & 1)).astype(np.int64)


def _of_any_length(data: np.ndarray, first: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    numbers, at = first.astype(np.uint64), at.copy()
    longer, shift = np.arange(len(at)), 7
    while longer.size:
        byte = data.take(at[longer])
        if shift == 63 and (byte > 1).any():
            raise wrong("a number has more than 64 bits")
        # The continuation bit equals 1 in the next byte: subtract it there.
        numbers[longer] += (byte.astype(np.uint64) - np.uint64(1)) << np.uint64(shift)
        at[longer] += 1
        longer, shift = longer[byte > 127], shift + 7
    return (numbers >> np.uint64(1)).view(np.int64) ^ -(numbers & np.uint64(1)).view(np.int64), at


def _indexable(body: np.ndarray, records: int) -> bytes | memoryview:
    """`body` in the form that Python indexes fastest: a copy where that costs less than it saves for each record."""
    return body.tobytes() if len(body) <= COPIED * records else body.data


class Stretch(NamedTuple):
    """Records one after the other, up to `end`; `size` is that of each, with its length, or 0 where they differ."""

    starts: np.ndarray
    end: int
    size: int


def stretches(body: np.ndarray, at: int, count: int) -> Iterator[Stretch]:
    """The next `count` records in `body`, the first at `at`. IndexError or RecordError INVALID_RECORD past its end.

    Producers mostly send records of one size: those that follow the first at equal distances are found together.
    Others are found one by one, more at a time wherever the next ones are not alike either.
    """
    few, many, base, flat = WORTH, _FIRST_MANY, at, None
    while count > 0:
        run, size = _alike(body, at, min(count, many))
        if run:
            found, few, many = np.arange(at, at + run * size, size), WORTH, many * 16
            at += run * size
        else:
            flat = _indexable(body[base:], count) if flat is None else flat
            run, few, many = min(count, few), few * 4, _FIRST_MANY
            found, at = _one_by_one(flat, at - base, run)
            found, at = found + base, at + base
        yield Stretch(found, at, size)
        count -= run


def marks(body: np.ndarray, at: int, count: int) -> np.ndarray:
    """The start of each of the next `count` records in `body`, the first at `at`, and the end of the last one."""
    found, done = np.empty(count + 1, np.int64), 0
    found[0] = at
    for starts, end, _ in stretches(body, at, count):
        found[done : done + len(starts)] = starts
        done += len(starts)
        found[done] = end
    return found


def _alike(body: np.ndarray, at: int, most: int) -> tuple[int, int]:
    """How many records from `at` have the length of the first, and its size; no records if they are too few."""
    head = body[at : at + _LONGEST_LENGTH].tobytes()
    length, width = varint.decode(head, 0)
    size = width + length
    run = min(most, (len(body) - at) // size) if size >= LEAST_RECORD else 0
    for place in range(width if run >= WORTH else 0):
        column, byte = body[at + place : at + run * size : size].tobytes(), head[place : place + 1]
        run -= len(column.lstrip(byte))
        if run < WORTH:
            break
    return (run, size) if run >= WORTH else (0, 0)


def _one_by_one(body: bytes | memoryview, at: int, count: int) -> tuple[np.ndarray, int]:
    """The starts of `count` records, the first at `at`, and the end of the last one."""
    found: list[int] = []
    append, step, step_of_two = found.append, _STEP, _STEP_OF_TWO
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
    return np.array(found, np.int64), at


def checked(counts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The numbers of records that batches declare; RecordError INVALID_RECORD where so many do not fit into `sizes`."""
    counts = counts.astype(np.int64)
    if (counts < 0).any() or (counts * LEAST_RECORD > sizes).any():
        raise wrong("it declares a negative number of records, or more than fit")
    return counts


def walk(data: np.ndarray, starts: np.ndarray, ends: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The starts and ends of all records; batch i has `counts[i]` records in data[starts[i]:ends[i]].

    In steps for all batches, the last few batches one by one. IndexError or RecordError INVALID_RECORD when they do not
    end where their batch does.
    """
    counts = checked(counts, ends - starts)
    longest_first = np.argsort(-counts, kind="stable")
    walk = _Lockstep(data, starts[longest_first], ends[longest_first], counts[longest_first])
    walk.slots = (np.cumsum(counts) - counts)[longest_first]
    while walk.live >= WIDE:
        walk.advance()
    walk.finish()
    return walk.first, walk.last


class _Lockstep:
    """Batches, the longest first, of which all that are not at their end are at the same record, `done`.

    `slots` are the indexes of their next records among all.
    """

    slots: np.ndarray

    def __init__(self, data: np.ndarray, at: np.ndarray, stop: np.ndarray, counts: np.ndarray) -> None:
        self._data, self._at, self._stop, self._counts = data, at, stop, counts
        self.first, self.last = np.empty((2, int(counts.sum())), np.int64)
        self._done = 0
        self._alike = True  # whether it pays to look for records of one size
        self.live = self._longer_than(0)

    def _longer_than(self, records: int) -> int:
        """How many batches have more records."""
        return int(np.searchsorted(-self._counts, -records))

    def advance(self) -> None:
        """One record of all live batches, or several where most of them have as many left."""
        left = int(self._counts[self.live // 2]) - self._done
        steps = min(_FIRST_MANY - self._done % _FIRST_MANY, 1 << max(0, left.bit_length() - 1)) if self._alike else 1
        others = np.arange(self.live)
        if steps > 1:
            full = self._longer_than(self._done + steps - 1)
            alike = self._jump(full, steps)
            self._alike = 2 * int(np.count_nonzero(alike)) >= full
            others = np.concatenate((np.flatnonzero(~alike), others[full:]))
        for _ in range(steps):
            self._step(others)
            self._done += 1
            others = others[self._counts[others] > self._done]
        self.live = self._longer_than(self._done)

    def _step(self, rows: np.ndarray) -> None:
        """The next record of these batches."""
        if rows.size:
            at, slots = self._at[rows], self.slots[rows]
            lengths, after = varints(self._data, at)
            self.first[slots] = at
            self.last[slots] = self._at[rows] = after + lengths
            self.slots[rows] += 1

    def _jump(self, full: int, steps: int) -> np.ndarray:
        """The next `steps` records of those of the first `full` batches where they have all one size; which these are.

        Only lengths of one or two bytes are looked at. The byte behind one of one byte has no meaning, but is the same.
        """
        data, at = self._data, self._at[:full]
        lengths, after = varints(data, at)
        sizes = after - at + lengths
        alike: np.ndarray = (sizes >= LEAST_RECORD) & (after - at <= 2) & (sizes <= (self._stop[:full] - at) // steps)
        numbers = np.arange(steps)
        grid = at[:, None] + np.where(alike, sizes, 0)[:, None] * numbers
        for place in (0, 1):
            alike &= (data.take(grid + place) == data.take(at + place)[:, None]).all(axis=1)
        sizes, found = sizes[alike], grid[alike]
        slots = self.slots[:full][alike][:, None] + numbers
        self.first[slots], self.last[slots] = found, found + sizes[:, None]
        self._at[:full][alike] += sizes * steps
        self.slots[:full][alike] += steps
        return alike

    def finish(self) -> None:
        """The rest of the live batches, one by one."""
        for index in range(self.live):
            slot, left, start = self.slots[index], int(self._counts[index]) - self._done, int(self._at[index])
            found = marks(self._data[: self._stop[index]], start, left)
            self.first[slot : slot + left], self.last[slot : slot + left] = found[:-1], found[1:]
            self._at[index] = found[-1]
        if (self._at != self._stop).any():
            raise wrong("its records do not end at its end")


def runs(same: np.ndarray) -> list[tuple[int, int]]:
    """[first, last) of each run of equal neighbours."""
    bounds = [0, *(np.flatnonzero(same[1:] != same[:-1]) + 1).tolist(), len(same)]
    return [pair for pair in pairwise(bounds) if pair[1] > pair[0]]
