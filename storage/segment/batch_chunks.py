"""A segment in chunks of many whole batches, their headers in one array; messages of magic 0 and 1 one by one.

Reads by `preadv` into one reused buffer: a yielded chunk is valid until the next. Every checksum is verified and
offsets must rise, as with storage.segment.scan, which also gives the fault of a bad batch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from odradek.protocol.batch import CRC_START, LEAST_LENGTH, LOG_OVERHEAD, TO_MAGIC
from odradek.protocol.crc import crc32c
from odradek.protocol.records import bulk
from odradek.storage.segment.scan import BadBatch, Batch, Scan

CHUNK_BYTES = 4 << 20
PADDING = 8  # bytes after a buffer's end that may be read, without meaning
_LEAST = LEAST_LENGTH[2]


class Chunk(NamedTuple):
    """Batches of magic 2: batch i is data[starts[i]:ends[i]], which is at `position` + starts[i] in the file."""

    data: memoryview
    flat: np.ndarray  # the same bytes
    heads: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    position: int

    @property
    def last_offsets(self) -> np.ndarray:
        last: np.ndarray = self.heads["base_offset"] + self.heads["last_offset_delta"]
        return last

    @property
    def last_offset(self) -> int:
        """The last offset of the last batch."""
        return int(self.last_offsets[-1])

    @property
    def size(self) -> int:
        """Bytes of all batches."""
        return int(self.ends[-1])

    def batch(self, index: int) -> Batch:
        head = self.heads[index].item()
        start, end = int(self.starts[index]), int(self.ends[index])
        return Batch(self.position + start, end - start, head[0] + head[6], *head)

    def payload(self, index: int) -> bytes:
        """A copy of the batch's bytes."""
        return bytes(self.data[int(self.starts[index]) : int(self.ends[index])])


class OldBatch(NamedTuple):
    """A message of magic 0 or 1, or a compressed set of them."""

    batch: Batch
    payload: bytes

    @property
    def last_offset(self) -> int:
        return self.batch.last_offset

    @property
    def size(self) -> int:
        return self.batch.size


class ChunkReader:
    """Iterates over the open file `fd` up to `size`. Ends at the first bad batch, which `bad` then describes.

    Raises OSError from reads.
    """

    def __init__(self, fd: int, size: int, least_offset: int = 0, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._fd = fd
        self._size = size
        self._least = least_offset
        self._buffer = bytearray(min(chunk_bytes, size) + PADDING)
        self._position = 0
        self.bad: BadBatch | None = None

    def __iter__(self) -> Iterator[Chunk | OldBatch]:
        while self._position < self._size and self.bad is None:
            filled = self._fill()
            chunk = self._intact(self._starts(filled))
            if chunk is not None:
                self._position += chunk.size
                self._least = chunk.last_offset + 1
                yield chunk
                del chunk
            else:
                yield from self._others()

    def _fill(self) -> int:
        """Fill the buffer; returns the number of bytes read."""
        room, filled = min(len(self._buffer) - PADDING, self._size - self._position), 0
        with memoryview(self._buffer) as view:
            while filled < room:
                count = os.preadv(self._fd, [view[filled:room]], self._position + filled)
                if not count:
                    break
                filled += count
        return filled

    def _starts(self, filled: int) -> list[int]:
        """The starts of the first run of whole batches of magic 2 in the buffer, and the end of the last one."""
        starts, at, buffer, unpack = [0], 0, self._buffer, TO_MAGIC.unpack_from
        while at + TO_MAGIC.size <= filled:
            _, length, _, magic = unpack(buffer, at)
            at += LOG_OVERHEAD + length
            if magic != 2 or length < _LEAST or at > filled:
                break
            starts.append(at)
        return starts

    def _intact(self, bounds: list[int]) -> Chunk | None:
        """The batches before the first bad one; None when there are none."""
        starts, ends = np.array(bounds[:-1], np.int64), np.array(bounds[1:], np.int64)
        if not starts.size:
            return None
        data = memoryview(self._buffer)
        flat = np.frombuffer(data, np.uint8)
        chunk = Chunk(data, flat, bulk.heads(flat, starts), starts, ends, self._position)
        good = min(self._in_order(chunk), _unharmed(chunk))
        return chunk._replace(heads=chunk.heads[:good], starts=starts[:good], ends=ends[:good]) if good else None

    def _in_order(self, chunk: Chunk) -> int:
        """The number of batches with rising offsets."""
        base, last = chunk.heads["base_offset"], chunk.last_offsets
        falling = np.flatnonzero((base < np.concatenate(([self._least], last[:-1] + 1))) | (last < base))
        return int(falling[0]) if falling.size else len(base)

    def _others(self) -> Iterator[OldBatch]:
        """Handles all else than a batch of magic 2 that fits the buffer: older ones, a bad one, or a larger buffer."""
        scan = Scan(self._fd, self._position, self._size, least_offset=self._least)
        for batch in scan:
            if batch.magic == 2:
                if batch.size > len(self._buffer) - PADDING:
                    self._buffer = bytearray(batch.size + PADDING)
                return
            self._position, self._least = batch.position + batch.size, batch.last_offset + 1
            yield OldBatch(batch, scan.payload())
        self.bad = scan.bad


def _unharmed(chunk: Chunk) -> int:
    """The number of batches with right checksums, before the first wrong one."""
    data, crcs = chunk.data, chunk.heads["crc"].tolist()
    for index, (start, end) in enumerate(zip(chunk.starts.tolist(), chunk.ends.tolist(), strict=True)):
        if crc32c(data[start + CRC_START : end]) != crcs[index]:
            return index
    return len(crcs)
