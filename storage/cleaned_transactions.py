"""Which transactions a compaction is in the midst of, as it walks a log from its start.

Records of aborted transactions may go at once. A marker may go when no batch of its transaction is left; the rows of
the new `.txnindex` are those of the abort markers that must stay.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from odradek.storage.producers import ABORT, COMMIT, AbortedTxn, parse_marker
from odradek.storage.scan import TRANSACTIONAL, Batch


class CleanedTransactions:
    """Feed it every batch in offset order; `kept` collects rows of the segment being written."""

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._coming = [(row.first_offset, row) for row in aborted]
        heapq.heapify(self._coming)
        self._aborted: dict[int, AbortedTxn] = {}  # open ones by producer id
        self._seen: set[int] = set()  # of those, the ones that still have batches
        self._committed: set[int] = set()
        self.kept: list[AbortedTxn] = []

    def _begin(self, offset: int) -> None:
        while self._coming and self._coming[0][0] <= offset:
            row = heapq.heappop(self._coming)[1]
            self._aborted.setdefault(row.producer_id, row)

    def is_aborted(self, batch: Batch) -> bool:
        """Take a data batch; whether its transaction was aborted."""
        self._begin(batch.last_offset)
        if batch.magic < 2 or not batch.attributes & TRANSACTIONAL:
            return False
        if batch.producer_id in self._aborted:
            self._seen.add(batch.producer_id)
            return True
        self._committed.add(batch.producer_id)
        return False

    def is_spent(self, batch: Batch, payload: bytes) -> bool:
        """Take a control batch; whether nothing is left of the transaction it ends."""
        self._begin(batch.last_offset)
        if not batch.records:
            return True
        kind, _ = parse_marker(payload) or (-1, 0)
        if kind == COMMIT:
            spent = batch.producer_id not in self._committed
            self._committed.discard(batch.producer_id)
            return spent
        return kind == ABORT and self._end_aborted(batch.producer_id)

    def _end_aborted(self, producer_id: int) -> bool:
        row = self._aborted.pop(producer_id, None)
        if row is None or producer_id not in self._seen:
            return True
        self._seen.discard(producer_id)
        self.kept.append(row)
        return False
