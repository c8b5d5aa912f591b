"""Appending: what many producers sent in one round becomes one lock, one write and one publish per partition.

Steps, with the lock held: mark dirty → check sequences, assign offsets in the receive buffer → pwritev → index →
publish log end and size → apply producer updates, publish `pstate_leo` → clear dirty. The caller then gives the lock
back and rings. Dying anywhere before the first publish leaves garbage past the published size; between the two,
repair replays the producers; nothing is acknowledged before the end.
A failed write (ENOSPC, EIO) publishes nothing: those batches are refused with KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

import errno
import logging
import os
from typing import TYPE_CHECKING

from odradek.ipc import slots
from odradek.protocol import errors
from odradek.protocol.batch import PLACE
from odradek.storage import disks, roll, transactions
from odradek.storage.index import OFFSET_ENTRY, TIME_ENTRY
from odradek.storage.sequences import OWN, TRANSACTIONAL, ProducerBatch, Staged

if TYPE_CHECKING:
    from odradek.storage.partition import ActiveFiles, Partition
    from odradek.storage.transactions import Marker

log = logging.getLogger(__name__)

_IOV_MAX = 1024


class Batch:
    """One record batch of magic 2 on its way into a partition, and what became of it.

    In: `view` (writable, the whole batch), `count` records, `max_timestamp` ms, producer fields (id -1 when not
    idempotent). Out: `error`, `base_offset`, `append_time` (-1 unless LogAppendTime), `log_start`.
    """

    __slots__ = (
        "append_time", "base_offset", "count", "epoch", "error", "log_start", "marker", "max_timestamp", "message",
        "producer_id", "record_errors", "sequence", "transactional", "view",
    )  # fmt: skip

    def __init__(
        self, view: memoryview, count: int, max_timestamp: int, producer_id: int = -1, epoch: int = -1,
        sequence: int = -1,
    ) -> None:  # fmt: skip
        self.view = view
        self.count = count
        self.max_timestamp = max_timestamp
        self.producer_id = producer_id
        self.epoch = epoch
        self.sequence = sequence
        self.error = errors.NONE
        self.base_offset = -1
        self.append_time = -1
        self.log_start = -1
        self.transactional = False
        self.marker: Marker | None = None  # only in control batches of our own (storage.transactions)
        self.message: str | None = None
        self.record_errors: tuple[tuple[int, str | None], ...] = ()

    def refuse(self, error: int, message: str | None = None) -> None:
        """Mark as not appended."""
        self.error = error
        self.base_offset = -1
        self.message = message


_NOT_LEADER = {
    slots.RECOVERING: errors.NOT_LEADER_OR_FOLLOWER,
    slots.FOLLOWER: errors.NOT_LEADER_OR_FOLLOWER,
    slots.OFFLINE: errors.KAFKA_STORAGE_ERROR,
}


def append(partition: Partition, values: list[int], batches: list[Batch], now_ms: int) -> int:
    """Append `batches` in order; returns the log end, or -1 when nothing was written. Caller holds the lock.

    `values` are the slot's fields as `Partition.acquire` gave them; they are published changed.
    """
    state = values[slots.F_STATE]
    if state != slots.LEADER:
        return _refuse_all(batches, _NOT_LEADER.get(state, errors.UNKNOWN_TOPIC_OR_PARTITION))
    slot = partition.slot
    slot.dirty = 1
    before = values[slots.F_LEO]
    if _Append(partition, values, now_ms).run(batches):
        slot.dirty = 0
    return values[slots.F_LEO] if values[slots.F_LEO] > before else -1


def _refuse_all(batches: list[Batch], error: int) -> int:
    for batch in batches:
        batch.refuse(error)
    return -1


class _Append:
    """One run over a round's batches; rolls in between when a segment is full."""

    def __init__(self, partition: Partition, values: list[int], now_ms: int) -> None:
        self.partition = partition
        self.values = values
        self.now_ms = now_ms
        self.files = self._open()
        self.staged: Staged | None = None

    def _open(self) -> ActiveFiles:
        values = self.values
        return self.partition.active(values[slots.F_ACTIVE_BASE], values[slots.F_GENERATION], make=True)

    def run(self, batches: list[Batch]) -> bool:
        """Append all; False when the disk failed: the next holder of the lock has to repair what is half done."""
        at, end = 0, len(batches)
        try:
            while at < end:
                at = self._segment(batches, at)
        except OSError as error:
            self._failed(batches, error)
            return False
        return True

    def _segment(self, batches: list[Batch], at: int) -> int:
        """Append from `at` on until the batches or the segment end; returns where to go on."""
        partition, values, config = self.partition, self.values, self.partition.config
        if roll.due(values, config, batches[at], self.now_ms):
            self._roll()
        leo, size = values[slots.F_LEO], values[slots.F_ACTIVE_SIZE]
        base, epoch = values[slots.F_ACTIVE_BASE], values[slots.F_LEADER_EPOCH]
        log_start, top = values[slots.F_LOG_START], values[slots.F_MAX_TIMESTAMP]
        pending, interval = values[slots.F_INDEX_PENDING], config.index_interval_bytes
        room, last_allowed = config.segment_bytes, base + 0x7FFFFFFF
        indexed: list[bytes] = []
        timed: list[bytes] = []
        time_last, top_offset = values[slots.F_TIME_LAST], values[slots.F_MAX_TIMESTAMP_OFFSET]
        out: list[memoryview] = []
        place = PLACE.pack_into
        first_timestamp = values[slots.F_ACTIVE_SINCE]
        while at < len(batches):
            batch = batches[at]
            view = batch.view
            length = len(view)
            if (size + length > room and size) or leo + batch.count > last_allowed:
                break
            at += 1
            if batch.producer_id >= 0 and not self._in_sequence(batch, leo):
                continue
            place(view, 0, leo, length - 12, epoch)
            batch.base_offset = leo
            batch.log_start = log_start
            leo += batch.count
            timestamp = batch.max_timestamp
            if timestamp > top:
                top, top_offset = timestamp, leo - 1
            if pending > interval:
                indexed.append(OFFSET_ENTRY.pack(leo - 1 - base, size))
                if top > time_last:
                    timed.append(TIME_ENTRY.pack(top, top_offset - base))
                    time_last = top
                pending = 0
            if first_timestamp < 0:
                first_timestamp = timestamp if timestamp >= 0 else self.now_ms
            pending += length
            size += length
            out.append(view)
        if not out:
            return at
        _write_all(self.files.log.fd, out, values[slots.F_ACTIVE_SIZE])
        self._index(indexed, timed)
        if epoch != values[slots.F_EPOCH_NOTED]:
            roll.note_epoch(partition, epoch, values[slots.F_LEO])
            values[slots.F_EPOCH_NOTED] = epoch
        if values[slots.F_LEO] == values[slots.F_FLUSHED] or not values[slots.F_UNFLUSHED_SINCE]:
            values[slots.F_UNFLUSHED_SINCE] = self.now_ms
        values[slots.F_LEO], values[slots.F_ACTIVE_SIZE] = leo, size
        values[slots.F_MAX_TIMESTAMP], values[slots.F_MAX_TIMESTAMP_OFFSET] = top, top_offset
        values[slots.F_INDEX_PENDING], values[slots.F_TIME_LAST] = pending, time_last
        values[slots.F_ACTIVE_SINCE] = first_timestamp
        self._publish()
        return at

    def _in_sequence(self, batch: Batch, leo: int) -> bool:
        """Check an idempotent batch; False when it is refused or a retry (which is answered with its offset)."""
        staged = self.staged
        if staged is None:
            staged = self.staged = Staged(self.partition.producers.table(self.values[slots.F_PSTATE_GEN]))
        if batch.marker is not None:
            return transactions.stage_marker(self.partition, self.values, staged, batch, leo)
        first = batch.sequence
        if first < 0:
            return self._own(batch, staged, leo)
        last = first + batch.count - 1
        if last > 0x7FFFFFFF:
            last -= 0x80000000
        error, duplicate = staged.check(batch.producer_id, batch.epoch, first, last)
        if error:
            batch.refuse(error)
            return False
        if duplicate is not None:
            batch.base_offset, batch.log_start = duplicate[2], self.values[slots.F_LOG_START]
            return False
        row = ProducerBatch(first, last, leo, leo + batch.count - 1, batch.max_timestamp)
        if batch.transactional:
            staged.let_in(batch.producer_id, batch.epoch, row, TRANSACTIONAL)
            if self.values[slots.F_UNSTABLE] < 0:
                self.values[slots.F_UNSTABLE] = leo
        else:
            staged.let_in(batch.producer_id, batch.epoch, row)
        return True

    def _own(self, batch: Batch, staged: Staged, leo: int) -> bool:
        """A transactional batch that the coordinator wrote in a producer's name; clients' always have sequences."""
        error = staged.check_own(batch.producer_id, batch.epoch)
        if error:
            batch.refuse(error)
            return False
        row = ProducerBatch(-1, -1, leo, leo + batch.count - 1, batch.max_timestamp)
        staged.let_in(batch.producer_id, batch.epoch, row, OWN)
        if self.values[slots.F_UNSTABLE] < 0:
            self.values[slots.F_UNSTABLE] = leo
        return True

    def _index(self, indexed: list[bytes], timed: list[bytes]) -> None:
        values, files = self.values, self.files
        if indexed:
            _write(files.index_file.fd, b"".join(indexed), values[slots.F_INDEX_ENTRIES] * OFFSET_ENTRY.size)
            values[slots.F_INDEX_ENTRIES] += len(indexed)
        if timed:
            _write(files.time_file.fd, b"".join(timed), values[slots.F_TIME_ENTRIES] * TIME_ENTRY.size)
            values[slots.F_TIME_ENTRIES] += len(timed)

    def _publish(self) -> None:
        """Log end and size first, then what producers sent: see the module's head."""
        values, slot = self.values, self.partition.slot
        if values[slots.F_ISR_COUNT] <= 1 and not self.partition.config.visible_after_flush:
            values[slots.F_HW] = values[slots.F_LEO]
        staged, former = self.staged, values[slots.F_PSTATE_GEN]
        if staged is not None and staged.batches:
            slot.publish(values)
            values[slots.F_PSTATE_GEN] = self.partition.producers.apply(staged, former)
        values[slots.F_PSTATE_LEO] = values[slots.F_LEO]
        slot.publish(values)
        if former != values[slots.F_PSTATE_GEN]:
            self.partition.producers.retire(former)
        self.staged = None

    def _roll(self) -> None:
        roll.roll(self.partition, self.values, self.now_ms)
        self.files = self._open()
        self.partition.slot.dirty = 1

    def _failed(self, batches: list[Batch], error: OSError) -> None:
        """Nothing since the last publish counts: refuse it, and cut it off so that no recovery finds it."""
        partition = self.partition
        level = logging.ERROR if error.errno != errno.ENOSPC else logging.WARNING
        log.log(level, "%r: append failed: %s", partition, error)
        published = list(partition.slot.read())
        if disks.is_broken(error):
            published[slots.F_STATE] = slots.OFFLINE
            partition.slot.publish(published)
            partition.owner.disk_failed(published[slots.F_LOG_DIR])
        self.values[:] = published
        for batch in batches:
            if batch.error == errors.NONE and (batch.base_offset >= published[slots.F_LEO] or batch.base_offset < 0):
                batch.refuse(errors.KAFKA_STORAGE_ERROR)
        try:
            os.ftruncate(self.files.log.fd, published[slots.F_ACTIVE_SIZE])
        except OSError:
            log.warning("%r: could not cut the failed write off", partition)


def _write_all(fd: int, views: list[memoryview], position: int) -> None:
    """pwritev of any number of buffers, minding short writes."""
    for start in range(0, len(views), _IOV_MAX):
        chunk = views[start : start + _IOV_MAX] if len(views) > _IOV_MAX else views
        wanted = sum(map(len, chunk))
        written = os.pwritev(fd, chunk, position)
        if written != wanted:
            _write(fd, b"".join(chunk)[written:], position + written)
        position += wanted


def _write(fd: int, data: bytes, position: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, position)
        view, position = view[written:], position + written
