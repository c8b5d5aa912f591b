"""Verifies the transaction indexes of a log against its batches, in the one pass that reads them.

A row must name an abort marker of its producer in the segment, and the transaction's first offset. An abort marker that
ends a transaction with remaining batches must have a row: without it consumers would see aborted records. A transaction
that began before the log's first segment, or whose batches were compacted since, cannot be verified.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from odradek.protocol.batch import CONTROL, TRANSACTIONAL
from odradek.storage.files.faults import DamagedIndex, Fault
from odradek.storage.producers.producer_state import ABORT, AbortedTxn, parse_marker, read_txn_index
from odradek.storage.segment.scan import Batch, Scan


class _Aborted(NamedTuple):
    """The transaction that an abort marker has ended; `first` is -1 when the log has none of its batches."""

    producer_id: int
    first: int


class TransactionCheck:
    """All segments of one log in order: `batch` for each batch, `end` after each segment's last."""

    def __init__(self, compacted: bool) -> None:
        self._compacted = compacted
        self._begin = -1  # the log's first offset
        self._open: dict[int, int] = {}  # producer id → first offset
        self._aborted: dict[int, _Aborted] = {}  # by the marker's offset, of this segment

    def batch(self, batch: Batch, scan: Scan) -> None:
        """Add a batch of the log, which `scan` has just yielded."""
        if self._begin < 0:
            self._begin = batch.base_offset
        if batch.magic < 2 or not batch.attributes & TRANSACTIONAL:
            return
        if not batch.attributes & CONTROL:
            self._open.setdefault(batch.producer_id, batch.base_offset)
        elif (marker := parse_marker(scan.payload())) is not None:
            first = self._open.pop(batch.producer_id, -1)
            if marker[0] == ABORT:
                self._aborted[batch.last_offset] = _Aborted(batch.producer_id, first)

    def end(self, path: Path) -> Iterator[Fault]:
        """Faults of the segment's transaction index at `path`."""
        aborted, self._aborted = self._aborted, {}
        try:
            rows = {row.last_offset: row for row in read_txn_index(path)}
        except DamagedIndex as problem:
            yield Fault(path, str(problem).partition(": ")[2])
            return
        for row in rows.values():
            if (what := aborted.get(row.last_offset)) is None or what.producer_id != row.producer_id:
                yield Fault(path, f"aborted transaction {tuple(row)} is not within the segment: it has no such marker")
            elif not self._begins_right(row, what.first):
                yield Fault(path, f"aborted transaction {tuple(row)} began at offset {what.first}")
        for offset, (producer_id, first) in aborted.items():
            if first >= 0 and offset not in rows:
                message = f"lacks the transaction of producer {producer_id} from offset {first}, aborted at {offset}"
                yield Fault(path, message)

    def _begins_right(self, row: AbortedTxn, first: int) -> bool:
        return row.first_offset == first or self._compacted or row.first_offset < self._begin
