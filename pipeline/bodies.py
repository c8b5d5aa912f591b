"""The records of several batches in one buffer: plain ones where they stand, compressed ones unpacked side by side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from odradek.pipeline.selection import Batches
from odradek.protocol.records import batch_v2, codecs
from odradek.protocol.records.errors import RecordError

ENOUGH = 16 << 20
"""Bytes of records looked at together."""


class Bodies(NamedTuple):
    """The records of the batches with headers `heads`: those of batch i are data[starts[i]:ends[i]]."""

    data: np.ndarray
    heads: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    def only(self, chosen: slice) -> Bodies:
        return Bodies(self.data, self.heads[chosen], self.starts[chosen], self.ends[chosen])


class BrokenBatch(Exception):
    """The batch at `offset` does not unpack."""

    def __init__(self, offset: int, why: RecordError) -> None:
        super().__init__(str(why))
        self.offset = offset


class Unpacker:
    """Unpacks into one buffer over and over: what it yields is good until the next.

    The memory of the buffer is taken when first written to, so its size is a bound and not a cost.
    """

    def __init__(self, limit: int = codecs.DEFAULT_LIMIT) -> None:
        self._limit = limit
        self._buffer: np.ndarray | None = None

    def of(self, batches: Batches, rows: int) -> Iterator[Bodies]:
        """The batches in groups of about ENOUGH bytes and at most `rows` records, or of one; BrokenBatch."""
        counts = batches.heads["count"].tolist()
        kinds = (batches.heads["attributes"] & codecs.CODEC_MASK).tolist()
        plain = np.frombuffer(batches.data, np.uint8)
        starts: list[int] = []
        ends: list[int] = []
        first = records = used = 0
        for index, (count, codec) in enumerate(zip(counts, kinds, strict=True)):
            full = records + count > rows or used >= ENOUGH
            if starts and (full or (codec == 0) != (kinds[first] == 0)):
                yield self._group(batches, slice(first, index), plain, starts, ends)
                first, records, used, starts, ends = index, 0, 0, [], []
            start, end = self._place(batches, index, codec, used)
            starts.append(start)
            ends.append(end)
            records, used = records + count, used + end - start
        if starts:
            yield self._group(batches, slice(first, len(counts)), plain, starts, ends)

    def _group(self, batches: Batches, chosen: slice, plain: np.ndarray, starts: list, ends: list) -> Bodies:
        heads = batches.heads[chosen]
        packed = int(heads["attributes"][0]) & codecs.CODEC_MASK
        data = self._scratch() if packed else plain
        return Bodies(data, heads, np.array(starts, np.int64), np.array(ends, np.int64))

    def _place(self, batches: Batches, index: int, codec: int, used: int) -> tuple[int, int]:
        """Where the records of a batch start and end, after it was unpacked behind `used` bytes if need be."""
        start, end = int(batches.starts[index]) + batch_v2.HEADER_SIZE, int(batches.ends[index])
        if not codec:
            return start, end
        room = self._scratch().data[used : used + self._limit]
        try:
            return used, used + codecs.decompress_into(codec, batches.data[start:end], room)
        except RecordError as error:
            raise BrokenBatch(int(batches.heads["base_offset"][index]), error) from error

    def _scratch(self) -> np.ndarray:
        if self._buffer is None:
            self._buffer = np.empty(ENOUGH + self._limit, np.uint8)
        return self._buffer
