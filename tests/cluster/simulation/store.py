"""The operations of storage's modules on the lists of a simulated disk, with the same changes of slots' fields.

In flight a record has 24 bytes: offset, epoch, value.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from odradek.ipc import slots
from odradek.ipc.slots import Fields
from odradek.protocol import errors
from odradek.storage.log.partition import TRIMMING, TRUNCATING
from odradek.storage.segment.epochs import EpochCache
from odradek.storage.segment.fetched_batches import FetchedBatch as Batch
from odradek.storage.segment.fetched_batches import FetchedBatches, MisplacedBatch

_APPENDING = 1

RECORD = struct.Struct(">qqq")


class Roll:
    """storage.log.roll for storage.log.leader_or_follower, storage.log.repair and broker.replicator.follower_log."""

    @staticmethod
    def record_epoch(partition: Any, epoch: int, start: int) -> None:
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

    @staticmethod
    def read_epochs(partition: Any) -> EpochCache:
        return partition.directory.cache()


class KnownEpochs:
    """storage.log.known_epochs, read from a simulated directory."""

    @staticmethod
    def read(partition: Any, _noted: int) -> EpochCache:
        return partition.directory.cache()


class Trim:
    """storage.log.trim for DeleteRecords, and for its consequences."""

    @staticmethod
    def advance(partition: Any, values: Fields, log_start: int) -> None:
        if log_start > values[slots.F_LOG_START]:
            partition.slot.dirty = TRIMMING
            values[slots.F_LOG_START] = log_start
            values[slots.F_HW] = max(values[slots.F_HW], log_start)
            partition.slot.publish(values)
            partition.slot.dirty = 0


class Slice:
    """Records on their way to a follower (storage.files.openfile.FileSlice)."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)


class Read:
    """storage.log.read for workers.fetch.follower_fetch."""

    @staticmethod
    def fetch(partition: Any, values: Any, offset: int, limit: int, most: int, whole: bool = True) -> Slice | None:
        count = most // RECORD.size or (1 if whole else 0)
        records = partition.directory.records[offset : min(limit, offset + count)]
        data = b"".join(RECORD.pack(offset + at, *record) for at, record in enumerate(records))
        return Slice(data) if data else None


def append(partition: Any, values: Fields, batches: Sequence[Any], now_ms: int) -> int:
    """storage.log.append: records of producers."""
    before, epoch, directory = values[slots.F_LEO], values[slots.F_LEADER_EPOCH], partition.directory
    partition.slot.dirty = _APPENDING
    try:
        for batch in batches:
            batch.base_offset = values[slots.F_LEO]
            directory.disk.led(directory, epoch)
            directory.add(epoch, batch.value)
            values[slots.F_LEO] += 1
        if epoch != values[slots.F_LATEST_EPOCH]:
            Roll.record_epoch(partition, epoch, before)
            values[slots.F_LATEST_EPOCH] = epoch
    except OSError:
        failed(partition, values, batches)
        return -1
    if values[slots.F_HW_QUORUM] <= 1:
        values[slots.F_HW] = values[slots.F_LEO]
    partition.slot.publish(values)
    directory.shown()
    partition.slot.dirty = 0
    return values[slots.F_LEO]


def failed(partition: Any, values: Fields, batches: Sequence[Any]) -> None:
    """storage.log.append.failed of a broken disk; the write cannot be truncated."""
    values[:] = partition.slot.fields()
    values[slots.F_STATE] = slots.OFFLINE
    partition.slot.publish(values)
    partition.owner.disk_failed(values[slots.F_LOG_DIR])
    for batch in batches:
        batch.refuse(errors.KAFKA_STORAGE_ERROR)


class Received:
    """storage.segment.fetched_batches for broker.replicator.leader_fetcher."""

    @staticmethod
    def find(data: Any, leo: int) -> FetchedBatches:
        records = RECORD.iter_unpack(bytes(data))
        batches = [
            Batch(at * RECORD.size, RECORD.size, (offset, 0, epoch, 0, 0, 0, 0))
            for at, (offset, epoch, _) in enumerate(records)
        ]
        return FetchedBatches(leo, batches, None)


