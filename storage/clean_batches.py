"""What compaction makes of one batch: kept as it is, rewritten without some records, emptied, or dropped.

Kafka's rules. A record stays when no later one of its key is in the offset map; a tombstone, or a marker of a
transaction of which nothing is left, until delete.retention.ms after compaction first saw it as such: that time is
then written into its batch (KIP-534). Records of aborted transactions, and records without a key, go. A batch keeps
its base and last offset and its producer's fields. One that would be empty stays, without records, when it holds its
producer's last sequence, or is the last below the end of the round, so that offsets do not seem to go back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from odradek.protocol.records import batch_v2, message_sets, slices
from odradek.protocol.records.batch_v2 import Record
from odradek.protocol.records.slices import Slice
from odradek.storage.cleaned_transactions import CleanedTransactions
from odradek.storage.offset_map import OffsetMap
from odradek.storage.scan import COMPRESSION_MASK, CONTROL, DELETE_HORIZON, TIMESTAMP_TYPE, Batch

LIMIT = 1 << 31  # bytes of one batch, decompressed: it was let in once


class LastOf(NamedTuple):
    """A producer's last batch of data (-1: none is known), its epoch, and its last marker if that is known (-1)."""

    offset: int
    epoch: int
    marker: int = -1


class Round(NamedTuple):
    """What one compaction of a log goes by. Offsets; times in ms."""

    offsets: OffsetMap
    transactions: CleanedTransactions
    end: int  # of what this round could clean, also if the map ended before
    now_ms: int
    delete_retention_ms: int


def keys(batch: Batch, payload: bytes) -> list[tuple[bytes, int]]:
    """(key, offset) of a data batch's records that have a key. RecordError when it cannot be read."""
    if batch.magic < 2:
        return [(row[2], row[0]) for row in message_sets.iterate(payload, LIMIT) if row[2] is not None]
    body, head = batch_v2.payload(payload, LIMIT), batch_v2.header(payload)
    return [(one.key, one.offset) for one in slices.slices(body, head) if one.key is not None]


class BatchCleaner:
    """`clean` each batch of the log in offset order."""

    def __init__(self, going: Round) -> None:
        self.going = going
        self.producers: Mapping[int, LastOf] = {}
        self.legacy_tombstones = True  # whether the segment at hand is too young to lose those of magic 0 and 1

    def clean(self, batch: Batch, payload: bytes) -> bytes:
        """What to write in the batch's place: `payload` itself when nothing changes, b"" for nothing."""
        if batch.magic < 2:
            self.going.transactions.is_aborted(batch)
            return self._clean_legacy(batch, payload)
        if batch.attributes & CONTROL:
            return self._clean_control(batch, payload)
        aborted = self.going.transactions.is_aborted(batch)
        kept = b"" if aborted else self._clean_data(batch, payload)
        return kept or self._emptied(batch, payload)

    def _clean_data(self, batch: Batch, payload: bytes) -> bytes:
        if batch.base_offset > self.going.offsets.latest:
            return payload
        body, head = batch_v2.payload(payload, LIMIT), batch_v2.header(payload)
        horizon = batch.base_timestamp if batch.attributes & DELETE_HORIZON else None
        keep_tombstones = horizon is None or self.going.now_ms < horizon
        kept = [one for one in slices.slices(body, head) if self._stays(one, keep_tombstones)]
        if not kept:
            return b""
        fresh = horizon is None and not all(one.has_value for one in kept)
        if len(kept) == head.num_records and not fresh:
            return payload
        return slices.with_records(head, body, kept, self._horizon() if fresh else None)

    def _stays(self, record: Slice, keep_tombstones: bool) -> bool:
        offsets = self.going.offsets
        if record.offset > offsets.latest:
            return True
        if record.key is None or record.offset < offsets.get(record.key):
            return False
        return record.has_value or keep_tombstones

    def _horizon(self) -> int:
        return self.going.now_ms + self.going.delete_retention_ms

    def _clean_control(self, batch: Batch, payload: bytes) -> bytes:
        spent = self.going.transactions.is_spent(batch, payload)
        marked = batch.attributes & DELETE_HORIZON
        if not batch.records or (spent and marked and batch.base_timestamp <= self.going.now_ms):
            return self._emptied(batch, payload)
        if not spent or marked:
            return payload
        body, head = batch_v2.payload(payload, LIMIT), batch_v2.header(payload)
        return slices.with_records(head, body, list(slices.slices(body, head)), self._horizon())

    def _emptied(self, batch: Batch, payload: bytes) -> bytes:
        """The batch without records where it must stay, else nothing."""
        if batch.last_offset + 1 != self.going.end and not self._is_last_of_producer(batch):
            return b""
        return slices.emptied(batch_v2.header(payload)) if batch.records else payload

    def _is_last_of_producer(self, batch: Batch) -> bool:
        last = self.producers.get(batch.producer_id) if batch.producer_id >= 0 else None
        if last is None:
            return False
        if last.offset >= 0:
            return batch.last_offset == last.offset
        is_marker = batch.attributes & CONTROL and batch.producer_epoch == last.epoch
        return bool(is_marker) and batch.last_offset >= last.marker

    def _clean_legacy(self, batch: Batch, payload: bytes) -> bytes:
        """Magic 0 and 1: no empty batches, no horizon."""
        rows = list(message_sets.iterate(payload, LIMIT))
        kept = [row for row in rows if self._legacy_stays(row)]
        if len(kept) == len(rows):
            return payload
        codec, appended = batch.attributes & COMPRESSION_MASK, batch.attributes & TIMESTAMP_TYPE
        kind = (message_sets.LOG_APPEND_TIME, batch.max_timestamp) if appended and batch.magic else (0, -1)
        return message_sets.build(kept, batch.magic, codec=codec, timestamp_type=kind[0], append_time=kind[1])

    def _legacy_stays(self, row: Record) -> bool:
        offset, _timestamp, key, value, _headers = row
        offsets = self.going.offsets
        if offset > offsets.latest:
            return True
        if key is None or offset < offsets.get(key):
            return False
        return value is not None or self.legacy_tombstones
