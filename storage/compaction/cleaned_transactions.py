"""Transactions in a compaction pass: which batches were aborted, and which markers no longer end anything.

An aborted transaction is a row of a `.txnindex`: a producer, the first offset of its data and the offset of its marker.
A data batch is aborted when a row of its producer spans it, whatever the pass has read before: a pass may begin in the
middle of a log, and the rows of one log never overlap for one producer. The pass gets the rows of all segments,
including the active one, as a marker may lie far behind its data.

Records of aborted transactions can be removed at once. A marker can be removed when no batch of its transaction is
left; the new `.txnindex` has the rows of the abort markers that must stay.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from odradek.protocol.batch import TRANSACTIONAL
from odradek.storage.producers.producer_state import ABORT, COMMIT, AbortedTxn, parse_marker
from odradek.storage.segment.scan import Batch

_FIRST = attrgetter("first_offset")


class PassState(NamedTuple):
    """The state of a pass, as in Kafka's CleanedTransactionMetadata.

    `committed` and `aborted`: producers with data batches of a transaction whose marker is still ahead. `ahead`: rows
    of transactions that begin behind the last batch read.
    """

    committed: frozenset[int]
    aborted: frozenset[int]
    ahead: tuple[AbortedTxn, ...]


class CleanedTransactions:
    """Takes every batch in offset order; `kept` collects rows of the segment being written."""

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._rows: dict[int, list[AbortedTxn]] = {}
        for row in sorted(set(aborted), key=_FIRST):
            self._rows.setdefault(row.producer_id, []).append(row)
        self._open: dict[int, bool] = {}  # producers with data since their last marker: whether it was aborted
        self._seen = -1  # the last offset read
        self.kept: list[AbortedTxn] = []

    @property
    def state(self) -> PassState:
        """For tests."""
        aborted = frozenset(producer for producer, aborted in self._open.items() if aborted)
        rows = (row for rows in self._rows.values() for row in rows if row.first_offset > self._seen)
        return PassState(frozenset(self._open) - aborted, aborted, tuple(sorted(rows, key=_FIRST)))

    def is_aborted(self, batch: Batch) -> bool:
        """Add a data batch; returns whether its transaction was aborted."""
        self._seen = batch.last_offset
        if batch.magic < 2 or not batch.attributes & TRANSACTIONAL:
            return False
        aborted = self._row(batch.producer_id, batch.base_offset) is not None
        self._open[batch.producer_id] = aborted
        return aborted

    def is_spent(self, batch: Batch, payload: bytes) -> bool:
        """Add a control batch; returns whether no record is left of the transaction it ends."""
        self._seen = batch.last_offset
        if not batch.records:
            return True
        kind, _ = parse_marker(payload) or (-1, 0)
        if kind not in (ABORT, COMMIT):
            return False
        spent = self._open.pop(batch.producer_id, None) is None
        row = self._row(batch.producer_id, batch.last_offset)
        if row is not None and not spent:
            self.kept.append(row)
        return spent

    def _row(self, producer_id: int, offset: int) -> AbortedTxn | None:
        """The producer's aborted transaction that spans `offset`, including its marker's offset."""
        rows = self._rows.get(producer_id, ())
        index = bisect_right(rows, offset, key=_FIRST) - 1
        return rows[index] if index >= 0 and offset <= rows[index].last_offset else None
