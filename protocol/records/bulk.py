"""Batches of magic 2 in bulk: headers as one array, and records walked in lockstep, with numpy.

With many batches, record k of all batches is one step; the last few are walked one by one, in a Python loop. numpy is
heavy: only processes that read whole logs import this.
"""

from __future__ import annotations

from itertools import pairwise

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
ENOUGH = 16 << 20
_FAR = 1 << 60
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
    numbers = data.take(at).astype(np.uint64)
    at = at + 1
    longer, shift = np.flatnonzero(numbers > 127), 7
    while longer.size:
        byte = data.take(at[longer])
        if shift == 63 and (byte > 1).any():
            raise wrong("a number has more than 64 bits")
        # The continuation bit equals 1 in the next byte: subtract it there.
        numbers[longer] += (byte.astype(np.uint64) - np.uint64(1)) << np.uint64(shift)
        at[longer] += 1
        longer, shift = longer[byte > 127], shift + 7
    return (numbers >> np.uint64(1)).view(np.int64) ^ -(numbers & np.uint64(1)).view(np.int64), at


def indexable(body: np.ndarray) -> bytes | memoryview:
    """`body` in the form that Python indexes fastest: a copy where that is cheap."""
    return body.tobytes() if len(body) <= ENOUGH else body.data


def marks(body: bytes | memoryview, at: int, count: int) -> list[int]:
    """The start of each of `count` records, the first at `at`, and the end of the last one."""
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
    append(at)
    return found


def walk(data: np.ndarray, starts: np.ndarray, ends: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The starts and ends of all records; batch i has `counts[i]` records in data[starts[i]:ends[i]].

    In steps for all batches, the last few batches one by one. IndexError or RecordError INVALID_RECORD when they do not
    end where their batch does.
    """
    counts = counts.astype(np.int64)
    if (counts < 0).any() or (counts * LEAST_RECORD > ends - starts).any():
        raise wrong("it declares a negative number of records, or more than fit")
    longest_first = np.argsort(-counts, kind="stable")
    slots = (np.cumsum(counts) - counts)[longest_first]  # of the next record of each batch
    at, stop, counts = starts[longest_first], ends[longest_first], counts[longest_first]
    first, last = np.empty((2, int(counts.sum())), np.int64)
    done, live = 0, int(np.count_nonzero(counts))
    while live >= WIDE:
        first[slots[:live]] = at[:live]
        lengths, after = varints(data, at[:live])
        last[slots[:live]] = at[:live] = after + lengths
        slots += 1
        done += 1
        live = int(np.searchsorted(-counts, -done))
    for index in range(live):
        slot, left, start = slots[index], int(counts[index]) - done, int(at[index])
        found = np.array(marks(indexable(data[start : stop[index]]), 0, left), np.int64) + start
        first[slot : slot + left], last[slot : slot + left], at[index] = found[:-1], found[1:], found[-1]
    if (at != stop).any():
        raise wrong("its records do not end at its end")
    return first, last


def runs(same: np.ndarray) -> list[tuple[int, int]]:
    """[first, last) of each run of equal neighbours."""
    bounds = [0, *(np.flatnonzero(same[1:] != same[:-1]) + 1).tolist(), len(same)]
    return [pair for pair in pairwise(bounds) if pair[1] > pair[0]]
