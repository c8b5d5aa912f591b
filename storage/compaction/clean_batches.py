"""Compaction of one batch: kept as it is, rewritten without some records, emptied, or dropped.

Kafka's rules. A record stays when no later one of its key is in the offset map; a tombstone, or a marker of a
transaction without remaining records, stays until delete.retention.ms after compaction first saw it as such: that time
is then written into its batch (KIP-534). Records of aborted transactions, and records without a key, are removed. A
batch keeps its base and last offset and its producer's fields. An empty batch stays, without records, when it holds its
producer's last sequence, or is the last below the end of the round, so that offsets do not seem to go back.
In or behind the segment that holds the recovery point more stays, as producers are replayed from a snapshot below it
after a death: markers, since their transactions may be open in that snapshot, and a producer's last sequence below
those that a truncation may remove.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from odradek.ipc.producers import ProducerEntry
from odradek.protocol.batch import COMPRESSION, CONTROL, DELETE_HORIZON, TIMESTAMP_TYPE
from odradek.protocol.records import batch_v2, message_sets, slices
from odradek.protocol.records.batch_v2 import Record
from odradek.protocol.records.errors import RecordError
from odradek.storage.compaction.cleaned_transactions import CleanedTransactions
from odradek.storage.compaction.key_hashes import KeyHasher, packed
from odradek.storage.compaction.offset_map import OffsetMap
from odradek.storage.compaction.old_records import old_records
from odradek.storage.segment.bulk_records import LIMIT
from odradek.storage.segment.scan import Batch

_LATEST = 1 << 62  # the largest delete horizon: in effect for ever; timestamps count from it


class LastProducerBatch(NamedTuple):
    """A producer's last data batch (-1: unknown), its epoch, its last marker (-1: unknown), and its last data batch
    that no truncation can remove (-1: none)."""

    offset: int
    epoch: int
    marker: int = -1
    settled: int = -1

    @classmethod
    def of(cls, entry: ProducerEntry, marker: int, upto: int) -> LastProducerBatch:
        """`upto`: the end of the range that the round may clean; the log is never cut below it."""
        known = [batch.last_offset for batch in entry.batches]
        settled = max((one for one in known if one < upto), default=-1)
        return cls(known[-1] if known else -1, entry.epoch, marker, settled)


class CleaningInput(NamedTuple):
    """The inputs of one compaction of a log. Offsets; times in ms."""

    offsets: OffsetMap
    hasher: KeyHasher
    transactions: CleanedTransactions
    first_dirty: int
    end: int  # of what this round could clean, also if the map ended before
    now_ms: int
    delete_retention_ms: int


class BatchCleaner:
    """Cleans single batches; compaction.clean_chunks cleans in bulk. Callers pass batches in offset order."""

    def __init__(self, run: CleaningInput) -> None:
        self.run = run
        self.producers: Mapping[int, LastProducerBatch] = {}
        self.replayed_from = 1 << 63  # producer state from this offset on stays
        self.legacy_tombstones = True  # whether the current segment is too young to lose those of magic 0 and 1

    def transactional(self, batch: Batch, payload: bytes) -> bytes:
        """The replacement for a marker or an aborted batch; `payload` itself when nothing changes."""
        if batch.attributes & CONTROL:
            return self._clean_control(batch, payload)
        return self.emptied(batch, payload) if self.run.transactions.is_aborted(batch) else payload

    def horizon(self) -> int:
        """The delete horizon of tombstones and markers that compaction sees now for the first time; ms."""
        return min(self.run.now_ms + self.run.delete_retention_ms, _LATEST)

    def _clean_control(self, batch: Batch, payload: bytes) -> bytes:
        spent = self.run.transactions.is_spent(batch, payload)
        if batch.base_offset >= self.replayed_from:
            return payload
        marked = batch.attributes & DELETE_HORIZON
        if not batch.records or (spent and marked and batch.base_timestamp <= self.run.now_ms):
            return self.emptied(batch, payload)
        if not spent or marked:
            return payload
        try:
            body, head = batch_v2.payload(payload, LIMIT), batch_v2.header(payload)
            return slices.with_records(head, body, list(slices.slices(body, head)), self.horizon())
        except RecordError:
            return payload

    def emptied(self, batch: Batch, payload: bytes) -> bytes:
        """The batch without records if it must stay, else b""."""
        if batch.last_offset + 1 != self.run.end and not self._is_last_of_producer(batch):
            return b""
        return slices.emptied(batch_v2.header(payload)) if batch.records else payload

    def _is_last_of_producer(self, batch: Batch) -> bool:
        last = self.producers.get(batch.producer_id) if batch.producer_id >= 0 else None
        if last is None:
            return False
        if last.offset >= 0:
            replayed = batch.base_offset >= self.replayed_from
            return batch.last_offset == last.offset or (replayed and batch.last_offset == last.settled)
        is_marker = batch.attributes & CONTROL and batch.producer_epoch == last.epoch
        return bool(is_marker) and batch.last_offset >= last.marker

    def legacy(self, batch: Batch, payload: bytes) -> bytes:
        """The replacement for a batch of magic 0 or 1: no empty batches, no horizon. RecordError."""
        rows = old_records(batch, payload)
        kept = [row for row, stays in zip(rows, self._legacy_stays(rows), strict=True) if stays]
        if len(kept) == len(rows):
            return payload
        codec, appended = batch.attributes & COMPRESSION, batch.attributes & TIMESTAMP_TYPE
        kind = (batch_v2.LOG_APPEND_TIME, batch.max_timestamp) if appended and batch.magic else (0, -1)
        return message_sets.build(kept, batch.magic, codec=codec, timestamp_type=kind[0], append_time=kind[1])

    def _legacy_stays(self, rows: list[Record]) -> list[bool]:
        offsets = self.run.offsets
        at = np.array([row[0] for row in rows], np.int64)
        stays, _ = offsets.latest_among(at)
        clean = np.flatnonzero((at < self.run.first_dirty) & np.array([row[2] is not None for row in rows]))
        stays[clean] = ~offsets.has(self.run.hasher.of(*packed([rows[index][2] or b"" for index in clean])))
        if not self.legacy_tombstones:
            stays &= np.array([row[3] is not None for row in rows])
        return list((stays | (at > offsets.latest)).tolist())
