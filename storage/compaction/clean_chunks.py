"""The second pass of a compaction over chunks of batches of magic 2, in bulk.

storage.compaction.clean_batches has the rules.

For records in the dirty part the map has the latest ones by offset: if all records of a batch are among them, or none,
its header decides. In the clean part a key that is in the map has a later record. Batches that keep some records are
assembled from the remaining byte ranges.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from odradek.protocol.batch import (
    ATTRIBUTES_AT,
    BASE_TIMESTAMP_AT,
    COMPRESSION,
    CONTROL,
    COUNT_AT,
    CRC_AT,
    CRC_START,
    DELETE_HORIZON,
    HEADER_SIZE,
    LEAST_LENGTH,
    LENGTH_AT,
    LOG_OVERHEAD,
    MAX_TIMESTAMP_AT,
    TIMESTAMP_TYPE,
    TRANSACTIONAL,
)
from odradek.protocol.crc import crc32c
from odradek.protocol.records import batch_v2, codecs, message_sets, slices
from odradek.protocol.records.errors import RecordError
from odradek.storage.compaction.clean_batches import BatchCleaner
from odradek.storage.compaction.cleaned_segment import Piece
from odradek.storage.compaction.unreadable_batches import UnreadableBatches
from odradek.storage.segment.batch_chunks import Chunk, OldBatch
from odradek.storage.segment.bulk_records import LIMIT, RecordReader, Records


class JudgedRecords(NamedTuple):
    """Records of batches that may lose some, and which of them stay; `tombstones`: stay, but expire."""

    records: Records
    stays: np.ndarray
    tombstones: np.ndarray


class ChunkCleaner:
    """`clean` each chunk of the log in offset order."""

    def __init__(self, cleaner: BatchCleaner, unreadable: UnreadableBatches) -> None:
        self.cleaner = cleaner
        self._run = cleaner.run
        self._offsets = cleaner.run.offsets
        self._unreadable = unreadable
        self._reader = RecordReader()

    def clean(self, chunk: Chunk | OldBatch) -> tuple[list[Piece], bool]:
        """The replacement for a chunk, and whether anything changes."""
        return self._clean_old(chunk) if isinstance(chunk, OldBatch) else self._clean_chunk(chunk)

    def _clean_chunk(self, chunk: Chunk) -> tuple[list[Piece], bool]:
        changed = self._transactional(chunk)
        mixed = self._by_headers(chunk, changed)
        keyed = mixed[chunk.heads["base_offset"][mixed] < self._run.first_dirty]

        def unreadable(index: int, error: RecordError) -> None:
            self._unreadable.record(chunk.batch(index), error)

        for some, keys in ((keyed, True), (mixed[len(keyed) :], False)):
            for records in self._reader.of(chunk, some, unreadable, keys):
                self._rebuild(chunk, self._judged(chunk, records), changed)
        return _pieces(chunk, changed), bool(changed)

    def _clean_old(self, old: OldBatch) -> tuple[list[Piece], bool]:
        """`clean` for magic 0 and 1; the result may be several messages."""
        batch, payload = old
        try:
            kept = self.cleaner.legacy(batch, payload)
        except RecordError as error:
            self._unreadable.record(batch, error)
            kept = payload
        if kept is payload:
            return [Piece(payload, [(batch.last_offset, batch.size, batch.max_timestamp)])], False
        rows = [(one.offset, end - start + LOG_OVERHEAD, one.timestamp) for one, start, end in _messages(kept)]
        return [Piece(kept, rows)], True

    def _transactional(self, chunk: Chunk) -> dict[int, bytes]:
        """The replacements for markers and aborted batches that are removed or changed, by index."""
        changed = {}
        for index in np.flatnonzero(chunk.heads["attributes"] & (TRANSACTIONAL | CONTROL)).tolist():
            batch, payload = chunk.batch(index), chunk.payload(index)
            new = self.cleaner.transactional(batch, payload)
            if new is not payload:
                changed[index] = new
        return changed

    def _by_headers(self, chunk: Chunk, changed: dict[int, bytes]) -> np.ndarray:
        """The indexes of batches that may keep some records and lose some; wholly removed ones go to `changed`."""
        heads, base, last = chunk.heads, chunk.heads["base_offset"], chunk.last_offsets
        open_ = (heads["attributes"] & CONTROL == 0) & (base <= self._offsets.latest)
        open_[list(changed)] = False
        begin, end = self._offsets.between(base, last)
        latest, dirty = end - begin, (base >= self._run.first_dirty) & (last <= self._offsets.latest)
        readable = self._readable(base)
        gone = open_ & readable & ((dirty & (latest == 0)) | (heads["num_records"] == 0))
        for index in np.flatnonzero(gone).tolist():
            self._empty(chunk, index, changed)
        settled = (heads["attributes"] & DELETE_HORIZON == 0) & ~self._tombstones(begin, end)
        return np.flatnonzero(open_ & readable & ~gone & ~(dirty & settled & (latest == heads["num_records"])))

    def _readable(self, base: np.ndarray) -> np.ndarray:
        bad = self._unreadable.bases
        return ~np.isin(base, list(bad)) if bad else np.ones(len(base), bool)

    def _tombstones(self, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
        """Which of the batches hold a tombstone that is the latest record of its key."""
        first = int(begin[0])
        so_far = np.concatenate(([0], np.cumsum(self._offsets.tombstones(first, int(end[-1])))))
        held: np.ndarray = so_far[end - first] > so_far[begin - first]
        return held

    def _empty(self, chunk: Chunk, index: int, changed: dict[int, bytes]) -> None:
        payload = chunk.payload(index)
        new = self.cleaner.emptied(chunk.batch(index), payload)
        if new is not payload:
            changed[index] = new

    def _judged(self, chunk: Chunk, records: Records) -> JudgedRecords:
        stays, tombstones = self._offsets.latest_among(records.offsets)
        if records.keys is not None:
            clean = np.flatnonzero((records.offsets < self._run.first_dirty) & (records.keys.sizes >= 0))
            hashes = self._run.hasher.of(records.data, records.keys.at[clean], records.keys.sizes[clean])
            stays[clean] = ~self._offsets.has(hashes)
            tombstones[clean] = records.keys.tombstones[clean]
        heads = chunk.heads
        expired = (heads["attributes"] & DELETE_HORIZON != 0) & (heads["base_timestamp"] <= self._run.now_ms)
        stays &= ~(tombstones & expired[records.batches])
        stays |= records.offsets > self._offsets.latest
        return JudgedRecords(records, stays, tombstones & stays)

    def _rebuild(self, chunk: Chunk, judged: JudgedRecords, changed: dict[int, bytes]) -> None:
        """Put batches that lose records, or get their delete horizon, into `changed`."""
        records, count = judged.records, len(chunk.heads)
        left = np.bincount(records.batches[judged.stays], minlength=count)
        batches = np.flatnonzero(np.bincount(records.batches))
        fresh = np.zeros(count, bool)
        fresh[records.batches[judged.tombstones]] = True
        fresh &= chunk.heads["attributes"] & DELETE_HORIZON == 0
        for index in batches[left[batches] == 0].tolist():
            self._empty(chunk, index, changed)
        for index in batches[fresh[batches]].tolist():
            self._with_horizon(chunk, index, judged, changed)
        thinned = ~fresh & (left > 0) & (left < chunk.heads["num_records"])
        chosen = np.flatnonzero(judged.stays & thinned[records.batches])
        if chosen.size:
            changed.update(_thinned(chunk, records, chosen))

    def _with_horizon(self, chunk: Chunk, index: int, judged: JudgedRecords, changed: dict[int, bytes]) -> None:
        """Rewrite a batch with tombstones that compaction sees for the first time: KIP-534."""
        payload = chunk.payload(index)
        first, last = np.searchsorted(judged.records.batches, (index, index + 1))
        stays = judged.stays[first:last].tolist()
        try:
            body, head = batch_v2.payload(payload, LIMIT), batch_v2.header(payload)
            kept = [one for one, keep in zip(slices.slices(body, head), stays, strict=True) if keep]
            changed[index] = slices.with_records(head, body, kept, self.cleaner.horizon())
        except RecordError as error:  # the reader of single records is stricter
            self._unreadable.record(chunk.batch(index), error)


def _messages(data: bytes) -> Iterator[tuple[message_sets.Message, int, int]]:
    for offset, start, end in message_sets.entries(data):
        yield message_sets.read(data, offset, start, end), start, end


def _thinned(chunk: Chunk, records: Records, chosen: np.ndarray) -> Iterator[tuple[int, bytes]]:
    """(index, batch) of batches that keep the `chosen` of their records, with one copy per gap."""
    batches, starts, ends = records.batches[chosen], records.starts[chosen], records.ends[chosen]
    first = np.flatnonzero(np.concatenate(([True], batches[1:] != batches[:-1])))
    highest = np.maximum.reduceat(records.timestamp_deltas[chosen], first).tolist()
    counts = np.diff(np.append(first, len(chosen))).tolist()
    begins = np.concatenate(([True], (starts[1:] != ends[:-1]) | (batches[1:] != batches[:-1])))
    runs = np.flatnonzero(begins)
    begin, end = starts[runs].tolist(), ends[np.append(runs[1:], len(chosen)) - 1].tolist()
    bounds = [*np.searchsorted(runs, first).tolist(), len(runs)]
    data, indexes = records.data.data, batches[first].tolist()
    for at, index in enumerate(indexes):
        stretches = [data[begin[run] : end[run]] for run in range(bounds[at], bounds[at + 1])]
        yield index, _batch(chunk, index, b"".join(stretches), counts[at], highest[at])


def _batch(chunk: Chunk, index: int, body: bytes, count: int, highest: int) -> bytes:
    """The batch with the records `body`, whose largest timestamp delta is `highest`."""
    start = int(chunk.starts[index])
    head = bytearray(chunk.data[start : start + HEADER_SIZE])
    attributes = head[ATTRIBUTES_AT + 1]
    if attributes & COMPRESSION:
        body = codecs.compress(attributes & COMPRESSION, body)
    struct.pack_into(">i", head, LENGTH_AT, LEAST_LENGTH[2] + len(body))
    if not attributes & TIMESTAMP_TYPE:
        base = struct.unpack_from(">q", head, BASE_TIMESTAMP_AT)[0]
        struct.pack_into(">q", head, MAX_TIMESTAMP_AT, base + highest)
    struct.pack_into(">i", head, COUNT_AT, count)
    crc = crc32c(body, crc32c(head[CRC_START:]))
    struct.pack_into(">I", head, CRC_AT, crc)
    return bytes(head) + body


def _pieces(chunk: Chunk, changed: dict[int, bytes]) -> list[Piece]:
    """The chunk with the `changed` batches: ranges of unchanged batches, and new ones between them."""
    lasts, times = chunk.last_offsets.tolist(), chunk.heads["max_timestamp"].tolist()
    starts, ends = chunk.starts.tolist(), chunk.ends.tolist()
    found, first = [], 0
    for index in [*sorted(changed), len(starts)]:
        if index > first:
            rows = [(lasts[one], ends[one] - starts[one], times[one]) for one in range(first, index)]
            found.append(Piece(chunk.data[starts[first] : ends[index - 1]], rows))
        if index < len(starts) and changed[index]:
            new = changed[index]
            (highest,) = struct.unpack_from(">q", new, MAX_TIMESTAMP_AT)
            found.append(Piece(new, [(lasts[index], len(new), highest)]))
        first = index + 1
    return found
