"""The first pass of a compaction: the keys of committed records of the dirty part go into the offset map."""

from __future__ import annotations

import numpy as np

from odradek.protocol.batch import CONTROL, TRANSACTIONAL
from odradek.protocol.records.errors import RecordError
from odradek.storage.compaction.cleaned_transactions import CleanedTransactions
from odradek.storage.compaction.key_hashes import KeyHasher, packed
from odradek.storage.compaction.offset_map import OffsetMap
from odradek.storage.compaction.old_records import old_records
from odradek.storage.compaction.unreadable_batches import UnreadableBatches
from odradek.storage.segment.batch_chunks import Chunk, OldBatch
from odradek.storage.segment.bulk_records import RecordReader, Records


class MapPass:
    """Takes the chunks from the segment of `first_dirty` on, until the map is `full`."""

    def __init__(
        self, offsets: OffsetMap, hasher: KeyHasher, transactions: CleanedTransactions, first_dirty: int,
        unreadable: UnreadableBatches,
    ) -> None:  # fmt: skip
        self.offsets = offsets
        self.full = False
        self.markers: dict[int, int] = {}  # producer id → its last marker in the dirty part
        self._hasher = hasher
        self._transactions = transactions
        self._first_dirty = first_dirty
        self._unreadable = unreadable
        self._reader = RecordReader()

    def add(self, piece: Chunk | OldBatch) -> None:
        """Add the next chunk or old batch of the log."""
        if isinstance(piece, OldBatch):
            self._add_old(piece)
        else:
            self._add_chunk(piece)
        if not self.full:
            self.offsets.latest = max(self.offsets.latest, piece.last_offset)

    def _add_chunk(self, chunk: Chunk) -> None:
        with_records = (chunk.last_offsets >= self._first_dirty) & (chunk.heads["num_records"] > 0)
        for index in np.flatnonzero(chunk.heads["attributes"] & (TRANSACTIONAL | CONTROL)).tolist():
            with_records[index] &= not self._ends_or_aborts(chunk, index)

        def unreadable(index: int, error: RecordError) -> None:
            self._unreadable.record(chunk.batch(index), error)

        for records in self._reader.of(chunk, np.flatnonzero(with_records), unreadable):
            if not self.full:
                self._put(records)

    def _ends_or_aborts(self, chunk: Chunk, index: int) -> bool:
        """Whether no record of this transactional batch counts."""
        batch = chunk.batch(index)
        if not batch.attributes & CONTROL:
            return self._transactions.is_aborted(batch)
        self._transactions.is_spent(batch, chunk.payload(index))
        if batch.last_offset >= self._first_dirty:
            self.markers[batch.producer_id] = batch.last_offset
        return True

    def _put(self, records: Records) -> None:
        keys = records.keys
        assert keys is not None
        chosen = np.flatnonzero((keys.sizes >= 0) & (records.offsets >= self._first_dirty))
        hashes = self._hasher.of(records.data, keys.at[chosen], keys.sizes[chosen])
        offsets = records.offsets[chosen]
        taken = self.offsets.put(hashes, offsets, keys.tombstones[chosen])
        if taken < len(offsets):
            self.full = True
            self.offsets.latest = int(offsets[taken]) - 1

    def _add_old(self, old: OldBatch) -> None:
        """Messages of magic 0 and 1."""
        try:
            rows = old_records(old.batch, old.payload)
        except RecordError as error:
            self._unreadable.record(old.batch, error)
            return
        rows = [row for row in rows if row[0] >= self._first_dirty]
        keyed = [(offset, key, value is None) for offset, _, key, value, _ in rows if key is not None]
        offsets = np.array([offset for offset, _, _ in keyed], np.int64)
        tombstones = np.array([tombstone for _, _, tombstone in keyed], bool)
        taken = self.offsets.put(self._hasher.of(*packed([key for _, key, _ in keyed])), offsets, tombstones)
        if taken < len(keyed):
            self.full = True
            self.offsets.latest = int(offsets[taken]) - 1
