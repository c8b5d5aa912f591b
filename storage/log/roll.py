"""Sealing the active segment and opening the next. Caller holds the lock throughout.

Order: last time-index entry → producer snapshot → new empty files → publish (base, size 0, generation + 1). A death
before the publish leaves files above the active base, which repair removes; the roll is then due again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.ipc import renewal, slots
from odradek.storage.files import names
from odradek.storage.files.checkpoints import CheckpointError
from odradek.storage.files.durable import FILES, Files
from odradek.storage.log.partition import ROLLING
from odradek.storage.producers import snapshots
from odradek.storage.recovery.rebuild import LogState, walk_headers
from odradek.storage.segment import epochs
from odradek.storage.segment.index import TIME_ENTRY

if TYPE_CHECKING:
    from odradek.ipc.slots import Fields
    from odradek.storage.log.partition import Partition

log = logging.getLogger(__name__)


def roll(partition: Partition, values: Fields, base: int = -1) -> None:
    """Seal the active segment and publish an empty one that begins at the log end; updates `values`.

    With `base` the log end moves there, to the next offset in a leader's log: compaction has removed the offsets in
    between. Then an empty active segment is sealed too.
    """
    if base < 0 and not values[slots.F_ACTIVE_SIZE]:
        return
    with renewal.of(partition.slot):
        _roll(partition, values, base)


def _roll(partition: Partition, values: Fields, base: int) -> None:
    partition.slot.dirty = ROLLING
    partition.active(values[slots.F_ACTIVE_BASE], values[slots.F_GENERATION], make=True)  # a new log has no files yet
    seal_time_index(partition, values)
    if base > values[slots.F_LEO]:
        values[slots.F_LEO] = values[slots.F_PSTATE_LEO] = base
    base = values[slots.F_LEO]
    _snapshot_producers(partition, values)
    path = os.path.join(partition.directory, names.offset_name(base))
    for kind in (names.LOG, names.INDEX, names.TIME_INDEX):
        os.close(os.open(path + kind, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
    if partition.config.preallocate:
        _preallocate(path + names.LOG, partition.config.segment_bytes)
    values[slots.F_ACTIVE_BASE], values[slots.F_ACTIVE_SIZE] = base, 0
    values[slots.F_INDEX_ENTRIES] = values[slots.F_TIME_ENTRIES] = values[slots.F_INDEX_PENDING] = 0
    values[slots.F_TIME_LAST] = values[slots.F_MAX_TIMESTAMP] = values[slots.F_MAX_TIMESTAMP_OFFSET] = -1
    values[slots.F_ACTIVE_SINCE] = -1
    values[slots.F_GENERATION] += 1
    partition.slot.publish(values)
    partition.slot.dirty = 0


def seal_time_index(partition: Partition, values: Fields) -> None:
    """End the active segment's time index with its largest timestamp, regardless of the index interval.

    Called when the segment is sealed and at a clean stop: Kafka reads a segment's largest timestamp from there.
    """
    if values[slots.F_MAX_TIMESTAMP] <= values[slots.F_TIME_LAST]:
        return
    files = partition.active(values[slots.F_ACTIVE_BASE], values[slots.F_GENERATION])
    relative = values[slots.F_MAX_TIMESTAMP_OFFSET] - values[slots.F_ACTIVE_BASE]
    entry = TIME_ENTRY.pack(values[slots.F_MAX_TIMESTAMP], relative)
    FILES.pwrite(files.time_file.fd, entry, values[slots.F_TIME_ENTRIES] * TIME_ENTRY.size)
    values[slots.F_TIME_ENTRIES] += 1
    values[slots.F_TIME_LAST] = values[slots.F_MAX_TIMESTAMP]


def _snapshot_producers(partition: Partition, values: Fields) -> None:
    """Write the producers' state at the log end, so that recovery need not read the log from its start (KIP-98)."""
    table = partition.producers.table(values[slots.F_PSTATE_GEN])
    snapshots.write_table(partition.directory, values[slots.F_LEO], table)


def _preallocate(path: str, size: int) -> None:
    """Reserve blocks without growing the file: readers and recovery use its size."""
    import ctypes

    keep_size = 1
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.fallocate(fd, keep_size, ctypes.c_long(0), ctypes.c_long(size))
    finally:
        os.close(fd)


def record_epoch(partition: Partition, epoch: int, start_offset: int) -> None:
    """Add the leader epoch of the batch that will be published at `start_offset` to the epoch checkpoint."""
    cache = read_epochs(partition)
    if cache.assign(epoch, start_offset):
        cache.write(partition.directory, files=_UNSYNCED)


def record_received_epochs(partition: Partition, begun: Sequence[tuple[int, int]]) -> None:
    """`record_epoch` for each (epoch, first offset) in batches from a leader, which may be older than one noted here.

    An epoch noted at or past that first offset has no batch: this broker led in it and no producer wrote.
    """
    cache = read_epochs(partition)
    for epoch, start in begun:
        cache.truncate_from_end(start)
        cache.assign(epoch, start)
    cache.write(partition.directory, files=_UNSYNCED)


def cut_epochs(partition: Partition, end: int) -> int:
    """Remove the leader epochs noted at or past offset `end`; returns the newest remaining one, -1 for none."""
    cache = read_epochs(partition)
    if cache.truncate_from_end(end):
        cache.write(partition.directory, files=_UNSYNCED)
    return cache.latest


def read_epochs(partition: Partition) -> epochs.EpochCache:
    """The epoch checkpoint, rebuilt from the batches if it is broken or has lost noted epochs. OSError.

    Kafka has the epochs in memory, so damage to the file has no effect there before the next start. Without the former
    epochs, the next noted epoch would count as the log's first: a follower that diverges below it would not learn so,
    and the next recovery has no reason to read the batches.
    """
    published = partition.slot.fields()
    try:
        return epochs.EpochCache.read_noted(partition.directory, published[slots.F_LATEST_EPOCH])
    except CheckpointError as problem:
        log.warning("%r: rebuilt the leader epochs: %s", partition, problem)
    with renewal.of(partition.slot):
        cache = _epochs_of_batches(Path(partition.directory), published)
    cache.write(partition.directory, files=_UNSYNCED)
    return cache


def _epochs_of_batches(directory: Path, published: Fields) -> epochs.EpochCache:
    """The epochs of the published batches; bytes behind them may never have been appended."""
    cache, upto = epochs.EpochCache(), published[slots.F_LEO]
    for base in names.segment_bases(directory):
        if base < upto:
            walk_headers(directory, base, LogState(cache, {}, upto), upto=upto)
    cache.truncate_from_start(published[slots.F_LOG_START])
    return cache


class _Unsynced(Files):
    """Files without fsync for the epoch checkpoint: it can be rebuilt, so an append need not wait for the disk."""

    def fsync(self, fd: int) -> None:
        pass


_UNSYNCED = _Unsynced()
