"""Appending: the batches of many producers become one lock, one write and one publish for each partition.

Steps, with the lock held: mark dirty → check sequences, assign offsets in the receive buffer, grow the producer table
for new producers → pwritev → index → publish log end and size → apply producer updates, publish `pstate_leo` → clear
dirty. The caller then releases the lock and rings. A death before the first publish leaves garbage past the published
size; after a death between the two, repair replays the producers; nothing is acknowledged before the end.
A failed write (ENOSPC, EIO) publishes nothing: those batches are refused with KAFKA_STORAGE_ERROR. So is a batch whose
producer does not fit into the table, before it is written: no step after the publish can fail for lack of memory.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.ipc import replicas, slots
from odradek.ipc.partition_counts import BYTES_IN, FAILED_PRODUCE_REQUESTS, MESSAGES_IN
from odradek.ipc.region import SharedMemoryFull
from odradek.ipc.slots import (
    CHANGED,
    DIRTY,
    F_HW_QUORUM,
    F_LATEST_EPOCH,
    F_LEO,
    F_PSTATE_GEN,
    F_PSTATE_LEO,
    F_STATE,
    HOT,
    LEADER,
)
from odradek.protocol import errors
from odradek.protocol.batch import PLACE
from odradek.storage.files import disks
from odradek.storage.files.durable import FILES
from odradek.storage.log import producer_capacity, roll, transactions
from odradek.storage.segment.index import MAX_RELATIVE, OFFSET_ENTRY, TIME_ENTRY

if TYPE_CHECKING:
    from odradek.ipc.slots import Fields
    from odradek.storage.log.log_batch import Batch
    from odradek.storage.log.partition import ActiveFiles, Partition
    from odradek.storage.log.sequences import Staged

log = logging.getLogger(__name__)

_IOV_MAX = 1024


_NOT_LEADER = {
    slots.RECOVERING: errors.NOT_LEADER_OR_FOLLOWER,
    slots.FOLLOWER: errors.NOT_LEADER_OR_FOLLOWER,
    slots.OFFLINE: errors.KAFKA_STORAGE_ERROR,
}


def append(partition: Partition, values: Fields, batches: Sequence[Batch], now_ms: int) -> int:
    """Append `batches` in order; returns the log end, or -1 when nothing was written. Caller holds the lock.

    `values` are the slot's fields from `Partition.acquire`; this changes and publishes them. When the disk fails the
    slot stays dirty: the next holder of the lock repairs the half-done append.
    """
    state, before = values[F_STATE], values[F_LEO]
    if state != LEADER:
        return _refuse_all(batches, _NOT_LEADER.get(state, errors.UNKNOWN_TOPIC_OR_PARTITION))
    at, end = 0, len(batches)
    try:
        while at < end:
            reached = _segment(partition, values, batches, at, now_ms)
            if reached == at:
                roll.roll(partition, values)
            at = reached
    except OSError as error:
        failed(partition, values, batches, error)
    leo = values[F_LEO]
    return leo if leo > before else -1


def _refuse_all(batches: Sequence[Batch], error: int) -> int:
    for batch in batches:
        batch.refuse(error)
    return -1


def _segment(partition: Partition, values: Fields, batches: Sequence[Batch], at: int, now_ms: int) -> int:
    """Append from `at` until the batches or the segment end; returns the next index: `at` if a roll is due.

    The segment ends as in Kafka's LogSegment.shouldRoll: full, too old, index full, or offsets too far from the base.
    An empty segment takes at least one batch.
    This runs once for each append and its loop once for each batch: one function with local names, because
    measurements showed that every call and every attribute access in it matters.
    """
    (
        _, generation, _, epoch, log_start, base, index_entries, flushed, latest_epoch, pstate_gen,
        begin, hw, start, pending, top, top_offset, since, unflushed_since, _,
    ) = values[HOT].tolist()  # fmt: skip
    files, config, slot = partition.active_files, partition.config, partition.slot
    words, dirty = slot.words, slot.at + DIRTY
    full, timestamp = index_entries >= config.most_index_entries, batches[at].max_timestamp
    if start and (full or config.too_old(partition.directory, base, since, timestamp, now_ms)):
        return at
    if files is None or files.base != base or files.generation != generation:
        files = partition.active(base, generation, make=True)
    words[dirty] = 1
    room, interval = config.segment_bytes, config.index_interval_bytes
    leo, size, last_allowed = begin, start, base + MAX_RELATIVE
    staged: Staged | None = None
    entries: list[tuple[int, int, int, int]] = []  # index entries: offset, position, largest timestamp, its offset
    out: list[memoryview] = []
    for batch in batches[at:] if at else batches:
        view, count = batch.view, batch.count
        length = len(view)
        if (size + length > room and size) or leo + count > last_allowed:
            break
        at += 1
        if batch.producer_id >= 0:
            if staged is None:
                staged = partition.producers.staged(pstate_gen, begin)
            if not staged.extends(batch, leo) and not _in_sequence(partition, values, staged, batch, leo):
                continue
        PLACE.pack_into(view, 0, leo, length - 12, epoch)
        batch.base_offset = leo
        batch.log_start = log_start
        leo += count
        timestamp = batch.max_timestamp
        if timestamp > top:
            top, top_offset = timestamp, leo - 1
        if pending > interval:
            entries.append((leo - 1, size, top, top_offset))
            pending = 0
        if since < 0:
            since = timestamp if timestamp >= 0 else now_ms
        pending += length
        size += length
        out.append(view)
    if not out:
        words[dirty] = 0
        return at
    if os.pwritev(files.log.fd, out[:_IOV_MAX], start) != size - start:
        _write_rest(files.log.fd, out, start)
    if entries:
        add_entries(files, values, entries)
    if epoch != latest_epoch:
        roll.record_epoch(partition, epoch, begin)
        values[F_LATEST_EPOCH] = epoch
    if begin == flushed or not unflushed_since:
        unflushed_since = now_ms
    if values[F_HW_QUORUM] <= 1 and not config.visible_after_flush:
        hw = leo
    pstate_leo = leo if staged is None else begin
    values[CHANGED] = array("q", (leo, hw, size, pending, top, top_offset, since, unflushed_since, pstate_leo))
    slot.publish(values)
    if staged is not None:
        _publish_producers(partition, values, staged)
    words[dirty] = 0
    counts = partition.counts
    counts[BYTES_IN] += size - start
    counts[MESSAGES_IN] += leo - begin
    return at


def _in_sequence(partition: Partition, values: Fields, staged: Staged, batch: Batch, leo: int) -> bool:
    """Check an idempotent batch; False when it is refused or a retry (answered with the original's offset)."""
    if batch.guard is not None and not transactions.may_open(partition, values, staged, batch, leo):
        partition.unverified.append(batch)
        return False
    if staged.is_new(batch.producer_id) and not _begins(partition, values, staged, batch):
        return False
    if batch.marker is not None:
        return transactions.stage_marker(partition, values, staged, batch, leo)
    if batch.sequence < 0:  # transactional, written by the coordinator in a producer's name
        error, original = staged.enter(batch, leo), None
    else:
        error, original = staged.admit(batch, leo, some_open=values[slots.F_UNSTABLE] >= 0)
    if error:
        known = staged.known(batch.producer_id)  # its epoch and next sequence
        log.debug("%r: batch %d/%d/%d rejected: %d, of %s", partition, *_sequence(batch), error, known)
        _refuse_sequence(partition, values, batch, error)
        return False
    if original is not None:  # the answer has the original's timestamp, as in Kafka, for both timestamp types
        batch.base_offset, batch.append_time = original
        batch.log_start = values[slots.F_LOG_START]
        return False
    if batch.transactional and values[slots.F_UNSTABLE] < 0:
        values[slots.F_UNSTABLE] = leo
    return True


def _begins(partition: Partition, values: Fields, staged: Staged, batch: Batch) -> bool:
    """Whether a producer unknown to the partition may begin with this batch."""
    lowest, sequence = partition.lowest_sequences, batch.sequence
    if lowest and sequence >= 0 and lowest.refuses(batch.producer_id, sequence, time.monotonic()):
        _refuse_sequence(partition, values, batch, errors.OUT_OF_ORDER_SEQUENCE_NUMBER)
        return False
    return _admitted(partition, values, staged, batch)


def _admitted(partition: Partition, values: Fields, staged: Staged, batch: Batch) -> bool:
    try:
        producer_capacity.admit(partition, values, staged, batch.producer_id)
    except SharedMemoryFull as error:
        log.warning("%r: producer %d rejected: %s", partition, batch.producer_id, error.strerror)
        batch.refuse(errors.KAFKA_STORAGE_ERROR)
        return False
    return True


def _refuse_sequence(partition: Partition, values: Fields, batch: Batch, error: int) -> None:
    """Refuse with OUT_OF_ORDER_SEQUENCE_NUMBER only if all followers in the ISR fetch. Otherwise another broker may be
    the leader and have the previous batch in its log, and producers fail the record on that error.
    """
    gap, now_ms = error == errors.OUT_OF_ORDER_SEQUENCE_NUMBER, time.monotonic_ns() // 1_000_000
    if gap and replicas.any_silent(partition.slot, now_ms):
        error = errors.NOT_LEADER_OR_FOLLOWER
    else:
        partition.counts[FAILED_PRODUCE_REQUESTS] += 1
    batch.refuse(error)
    batch.log_start = values[slots.F_LOG_START]


def _sequence(batch: Batch) -> tuple[int, int, int]:
    return batch.producer_id, batch.epoch, batch.sequence


def add_entries(files: ActiveFiles, values: Fields, entries: list[tuple[int, int, int, int]]) -> None:
    """Index new batches of the active segment: an offset entry each, a time entry when the largest timestamp grew.

    `entries`: last offset, position, largest timestamp so far, its offset. Updates the counts in `values`.
    """
    base, last = values[slots.F_ACTIVE_BASE], values[slots.F_TIME_LAST]
    timed = []
    for _, _, top, top_offset in entries:
        if top > last:
            timed.append(TIME_ENTRY.pack(top, top_offset - base))
            last = top
    indexed = b"".join([OFFSET_ENTRY.pack(offset - base, position) for offset, position, _, _ in entries])
    FILES.pwrite(files.index_file.fd, indexed, values[slots.F_INDEX_ENTRIES] * OFFSET_ENTRY.size)
    values[slots.F_INDEX_ENTRIES] += len(entries)
    if timed:
        FILES.pwrite(files.time_file.fd, b"".join(timed), values[slots.F_TIME_ENTRIES] * TIME_ENTRY.size)
        values[slots.F_TIME_ENTRIES] += len(timed)
        values[slots.F_TIME_LAST] = last


def _publish_producers(partition: Partition, values: Fields, staged: Staged) -> None:
    """Apply the staged producer updates after the publish of the log end: see the module docstring."""
    if staged.begun and partition.lowest_sequences:  # not before: a failed write admits no producer
        for producer_id, _ in staged.begun:
            partition.lowest_sequences.forget(producer_id)
    leo = values[F_LEO]
    partition.producers.publish(staged, values[F_PSTATE_GEN], leo)
    values[F_PSTATE_LEO] = leo
    partition.slot.set_unpublished(F_PSTATE_LEO, leo)


def failed(partition: Partition, values: Fields, batches: Sequence[Batch], error: OSError) -> None:
    """Undo a failed write: refuse all batches since the last publish, and truncate them so that no recovery finds them.

    Resets `values` to the published fields; a broken disk takes the partition offline. The slot stays dirty.
    """
    level = logging.ERROR if error.errno != errno.ENOSPC else logging.WARNING
    log.log(level, "%r: append failed: %s", partition, error)
    published = partition.slot.fields()
    if disks.is_broken(error):
        published[F_STATE] = slots.OFFLINE
        partition.slot.publish(published)
        partition.owner.disk_failed(published[slots.F_LOG_DIR])
    values[:] = published
    for batch in batches:
        if batch.error == errors.NONE and (batch.base_offset >= published[F_LEO] or batch.base_offset < 0):
            batch.refuse(errors.KAFKA_STORAGE_ERROR)
    try:
        partition.cut_active(published[slots.F_ACTIVE_BASE], published[slots.F_ACTIVE_SIZE])
    except OSError:
        log.warning("%r: cannot truncate the failed write", partition)


def _write_rest(fd: int, views: list[memoryview], position: int) -> None:
    """Write all buffers again from the first: the write was short, or there are more than one call takes."""
    for start in range(0, len(views), _IOV_MAX):
        data = b"".join(views[start : start + _IOV_MAX])
        FILES.pwrite(fd, data, position)
        position += len(data)
