"""Reading producer state back out of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.protocol import batch
from odradek.storage import read
from odradek.storage.sequences import ProducerBatch, Staged

if TYPE_CHECKING:
    from odradek.storage.partition import Partition


def staged_between(partition: Partition, values: list[int], start: int, end: int) -> Staged:
    """The idempotent batches with offsets in [start, end), ready for `Producers.apply`. Caller holds the lock."""
    staged = Staged(None)
    offset = start
    while offset < end:
        data = read.raw(partition, values, offset, 1 << 20)
        if not data:
            break
        for header in headers(data):
            offset = header[0] + header[6] + 1
            if header[9] >= 0 and header[0] >= start:
                stage(staged, header)
    return staged


def stage(staged: Staged, header: tuple[int, ...]) -> None:
    """Let one batch of the log in, unchecked: it was checked when it was appended."""
    base, _, _, _, _, attributes, delta, _, timestamp, producer_id, epoch, first, count = header
    if attributes & batch.CONTROL:
        return
    last = batch.last_sequence(first, count)
    staged.let_in(producer_id, epoch, ProducerBatch(first, last, base, base + delta, timestamp))


def headers(data: bytes) -> list[tuple[int, ...]]:
    """The headers of the whole batches in `data`."""
    found, at, end = [], 0, len(data)
    while end - at >= batch.HEADER_SIZE:
        header = batch.HEADER.unpack_from(data, at)
        at += header[1] + batch.LOG_OVERHEAD
        if at > end:
            break
        found.append(header)
    return found
