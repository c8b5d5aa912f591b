"""The records of several batches in one buffer: plain ones in place, compressed ones unpacked one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from odradek.pipeline.decoding.selection import Batches
from odradek.protocol.batch import COMPRESSION, HEADER_SIZE
from odradek.protocol.records import codecs
from odradek.protocol.records.errors import RecordError

ENOUGH = 16 << 20
"""Bytes of records decoded together."""


class Bodies(NamedTuple):
    """The records of the batches with headers `heads`: those of batch i are data[starts[i]:ends[i]]."""

    data: np.ndarray
    heads: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    def only(self, chosen: slice) -> Bodies:
        return Bodies(self.data, self.heads[chosen], self.starts[chosen], self.ends[chosen])


class BrokenBatch(Exception):
    """The batch at `offset` cannot be decompressed."""

    def __init__(self, offset: int, why: RecordError) -> None:
        super().__init__(str(why))
        self.offset = offset


class Unpacker:
    """Unpacks into one buffer over and over: a yielded result is valid until the next one.

    The kernel allocates the buffer's memory at the first write, so its size is a limit and not a cost.
    """

    def __init__(self, limit: int = codecs.DEFAULT_LIMIT, kept: bool = False) -> None:
        """`kept`: unpacked records are copied out of the buffer, and stay valid."""
        self._limit, self._kept = limit, kept
        self._buffer: np.ndarray | None = None

    def of(self, batches: Batches, rows: int) -> Iterator[Bodies]:
        """The batches in groups of about ENOUGH bytes and at most `rows` records, or of one; raises BrokenBatch."""
        packed = batches.heads["attributes"] & COMPRESSION != 0
        bounds = [0, *(np.flatnonzero(packed[1:] != packed[:-1]) + 1).tolist(), len(packed)]
        for first, last in pairwise(bounds):
            if last > first:
                some = batches.only(slice(first, last))
                yield from self._unpacked(some, rows) if packed[first] else _plain(some, rows)

    def _unpacked(self, batches: Batches, rows: int) -> Iterator[Bodies]:
        bounds, first, records = [0], 0, 0  # where the batches from `first` on start, and where the last one ends
        for index, count in enumerate(batches.heads["num_records"].tolist()):
            if index > first and (records + count > rows or bounds[-1] >= ENOUGH):
                yield self._group(batches.heads[first:index], bounds)
                bounds, first, records = [0], index, 0
            bounds.append(bounds[-1] + self._unpack(batches, index, bounds[-1]))
            records += count
        yield self._group(batches.heads[first:], bounds)

    def _group(self, heads: np.ndarray, bounds: list[int]) -> Bodies:
        places, data = np.array(bounds, np.int64), self._scratch()
        return Bodies(data[: bounds[-1]].copy() if self._kept else data, heads, places[:-1], places[1:])

    def _unpack(self, batches: Batches, index: int, used: int) -> int:
        """Unpack a batch behind `used` bytes; returns its length."""
        head = batches.heads[index]
        packed = batches.data[batches.starts[index] + HEADER_SIZE : batches.ends[index]]
        room = self._scratch().data[used : used + self._limit]
        try:
            return codecs.decompress_into(int(head["attributes"]) & COMPRESSION, packed, room)
        except RecordError as error:
            raise BrokenBatch(int(head["base_offset"]), error) from error

    def _scratch(self) -> np.ndarray:
        if self._buffer is None:
            self._buffer = np.empty(ENOUGH + self._limit, np.uint8)
        return self._buffer


def _plain(batches: Batches, rows: int) -> Iterator[Bodies]:
    data, starts, ends = np.frombuffer(batches.data, np.uint8), batches.starts + HEADER_SIZE, batches.ends
    records, sizes = np.cumsum(np.maximum(batches.heads["num_records"], 0), dtype=np.int64), np.cumsum(ends - starts)
    first = records_before = size_before = 0
    while first < len(starts):
        few = np.searchsorted(records, records_before + rows, "right")
        small = np.searchsorted(sizes, size_before + ENOUGH, "right")
        last = max(first + 1, int(min(few, small)))
        yield Bodies(data, batches.heads[first:last], starts[first:last], ends[first:last])
        first, records_before, size_before = last, int(records[last - 1]), int(sizes[last - 1])
