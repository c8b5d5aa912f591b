"""Appends keyed records to a partition in test memory, and compacts it once."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple

from odradek.ipc import slots
from odradek.protocol.batch import TRANSACTIONAL
from odradek.protocol.records import batch_v2, convert
from odradek.storage.compaction import compaction
from odradek.storage.compaction.compaction import BUSY, Compaction, DedupeBuffer
from odradek.storage.files import checkpoints
from odradek.storage.log import append, read, roll
from odradek.storage.log.log_batch import Batch
from odradek.storage.log.partition import Partition

from ..live import NOW, Live, note_flushed

MEMORY = DedupeBuffer()
Row = tuple[bytes | None, bytes | None]


class Kept(NamedTuple):
    """A record as a consumer sees it."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int = NOW


def keyed(
    rows: Iterable[Row], producer: int = -1, epoch: int = 0, sequence: int = -1, codec: int = 0,
    transaction: bool = False, timestamp: int = NOW,
) -> Batch:  # fmt: skip
    """A batch as a client sends it; `transaction` makes it part of one."""
    records = [(n, timestamp + n, key, value, ()) for n, (key, value) in enumerate(rows)]
    fields = {"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequence} if producer >= 0 else {}
    attributes = TRANSACTIONAL if transaction else 0
    data = bytearray(batch_v2.build(records, base_offset=0, codec=codec, attributes=attributes, **fields))
    last = timestamp + len(records) - 1
    batch = Batch(memoryview(data), len(records), last, producer, epoch if producer >= 0 else -1, sequence)
    batch.transactional = transaction
    return batch


def put(partition: Partition, *batches: Batch) -> None:
    with partition.locked() as values:
        append.append(partition, values, list(batches), NOW)
    assert [one.error for one in batches] == [0] * len(batches)


def seal(partition: Partition) -> None:
    """Begin a new segment."""
    with partition.locked() as values:
        roll.roll(partition, values)


def compact(partition: Partition, world: Live, now_ms: int = NOW, memory: DedupeBuffer = MEMORY) -> Compaction | None:
    """Compact the dirty part after the checkpoint, and advance the checkpoint; None when nothing is dirty."""
    note_flushed(partition)
    offsets = checkpoints.read_offsets(world.root, checkpoints.CLEANER)
    what = compaction.find_range(partition, offsets.get(("t", 0)), now_ms)
    if not what.due(0.0):
        return None
    checkpoints.write_offsets(world.root, checkpoints.CLEANER, {("t", 0): what.first_dirty})
    going = Compaction(partition, what, memory, now_ms)
    for step in going.steps():
        if step == BUSY:
            time.sleep(0.001)
    checkpoints.write_offsets(world.root, checkpoints.CLEANER, {("t", 0): going.cleaned_upto})
    return going


def consume(
    partition: Partition, offset: int | None = None, limit: int = 1 << 20, committed: bool = False
) -> list[Kept]:
    """Every record from `offset` (the log start) on, read as a consumer does, batch by batch; markers are left out."""
    found: list[Kept] = []
    at, end = offset, time.monotonic() + 60
    while True:
        values = partition.slot.read()
        at = values[slots.F_LOG_START] if at is None else at
        try:
            piece = read.fetch(partition, values, at, values[slots.F_HW], limit)
            data = b"" if piece is None else piece.read()
        except FileNotFoundError:
            assert time.monotonic() < end, "the swap does not end"
            time.sleep(0.001)  # its process may pause between two renames
            continue
        if not data:
            return found
        for one in convert.split(data):
            head = batch_v2.header(one)
            assert batch_v2.crc_is_right(one)
            if not head.is_control:
                found += [Kept(r[0], r[2], r[3], r[1]) for r in batch_v2.iterate(one) if r[0] >= at]
            at = max(at, head.last_offset + 1)


def headers(partition: Partition) -> list[batch_v2.Header]:
    """The headers of all batches below the log end."""
    values = partition.slot.read()
    found, offset = [], 0
    while offset < values[slots.F_LEO]:
        base, position = read.locate(partition, values, offset)
        file, end, offset = read.extent(partition, values, base, values[slots.F_LEO])
        found += [batch_v2.Header._make(row) for _, row in read.batch_headers(file, position, end)]
    return found
