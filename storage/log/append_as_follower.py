"""Appending as a follower: batches from the leader, stored with the leader's offsets and epochs.

Layout    : as storage.log.append leaves it; a compacted leader's batches may have gaps between them, and fewer records
            than offsets.
Owner     : the partition, while this broker follows.
Writers   : the replicator, with the partition's lock.
Crash rule: the steps for each segment are an append's: dirty → aborted transactions → batches → indexes → epochs →
            publish (log end, size, high watermark, first unstable offset) → producers, publish `pstate_leo` → clear
            dirty. Repair cuts off what was not published: bytes, index entries, epochs past the log end, rows of
            aborted transactions; it replays producers from `pstate_leo`. A log start that grew moves last.

Nothing here reads records, except those of control batches. storage.segment.fetched_batches validates the data.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from odradek.ipc import slots
from odradek.ipc.slots import CHANGED, F_HW, F_LEO
from odradek.protocol import batch as wire
from odradek.storage.files.durable import FILES
from odradek.storage.log import append as appending
from odradek.storage.log import producer_capacity, replay, roll, transactions, trim, truncate
from odradek.storage.log.sequences import Staged
from odradek.storage.producers.producer_state import ABORT, AbortedTxn, parse_marker
from odradek.storage.segment.fetched_batches import FetchedBatch, FetchedBatches, find, sound
from odradek.storage.segment.index import MAX_RELATIVE

if TYPE_CHECKING:
    from odradek.ipc.slots import Fields
    from odradek.storage.config import LogConfig
    from odradek.storage.log.partition import Partition


def append(
    partition: Partition, values: Fields, data: bytes | memoryview, hw: int, log_start: int, now_ms: int,
    known: FetchedBatches | None = None,
) -> int:  # fmt: skip
    """Append a leader's `data`, adopt its `hw` and `log_start`; returns the log end. Caller follows and holds the lock.

    `known` is an earlier result of `find` for the data. Batches before a bad one are appended, then Misplaced or
    Corrupt is raised. On OSError nothing is published for the segment where it happened.
    If an empty log begins inside the first batch (the leader's log start lies there), the log end moves back to that
    batch.
    """
    view = memoryview(data)
    try:
        _begin_at_batch(partition, values, view)
        if known is None or known.leo != values[F_LEO]:
            known = find(view, values[F_LEO])
        _, batches, fault = sound(view, known)
        at = 0
        while at < len(batches):
            at = _piece(partition, values, view, batches, at, hw, now_ms)
        _apply_leader_offsets(partition, values, hw, log_start)
    except OSError as error:
        appending.failed(partition, values, (), error)
        raise
    if fault is not None:
        raise fault
    return values[F_LEO]


def _begin_at_batch(partition: Partition, values: Fields, data: memoryview) -> None:
    """Restart an empty log at the first batch: DeleteRecords may move a leader's log start into a batch, and the
    follower gets that batch whole."""
    leo = values[F_LEO]
    if len(data) < wire.HEADER_SIZE or values[slots.F_LOG_START] != leo:
        return
    first, length = wire.HEADER.unpack_from(data)[:2]
    batch = data[: max(length, 0) + wire.LOG_OVERHEAD]
    if first < leo < sound(batch, find(batch, first)).end:
        truncate.restart(partition, values, first)


def _piece(
    partition: Partition, values: Fields, data: memoryview, batches: list[FetchedBatch], at: int, hw: int, now_ms: int
) -> int:  # fmt: skip
    """Append the batches from `at` that fit the active segment, or roll; returns the next index."""
    upto = _fitting(partition, values, batches, at, now_ms)
    if upto == at:
        base = batches[at].header[0]
        skip = not values[slots.F_ACTIVE_SIZE] or batches[at].last_offset - values[F_LEO] > MAX_RELATIVE
        roll.roll(partition, values, base if skip else -1)
        return at
    partition.slot.dirty = 1
    piece = batches[at:upto]
    files = partition.active(values[slots.F_ACTIVE_BASE], values[slots.F_GENERATION], make=True)
    staged = _stage(partition, values, data, piece)
    producer_capacity.reserve_staged(partition, values, staged)
    FILES.pwrite(files.log.fd, data[piece[0].at : piece[-1].at + piece[-1].size], values[slots.F_ACTIVE_SIZE])
    begin = values[F_LEO]
    entries = _advance(partition.config, values, piece, now_ms)
    if entries:
        appending.add_entries(files, values, entries)
    _record_epochs(partition, values, piece)
    values[F_HW] = max(values[F_HW], min(hw, values[F_LEO]))
    values[slots.F_PSTATE_LEO] = begin if staged.rows else values[F_LEO]
    partition.slot.publish(values)
    if staged.rows:
        replay.publish(partition, values, staged)
    partition.slot.dirty = 0
    return upto


def _fitting(partition: Partition, values: Fields, batches: list[FetchedBatch], at: int, now_ms: int) -> int:
    """The index of the first batch that does not fit the active segment, by the rules of storage.log.append.

    An empty segment takes at least one batch, unless that is too far from its base.
    """
    config, base = partition.config, values[slots.F_ACTIVE_BASE]
    size, farthest = values[slots.F_ACTIVE_SIZE], base + MAX_RELATIVE
    full = values[slots.F_INDEX_ENTRIES] >= config.most_index_entries
    since, timestamp = values[slots.F_ACTIVE_SINCE], batches[at].header[8]
    if size and (full or config.too_old(partition.directory, base, since, timestamp, now_ms)):
        return at
    while at < len(batches):
        one = batches[at]
        if (size and size + one.size > config.segment_bytes) or one.last_offset > farthest:
            break
        at, size = at + 1, size + one.size
    return at


def _advance(
    config: LogConfig, values: Fields, piece: list[FetchedBatch], now_ms: int
) -> list[tuple[int, int, int, int]]:
    """Update `values` for the batches; returns the index entries to write."""
    begin, _, size, pending, top, top_offset, since, unflushed_since, _ = values[CHANGED]
    entries = []
    for one in piece:
        timestamp, last = one.header[8], one.last_offset
        if timestamp > top:
            top, top_offset = timestamp, last
        if pending > config.index_interval_bytes:
            entries.append((last, size, top, top_offset))
            pending = 0
        if since < 0:
            since = timestamp if timestamp >= 0 else now_ms
        pending, size = pending + one.size, size + one.size
    if begin == values[slots.F_FLUSHED] or not unflushed_since:
        unflushed_since = now_ms
    changed = (piece[-1].last_offset + 1, values[F_HW], size, pending, top, top_offset, since, unflushed_since, begin)
    values[CHANGED] = array("q", changed)
    return entries


def _record_epochs(partition: Partition, values: Fields, piece: list[FetchedBatch]) -> None:
    """Note the leader epochs that begin within the batches; as in Kafka, a batch without one changes nothing."""
    begun, noted = [], values[slots.F_LATEST_EPOCH]
    for one in piece:
        epoch = one.header[2]
        if epoch != noted and epoch >= 0:
            begun.append((epoch, one.header[0]))
            noted = epoch
    if begun:
        roll.record_received_epochs(partition, begun)
        values[slots.F_LATEST_EPOCH] = noted


def _stage(partition: Partition, values: Fields, data: memoryview, piece: list[FetchedBatch]) -> Staged:
    """Stage the producer updates of the batches; add rows of aborted transactions and the first unstable offset."""
    staged, going = Staged(None), None
    for one in piece:
        header = one.header
        if header[9] < 0:
            continue
        content = data[one.at : one.at + one.size]
        replay.stage(staged, header, content)
        if header[5] & (wire.TRANSACTIONAL | wire.CONTROL):
            going = going or _Transactions(partition, values)
            going.add(header, content)
    if going is not None:
        values[slots.F_UNSTABLE] = going.first()
    return staged


class _Transactions:
    """The open transactions of a partition, from its producer table and then batch by batch."""

    def __init__(self, partition: Partition, values: Fields) -> None:
        table = partition.producers.table(values[slots.F_PSTATE_GEN])
        entries = table.entries() if table is not None and values[slots.F_UNSTABLE] >= 0 else ()
        self._open = {entry.producer_id: entry.txn_first for entry in entries if entry.txn_first >= 0}
        self._partition, self._values = partition, values

    def first(self) -> int:
        """The first offset of the oldest open transaction, -1 when none is open."""
        return min(self._open.values(), default=-1)

    def add(self, header: tuple[int, ...], content: memoryview) -> None:
        base, producer_id = header[0], header[9]
        if not header[5] & wire.CONTROL:
            self._open.setdefault(producer_id, base)
            return
        marker = parse_marker(content)
        if marker is None:  # compaction has emptied it: its transaction has no record left
            return
        begun, last = self._open.pop(producer_id, -1), base + header[6]
        if marker[0] == ABORT and begun >= 0:
            stable = self.first()
            row = AbortedTxn(producer_id, begun, last, last + 1 if stable < 0 else stable)
            transactions.append_row(self._partition, self._values, row)


def _apply_leader_offsets(partition: Partition, values: Fields, hw: int, log_start: int) -> None:
    """Adopt the leader's high watermark, if no batch did, and its log start, up to the log end."""
    leo = values[F_LEO]
    visible = max(values[F_HW], min(hw, leo))
    if visible != values[F_HW]:
        values[F_HW] = visible
        partition.slot.publish(values)
    trim.advance(partition, values, min(log_start, leo))
