"""Checking that the indexes of a trusted segment fit its log, without reading all of it.

This checks the ends of both indexes, the batches from the last time entry, which may hold no larger timestamp, and the
marker and first batch of each aborted transaction. Readers check the entries in between when they use them
(storage.log.read, storage.log.timestamp_queries). Caller owns the directory alone; nothing is written.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from odradek.protocol.batch import CONTROL, TRANSACTIONAL
from odradek.storage.files import names
from odradek.storage.files.durable import FILES
from odradek.storage.files.faults import DamagedIndex
from odradek.storage.producers.producer_state import ABORT, TXN_ENTRY, AbortedTxn, parse_marker, read_txn_index
from odradek.storage.recovery.rebuild import position_before
from odradek.storage.segment import index_files
from odradek.storage.segment.index import OffsetIndex
from odradek.storage.segment.index_files import TimestampOffset
from odradek.storage.segment.scan import Batch, Scan

_WALKED = 1 << 20  # bytes at a segment's end: a limit for segments with the largest timestamp early


def looks_right(directory: Path, bases: Sequence[int], base: int, following: int, gaps_upto: int) -> bool:
    """Whether all indexes of the sealed segment at `base` fit. `following` is the base of the next segment.

    `bases` are the log's; below `gaps_upto` compaction may have removed the first batch of a transaction.
    """
    size = os.stat(names.segment_path(directory, base)).st_size
    if not index_files.indexes_look_right(directory, base, size, following):
        return False
    if not size:
        return True
    ends = ends_right(directory, base, size, following)
    return ends and rows_right(directory, bases, base, following, gaps_upto)


def ends_right(directory: Path, base: int, size: int, following: int, sealed: bool = True) -> bool:
    """Whether batches lead from the last time entry's batch to the segment's end, and none is newer than that entry.

    In a segment that is not `sealed`, batches after the last offset entry may be newer: no time entry is due yet.
    """
    newest = index_files.last_time_entry(names.segment_path(directory, base, names.TIME_INDEX), base)
    last = index_files.last_offset_entry(names.segment_path(directory, base, names.INDEX), base)
    index = OffsetIndex(str(names.segment_path(directory, base, names.INDEX)))
    start = index.position_before(newest.offset - base, index.entries) if newest is not None else 0
    start = max(start, index.boundary_before(max(size - _WALKED, 0), index.entries))
    indexed = last.position if last is not None else -1
    seen = indexed < start
    with FILES.opened(names.segment_path(directory, base), os.O_RDONLY) as fd:
        walk = Scan(fd, start, check=False)
        for batch in walk:
            due = sealed or batch.position <= indexed
            if not base <= batch.base_offset <= batch.last_offset < following or _contradicts(batch, newest, due):
                return False
            if last is not None and batch.position == indexed:
                seen = batch.last_offset <= last.offset
    return walk.bad is None and seen and (newest is None or newest.offset < walk.least_offset)


def _contradicts(batch: Batch, newest: TimestampOffset | None, due: bool) -> bool:
    """Whether the last time entry contradicts a batch; `due`: the entry must cover the batch."""
    if newest is None:
        return due and batch.max_timestamp >= 0
    holds = batch.base_offset <= newest.offset <= batch.last_offset
    larger, another = batch.max_timestamp > newest.timestamp, batch.max_timestamp != newest.timestamp
    return (due and larger) or (holds and another)


def rows_right(directory: Path, bases: Sequence[int], base: int, following: int, gaps_upto: int) -> bool:
    """Whether each row of the transaction index names an abort marker in the segment, and its transaction's first
    batch."""
    path = names.segment_path(directory, base, names.TXN_INDEX)
    try:
        rows = read_txn_index(path)
    except DamagedIndex:
        return False
    if path.exists() and os.stat(path).st_size % TXN_ENTRY.size:
        return False
    markers = [row.last_offset for row in rows]
    if markers != sorted(set(markers)) or any(row.last_offset >= following for row in rows):
        return False
    return all(row.is_possible(base) and _is_true(directory, bases, base, row, gaps_upto) for row in rows)


def _is_true(directory: Path, bases: Sequence[int], base: int, row: AbortedTxn, gaps_upto: int) -> bool:
    marker, payload = batch_at(directory, base, row.last_offset)
    if marker is None or marker.producer_id != row.producer_id or not marker.attributes & CONTROL:
        return False
    if (parse_marker(payload) or (-1, 0))[0] != ABORT:
        return False
    if row.first_offset < bases[0]:
        return True
    first, _ = batch_at(directory, max(one for one in bases if one <= row.first_offset), row.first_offset)
    if first is None:
        return row.first_offset < gaps_upto
    begun = first.attributes & (TRANSACTIONAL | CONTROL) == TRANSACTIONAL and first.producer_id == row.producer_id
    return begun and first.base_offset == row.first_offset


def batch_at(directory: Path, base: int, offset: int) -> tuple[Batch | None, bytes]:
    """The batch that holds `offset` in the segment at `base`, and its bytes; (None, b"") if there is none."""
    position = position_before(directory, base, offset)
    with FILES.opened(names.segment_path(directory, base), os.O_RDONLY) as fd:
        scan = Scan(fd, position, check=False)
        for batch in scan:
            if batch.last_offset >= offset:
                return (batch, scan.payload()) if batch.base_offset <= offset else (None, b"")
    return None, b""