class Follow:
    """storage.log.append_as_follower for broker.replicator.follower_log."""

    @staticmethod
    def append(partition: Any, values: Fields, data: Any, hw: int, log_start: int, now_ms: int, known: Any) -> int:
        fault, directory = None, partition.directory
        if log_start >= values[slots.F_LEO]:  # all that is here is deleted there, and need not be what others had
            directory.chain[-1] = None
        partition.slot.dirty = _APPENDING
        try:
            fault = Follow._add(partition, values, data)
        except OSError:
            failed(partition, values, ())
            raise
        values[slots.F_HW] = max(values[slots.F_HW], min(hw, values[slots.F_LEO]))
        partition.slot.publish(values)
        directory.shown()
        partition.slot.dirty = 0
        Trim.advance(partition, values, min(log_start, values[slots.F_LEO]))
        if fault:
            raise fault
        return values[slots.F_LEO]

    @staticmethod
    def _add(partition: Any, values: Fields, data: Any) -> MisplacedBatch | None:
        directory, cache, fault = partition.directory, partition.directory.cache(), None
        for offset, epoch, value in RECORD.iter_unpack(bytes(data)):
            if offset != values[slots.F_LEO]:
                fault = MisplacedBatch(offset, values[slots.F_LEO])
                break
            if epoch != values[slots.F_LATEST_EPOCH]:
                cache.truncate_from_end(offset)
                cache.assign(epoch, offset)
                values[slots.F_LATEST_EPOCH] = epoch
            directory.add(epoch, value)
            values[slots.F_LEO] += 1
        directory.note(cache)
        return fault


class Truncate:
    """storage.log.truncate for broker.replicator.follower_log."""

    @staticmethod
    def truncate(partition: Any, values: Fields, offset: int) -> None:
        directory, leo = partition.directory, values[slots.F_LEO]
        if offset < directory.base:
            Truncate.restart(partition, values, offset)
        elif offset >= leo:
            Truncate._forget_epochs(partition, values)
        else:
            with _changing(partition, values):
                directory.cut((leo + offset + 1) // 2)
                directory.cut(offset)
                Truncate.finish(partition, values)

    @staticmethod
    def _forget_epochs(partition: Any, values: Fields) -> None:
        partition.slot.dirty = _APPENDING
        values[slots.F_LATEST_EPOCH] = Roll.cut_epochs(partition, values[slots.F_LEO])
        partition.slot.publish(values)
        partition.slot.dirty = 0

    @staticmethod
    def restart(partition: Any, values: Fields, offset: int) -> None:
        with _changing(partition, values):
            partition.directory.restart(offset)
            values[slots.F_LEO] = values[slots.F_LOG_START] = values[slots.F_HW] = offset
            Truncate.finish(partition, values)

    @staticmethod
    def finish(partition: Any, values: Fields) -> None:
        """Publish the log."""
        directory = partition.directory
        if directory.emptied:
            directory.restart(values[slots.F_LOG_START])
        leo = len(directory.records)
        values[slots.F_LATEST_EPOCH] = Roll.cut_epochs(partition, leo)
        values[slots.F_TRUNCATIONS] += 1
        values[slots.F_LEO] = leo
        values[slots.F_LOG_START] = max(directory.base, min(values[slots.F_LOG_START], leo))
        values[slots.F_HW] = max(values[slots.F_LOG_START], min(values[slots.F_HW], leo))
        partition.slot.publish(values)
        directory.shown()


@contextmanager
def _changing(partition: Any, values: Fields) -> Iterator[None]:
    partition.slot.dirty = TRUNCATING
    try:
        yield
    except OSError:
        failed(partition, values, ())
        raise
    partition.slot.dirty = 0


def lower(partition: Any, fields: Fields) -> None:
    """broker.process.checkpoint_lock for broker.replicator.follower_log."""
    directory = partition.directory
    directory.log_dir.write()
    directory.start_checkpoint = min(directory.start_checkpoint, fields[slots.F_LOG_START])
    partition.slot.publish(fields)


def recover(partition: Any, values: Fields) -> None:
    """storage.log.opening: the log on the disk, visible up to where other replicas are known to have it."""
    directory = partition.directory
    try:
        directory.log_dir.write()
    except OSError:
        failed(partition, values, ())
        return
    start = max(directory.start_checkpoint, directory.base)
    if directory.emptied or len(directory.records) < start:
        directory.restart(start)
    leo, cache = len(directory.records), directory.cache()
    cache.truncate_from_end(leo)
    directory.note(cache)
    values[slots.F_LOG_START] = start
    values[slots.F_LEO], values[slots.F_HW] = leo, max(start, min(directory.checkpoint, leo))
    values[slots.F_LATEST_EPOCH] = cache.latest
    values[slots.F_GENERATION] += 1
    values[slots.F_STATE] = values[slots.F_RECOVERS_TO]
    partition.slot.publish(values)
    directory.shown()
