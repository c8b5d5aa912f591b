"""The records of many batches of a chunk in place, with compressed ones unpacked into one buffer.

An unreadable batch is reported and skipped: garbage inside its compression, lengths that do not fit, offsets that do
not rise from record to record. A topic with trusted producers, or a former release, may have accepted it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from odradek.protocol.batch import ATTRIBUTES_AT, COMPRESSION, HEADER_SIZE
from odradek.protocol.errors import MESSAGE_TOO_LARGE
from odradek.protocol.records import batch_v2, bulk, codecs
from odradek.protocol.records.errors import RecordError
from odradek.storage.segment.batch_chunks import PADDING, Chunk

LIMIT = 1 << 31  # bytes of one batch, decompressed: the log accepted it once
_ROOM = 16 << 20
_EARLIEST = -1 << 62  # minus the largest delete horizon

Unreadable = Callable[[int, RecordError], None]  # takes the index of a batch in its chunk


class Bodies(NamedTuple):
    """Uncompressed records: those of the batch with the index batches[i] are data[starts[i]:ends[i]]."""

    data: np.ndarray
    batches: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    def only(self, index: int) -> Bodies:
        chosen = slice(index, index + 1)
        return Bodies(self.data, self.batches[chosen], self.starts[chosen], self.ends[chosen])


class Records(NamedTuple):
    """Records in their order; `batches` are indexes into the chunk, `keys` their key sizes and positions."""

    data: np.ndarray
    batches: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    offsets: np.ndarray
    timestamp_deltas: np.ndarray
    keys: Keys | None


class Keys(NamedTuple):
    """Sizes and positions of keys, a size of -1 for none; and which records have no value."""

    sizes: np.ndarray
    at: np.ndarray
    tombstones: np.ndarray


class RecordReader:
    """Unpacks into one buffer: yielded records are valid until the next."""

    def __init__(self) -> None:
        self._scratch = bytearray()

    def of(self, chunk: Chunk, chosen: np.ndarray, unreadable: Unreadable, keys: bool = True) -> Iterator[Records]:
        """The records of the batches with the indexes `chosen`, which rise; with their `keys` or without."""
        for bodies in self._bodies(chunk, chosen, unreadable):
            yield from _records(chunk, bodies, unreadable, keys)

    def _bodies(self, chunk: Chunk, chosen: np.ndarray, unreadable: Unreadable) -> Iterator[Bodies]:
        packed = chunk.heads["attributes"][chosen] & COMPRESSION != 0
        for first, last in bulk.runs(packed):
            some = chosen[first:last]
            if packed[first]:
                yield from self._unpacked(chunk, some, unreadable)
            else:
                yield Bodies(chunk.flat, some, chunk.starts[some] + HEADER_SIZE, chunk.ends[some])

    def _unpacked(self, chunk: Chunk, chosen: np.ndarray, unreadable: Unreadable) -> Iterator[Bodies]:
        self._scratch = self._scratch or bytearray(_ROOM + PADDING)
        bounds, group = [0], list[int]()
        for index in chosen.tolist():
            try:
                size = self._unpack(chunk, index, bounds[-1])
                if size is None and group:
                    yield self._together(group, bounds)
                    bounds, group = [0], []
                    size = self._unpack(chunk, index, 0)
                if size is None:
                    yield _alone(chunk, index)
                else:
                    bounds.append(bounds[-1] + size)
                    group.append(index)
            except RecordError as error:
                unreadable(index, error)
        if group:
            yield self._together(group, bounds)

    def _unpack(self, chunk: Chunk, index: int, used: int) -> int | None:
        """Unpack a batch after `used` bytes; returns its length, None when it does not fit."""
        start, end = int(chunk.starts[index]), int(chunk.ends[index])
        codec = chunk.data[start + ATTRIBUTES_AT + 1] & COMPRESSION
        packed = chunk.data[start + HEADER_SIZE : end]
        try:
            with memoryview(self._scratch) as view:
                return codecs.decompress_into(codec, packed, view[used:-PADDING])
        except RecordError as error:
            if error.code == MESSAGE_TOO_LARGE:
                return None
            raise

    def _together(self, group: list[int], bounds: list[int]) -> Bodies:
        places = np.array(bounds, np.int64)
        return Bodies(np.frombuffer(self._scratch, np.uint8), np.array(group, np.int64), places[:-1], places[1:])


def _alone(chunk: Chunk, index: int) -> Bodies:
    """A batch that does not fit into the buffer."""
    body = batch_v2.payload(chunk.payload(index), LIMIT)
    data, ends = np.frombuffer(body + bytes(PADDING), np.uint8), np.array([len(body)], np.int64)
    return Bodies(data, np.array([index], np.int64), np.zeros(1, np.int64), ends)


def _records(chunk: Chunk, bodies: Bodies, unreadable: Unreadable, keys: bool) -> Iterator[Records]:
    """The records of all bodies at once; batch by batch when one of them is bad."""
    try:
        found = _parsed(chunk, bodies, keys)
    except (RecordError, IndexError) as error:
        if len(bodies.batches) > 1:
            for index in range(len(bodies.batches)):
                yield from _records(chunk, bodies.only(index), unreadable, keys)
        else:
            wrong = error if isinstance(error, RecordError) else bulk.wrong("a record does not fit into its batch")
            unreadable(int(bodies.batches[0]), wrong)
    else:
        yield found


def _parsed(chunk: Chunk, bodies: Bodies, keys: bool) -> Records:
    data, heads = bodies.data, chunk.heads[bodies.batches]
    starts, ends = bulk.walk(data, bodies.starts, bodies.ends, heads["num_records"])
    of = np.repeat(np.arange(len(heads)), heads["num_records"])
    _, at = bulk.varints(data, starts)
    times, at = bulk.varints(data, at + 1)  # after the attributes byte, which is unused
    if not _can_be_written(heads["base_timestamp"], times):
        raise bulk.wrong("a timestamp is too far from now")
    steps, at = bulk.varints(data, at)
    if ((steps < 0) | (steps > heads["last_offset_delta"][of])).any() or (at >= ends).any():
        raise bulk.wrong("an offset is outside of its batch")
    offsets = heads["base_offset"][of] + steps
    if (offsets[1:] <= offsets[:-1]).any():  # within one batch: batches rise, and offsets are within their batch
        raise bulk.wrong("its offsets do not rise")
    found = _keys(data, at, ends) if keys else None
    return Records(data, bodies.batches[of], starts, ends, offsets, times, found)


def _can_be_written(base: np.ndarray, deltas: np.ndarray) -> bool:
    """Whether all timestamps fit 64 bits, also with deltas relative to a delete horizon."""
    if not deltas.size:
        return True
    earliest, latest = int(base.min()) + int(deltas.min()), int(base.max()) + int(deltas.max())
    return earliest >= _EARLIEST and latest <= batch_v2.LATEST


def _keys(data: np.ndarray, at: np.ndarray, ends: np.ndarray) -> Keys:
    """The keys with their sizes at `at`, in records that end at `ends`."""
    sizes, at = bulk.varints(data, at)
    behind = at + np.maximum(sizes, 0)
    if (behind >= ends).any():
        raise bulk.wrong("a key does not fit into its record")
    return Keys(sizes, at, (data.take(behind) & 1).astype(bool))  # a negative size is odd: null
