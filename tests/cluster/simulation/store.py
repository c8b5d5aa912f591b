"""What modules of storage do to files, done to the lists of a simulated disk, with the same changes of slots' fields.

A record is 24 bytes on its way: offset, epoch, value.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from odradek.ipc import slots
from odradek.ipc.slots import Fields
from odradek.storage.epochs import EpochCache
from odradek.storage.received import Found, Misplaced
from odradek.storage.received import Received as Batch

RECORD = struct.Struct(">qqq")


class Epochs(EpochCache):
    """storage.epochs.EpochCache, read from a directory that is none of a file system."""

    @classmethod
    def read(cls, directory: Any) -> EpochCache:
        return directory.cache()


class Roll:
    """storage.roll for storage.leading and storage.repair."""

    @staticmethod
    def note_epoch(partition: Any, epoch: int, start: int) -> None:
        cache = partition.directory.cache()
        if cache.assign(epoch, start):
            partition.directory.note(cache)
        partition.owner.shared.broker.noted()

    @staticmethod
    def cut_epochs(partition: Any, end: int) -> int:
        cache = partition.directory.cache()
        if cache.truncate_from_end(end):
            partition.directory.note(cache)
        return cache.latest


class Trim:
    """storage.trim for DeleteRecords, and for what follows it."""

    @staticmethod
    def advance(partition: Any, values: Fields, log_start: int) -> None:
        if log_start > values[slots.F_LOG_START]:
            values[slots.F_LOG_START] = log_start
            values[slots.F_HW] = max(values[slots.F_HW], log_start)
            partition.slot.publish(values)


class Slice:
    """Records on their way to a follower (storage.openfile.FileSlice)."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)


class Read:
    """storage.read for workers.following."""

    @staticmethod
    def fetch(partition: Any, values: Any, offset: int, limit: int, most: int, whole: bool = True) -> Slice | None:
        count = most // RECORD.size or (1 if whole else 0)
        records = partition.directory.records[offset : min(limit, offset + count)]
        data = b"".join(RECORD.pack(offset + at, *record) for at, record in enumerate(records))
        return Slice(data) if data else None


def append(partition: Any, values: Fields, batches: Sequence[Any], now_ms: int) -> int:
    """storage.append: what producers sent."""
    before, epoch, directory = values[slots.F_LEO], values[slots.F_LEADER_EPOCH], partition.directory
    for batch in batches:
        batch.base_offset = values[slots.F_LEO]
        directory.disk.led(directory, epoch)
        directory.add(epoch, batch.value)
        values[slots.F_LEO] += 1
    if epoch != values[slots.F_EPOCH_NOTED]:
        Roll.note_epoch(partition, epoch, before)
        values[slots.F_EPOCH_NOTED] = epoch
    if values[slots.F_VOTERS] <= 1:
        values[slots.F_HW] = values[slots.F_LEO]
    partition.slot.publish(values)
    return values[slots.F_LEO]


class Received:
    """storage.received for broker.leader."""

    @staticmethod
    def find(data: Any, leo: int) -> Found:
        records = RECORD.iter_unpack(bytes(data))
        batches = [
            Batch(at * RECORD.size, RECORD.size, (offset, 0, epoch, 0, 0, 0, 0))
            for at, (offset, epoch, _) in enumerate(records)
        ]
        return Found(leo, batches, None)


class Follow:
    """storage.follow for broker.copies."""

    @staticmethod
    def append(partition: Any, values: Fields, data: Any, hw: int, log_start: int, now_ms: int, known: Any) -> int:
        directory, cache = partition.directory, partition.directory.cache()
        fault = None
        if log_start >= values[slots.F_LEO]:  # all that is here is deleted there, and need not be what others had
            directory.chain[-1] = None
        for offset, epoch, value in RECORD.iter_unpack(bytes(data)):
            if offset != values[slots.F_LEO]:
                fault = Misplaced(offset, values[slots.F_LEO])
                break
            if epoch != values[slots.F_EPOCH_NOTED]:
                cache.truncate_from_end(offset)
                cache.assign(epoch, offset)
                values[slots.F_EPOCH_NOTED] = epoch
            directory.add(epoch, value)
            values[slots.F_LEO] += 1
        directory.note(cache)
        values[slots.F_HW] = max(values[slots.F_HW], min(hw, values[slots.F_LEO]))
        partition.slot.publish(values)
        Trim.advance(partition, values, min(log_start, values[slots.F_LEO]))
        if fault:
            raise fault
        return values[slots.F_LEO]


class Truncate:
    """storage.truncate for broker.copies."""

    @staticmethod
    def truncate(partition: Any, values: Fields, offset: int) -> None:
        if offset < partition.directory.base:
            Truncate.restart(partition, values, offset)
            return
        if offset < values[slots.F_LEO]:
            partition.directory.cut(offset)
            values[slots.F_TRUNCATIONS] += 1
            values[slots.F_LEO] = offset
            values[slots.F_HW] = min(values[slots.F_HW], offset)
            values[slots.F_LOG_START] = min(values[slots.F_LOG_START], offset)
        cache = partition.directory.cache()
        cache.truncate_from_end(values[slots.F_LEO])
        partition.directory.note(cache)
        values[slots.F_EPOCH_NOTED] = cache.latest
        partition.slot.publish(values)

    @staticmethod
    def restart(partition: Any, values: Fields, offset: int) -> None:
        partition.directory.restart(offset)
        values[slots.F_TRUNCATIONS] += 1
        values[slots.F_LEO] = values[slots.F_LOG_START] = values[slots.F_HW] = offset
        values[slots.F_EPOCH_NOTED] = -1
        partition.slot.publish(values)


def lower(partition: Any, fields: Fields) -> None:
    """broker.checkpoint_turns for broker.copies."""
    directory = partition.directory
    directory.start_checkpoint = min(directory.start_checkpoint, fields[slots.F_LOG_START])
    partition.slot.publish(fields)


def recover(partition: Any, values: Fields) -> None:
    """storage.opening: what is on the disk, shown up to where it is known that others have it."""
    directory = partition.directory
    start = max(directory.start_checkpoint, directory.base)
    if len(directory.records) < start:
        directory.restart(start)
    leo, cache = len(directory.records), directory.cache()
    cache.truncate_from_end(leo)
    directory.note(cache)
    values[slots.F_LOG_START] = start
    values[slots.F_LEO], values[slots.F_HW] = leo, max(start, min(directory.checkpoint, leo))
    values[slots.F_EPOCH_NOTED] = cache.latest
    values[slots.F_GENERATION] += 1
    values[slots.F_STATE] = values[slots.F_RECOVERS_TO]
    partition.slot.publish(values)
    partition.release()
