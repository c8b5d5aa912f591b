"""Validating a leader's data before it is appended: the whole batches, up to the first bad one.

Two passes: over the headers, which determine the new log end, and over the checksums. CRC-32C does not cover offsets
and epochs: for those only the order is checked. Nothing here reads records.
"""

from __future__ import annotations

from typing import NamedTuple

from odradek.protocol import batch as wire
from odradek.protocol.crc import crc32c


class MisplacedBatch(Exception):
    """A batch from `offset` to `last` begins below the log end `leo`, or below the end of the batch before it."""

    def __init__(self, offset: int, leo: int, last: int = -1) -> None:
        super().__init__(f"a batch begins at offset {offset}, but the log ends at {leo}")
        self.offset, self.leo, self.last = offset, leo, last


class CorruptBatch(Exception):
    """The data at `offset` is not a batch, or was corrupted in transit."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"the batch at offset {offset}: {reason}")
        self.offset = offset


class OldFormat(CorruptBatch):
    """A message of magic 0 or 1; only leaders that once ran Kafka before 0.11 keep those."""


class FetchedBatch(NamedTuple):
    """A whole batch: its place in the data, and its header (protocol.batch.HEADER)."""

    at: int
    size: int
    header: tuple[int, ...]

    @property
    def last_offset(self) -> int:
        return self.header[0] + self.header[6]


class FetchedBatches(NamedTuple):
    """The whole batches for a log that ends at `leo`, and the fault of the batch behind them."""

    leo: int
    batches: list[FetchedBatch]
    fault: Exception | None

    @property
    def end(self) -> int:
        """The log end after these batches."""
        return self.batches[-1].last_offset + 1 if self.batches else self.leo

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last batch; -1 when it has none."""
        return self.batches[-1].header[2] if self.batches else -1


def find(data: memoryview, leo: int) -> FetchedBatches:
    """The batches in `data` for a log that ends at `leo`, by their headers. Ignores an incomplete last batch."""
    found: list[FetchedBatch] = []
    fault: Exception | None = None
    at, size, end = 0, len(data), leo
    while size - at > wire.MAGIC_AT and fault is None:
        if data[at + wire.MAGIC_AT] != 2:
            fault = _foreign(int.from_bytes(data[at : at + 8], "big"), data[at + wire.MAGIC_AT])
        elif size - at < wire.HEADER_SIZE:
            break
        else:
            header = wire.HEADER.unpack_from(data, at)
            length = header[1] + wire.LOG_OVERHEAD
            if at + length > size:
                break
            fault = _fault(header, end)
            if fault is None:
                found.append(FetchedBatch(at, length, header))
                at, end = at + length, header[0] + header[6] + 1
    return FetchedBatches(leo, found, fault)


def sound(data: memoryview, found: FetchedBatches) -> FetchedBatches:
    """`found` if all checksums match; otherwise the batches before the first mismatch."""
    for number, (at, size, header) in enumerate(found.batches):
        if crc32c(data[at + wire.CRC_START : at + size]) != header[4]:
            return FetchedBatches(
                found.leo, found.batches[:number], CorruptBatch(header[0], "the checksum does not match")
            )
    return found


def _foreign(offset: int, magic: int) -> CorruptBatch:
    if magic in (0, 1):
        return OldFormat(offset, f"message format {magic} is not replicated: convert the topic on its leader first")
    return CorruptBatch(offset, f"magic {magic} is unknown")


def _fault(header: tuple[int, ...], leo: int) -> Exception | None:
    base, length, delta = header[0], header[1], header[6]
    if length < wire.LEAST_LENGTH[2] or delta < 0:
        return CorruptBatch(base, f"length {length} with {delta + 1} offsets is impossible")
    return MisplacedBatch(base, leo, base + delta) if base < leo else None
