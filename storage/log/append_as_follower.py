"""Appending what a leader has sent: batches with their offsets and epochs, which are stored as they are.

Layout    : as storage.log.append leaves it; a compacted leader's batches may have gaps between them, and fewer records
            than offsets.
Owner     : the partition, while this broker follows.
Writers   : the replicator, with the partition's lock.
Crash rule: the steps for each segment are an append's: dirty → aborted transactions → batches → indexes → epochs →
            publish (log end, size, high watermark, first unstable offset) → producers, publish `pstate_leo` → clear
            dirty. What was not published is cut off by repair: bytes, index entries, epochs past the log end, rows of
            aborted transactions; producers are replayed from `pstate_leo` on. A log start that grew moves last.

Nothing here looks into records, but for those of control batches. What of the data is sound storage.log.fetched_batches
says.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from odradek.ipc import slots
from odradek.ipc.slots import CHANGED, F_HW, F_LEO
from odradek.protocol import batch as wire
from odradek.storage.files.durable import FILES
from odradek.storage.log import append as appending
from odradek.storage.log import producer_room, replay, roll, transactions, trim, truncate
from odradek.storage.log.fetched_batches import Found, Received, find, sound
from odradek.storage.log.sequences import Staged
from odradek.storage.producers.producers import ABORT, AbortedTxn, parse_marker
from odradek.storage.segment.index import MAX_RELATIVE

if TYPE_CHECKING:
    from odradek.ipc.slots import Fields
    from odradek.storage.config import LogConfig
    from odradek.storage.log.partition import Partition


def append(
    partition: Partition, values: Fields, data: bytes | memoryview, hw: int, log_start: int, now_ms: int,
    known: Found | None = None,
) -> int:  # fmt: skip
    """Append a leader's `data` and take over its `hw` and `log_start`; the log end. Caller holds the lock, as follower.

    `known` is what `find` has found in the data before. Where a batch is bad, those before it are appended all the
    same, then Misplaced or Corrupt is raised. On OSError nothing is published of the segment where it happened.
    A first batch in whose midst an empty log begins (the leader's log start lies there) moves the log end back to it.
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
        _take_over(partition, values, hw, log_start)
    except OSError as error:
        appending.failed(partition, values, (), error)
        raise
    if fault is not None:
        raise fault
    return values[F_LEO]


def _begin_at_batch(partition: Partition, values: Fields, data: memoryview) -> None:
    """DeleteRecords may move a leader's log start into a batch, which an empty follower then gets whole."""
    leo = values[F_LEO]
    if len(data) < wire.HEADER_SIZE or values[slots.F_LOG_START] != leo:
        return
    first, length = wire.HEADER.unpack_from(data)[:2]
    batch = data[: max(length, 0) + wire.LOG_OVERHEAD]
    if first < leo < sound(batch, find(batch, first)).end:
        truncate.restart(partition, values, first)


def _piece(
    partition: Partition, values: Fields, data: memoryview, batches: list[Received], at: int, hw: int, now_ms: int
) -> int:  # fmt: skip
    """Append from batch `at` on what belongs into the active segment, or begin the next one; where to go on."""
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
    producer_room.reserve_staged(partition, values, staged)
    FILES.pwrite(files.log.fd, data[piece[0].at : piece[-1].at + piece[-1].size], values[slots.F_ACTIVE_SIZE])
    begin = values[F_LEO]
    entries = _advance(partition.config, values, piece, now_ms)
    if entries:
        appending.add_entries(files, values, entries)
    _note_epochs(partition, values, piece)
    values[F_HW] = max(values[F_HW], min(hw, values[F_LEO]))
    values[slots.F_PSTATE_LEO] = begin if staged.rows else values[F_LEO]
    partition.slot.publish(values)
    if staged.rows:
        replay.publish(partition, values, staged)
    partition.slot.dirty = 0
    return upto


def _fitting(partition: Partition, values: Fields, batches: list[Received], at: int, now_ms: int) -> int:
    """Which batch is the first that is not for the active segment, by the rules of storage.log.append.

    At least one is for an empty segment, unless it is too far from its base.
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


def _advance(config: LogConfig, values: Fields, piece: list[Received], now_ms: int) -> list[tuple[int, int, int, int]]:
    """Let `values` follow the batches; the index entries to write."""
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


def _note_epochs(partition: Partition, values: Fields, piece: list[Received]) -> None:
    """Those that begin within the batches; as in Kafka a batch without one leaves it at that."""
    begun, noted = [], values[slots.F_EPOCH_NOTED]
    for one in piece:
        epoch = one.header[2]
        if epoch != noted and epoch >= 0:
            begun.append((epoch, one.header[0]))
            noted = epoch
    if begun:
        roll.note_received_epochs(partition, begun)
        values[slots.F_EPOCH_NOTED] = noted


def _stage(partition: Partition, values: Fields, data: memoryview, piece: list[Received]) -> Staged:
    """What producers did in the batches; aborted transactions get their rows, `values` the first unstable offset."""
    staged, going = Staged(None), None
    for one in piece:
        header = one.header
        if header[9] < 0:
            continue
        content = data[one.at : one.at + one.size]
        replay.stage(staged, header, content)
        if header[5] & (wire.TRANSACTIONAL | wire.CONTROL):
            going = going or _Transactions(partition, values)
            going.take(header, content)
    if going is not None:
        values[slots.F_UNSTABLE] = going.first()
    return staged


class _Transactions:
    """The transactions open in a partition, from its producer table and then batch by batch."""

    def __init__(self, partition: Partition, values: Fields) -> None:
        table = partition.producers.table(values[slots.F_PSTATE_GEN])
        entries = table.entries() if table is not None and values[slots.F_UNSTABLE] >= 0 else ()
        self._open = {entry.producer_id: entry.txn_first for entry in entries if entry.txn_first >= 0}
        self._partition, self._values = partition, values

    def first(self) -> int:
        """The first offset of the oldest, -1 when none is open."""
        return min(self._open.values(), default=-1)

    def take(self, header: tuple[int, ...], content: memoryview) -> None:
        base, producer_id = header[0], header[9]
        if not header[5] & wire.CONTROL:
            self._open.setdefault(producer_id, base)
            return
        marker = parse_marker(content)
        if marker is None:  # emptied by compaction: its transaction has no record left
            return
        begun, last = self._open.pop(producer_id, -1), base + header[6]
        if marker[0] == ABORT and begun >= 0:
            stable = self.first()
            row = AbortedTxn(producer_id, begun, last, last + 1 if stable < 0 else stable)
            transactions.append_row(self._partition, self._values, row)


def _take_over(partition: Partition, values: Fields, hw: int, log_start: int) -> None:
    """The leader's high watermark, where no batch brought it, and its log start, as far as the log goes."""
    leo = values[F_LEO]
    visible = max(values[F_HW], min(hw, leo))
    if visible != values[F_HW]:
        values[F_HW] = visible
        partition.slot.publish(values)
    trim.advance(partition, values, min(log_start, leo))
