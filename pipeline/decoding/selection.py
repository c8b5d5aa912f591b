"""Select the batches of a chunk that have records to show, by their headers alone.

All headers of a chunk are read at once, into one array, because a topic written without batching has one record a
batch. Per batch Python only steps to the next one and verifies the checksum.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.types import Chunk, Range
from odradek.protocol.batch import (
    CONTROL,
    CRC_START,
    LEAST_LENGTH,
    LOG_OVERHEAD,
    TO_MAGIC,
    TRANSACTIONAL,
)
from odradek.protocol.crc import crc32c
from odradek.protocol.records import batch_v2
from odradek.protocol.records.batch_v2 import Header
from odradek.protocol.records.bulk import heads

LARGE_BATCH = 128 << 10
"""Bytes of a batch, on average, from which on batches are looked at one by one: numpy's steps for one are few then."""

_LEAST = dict(enumerate(LEAST_LENGTH))


class Batches(NamedTuple):
    """Batches of magic 2 within `data`, with their headers (of type HEAD); `ends[i]` is where batch i ends."""

    data: memoryview
    heads: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    def only(self, chosen: np.ndarray | slice) -> Batches:
        return Batches(self.data, self.heads[chosen], self.starts[chosen], self.ends[chosen])

    def last_offsets(self) -> np.ndarray:
        last: np.ndarray = self.heads["base_offset"] + self.heads["last_offset_delta"]
        return last


class LargeBatches(NamedTuple):
    """A few large batches of magic 2 within `data`; batch i ends at `ends[i]`. Their checksums are not verified yet."""

    data: memoryview
    heads: list[Header]
    starts: list[int]
    ends: list[int]

    def since(self, first: int) -> Batches:
        """The batches from this one on, with all headers in one array."""
        bounds = np.array(self.starts[first:], np.int64), np.array(self.ends[first:], np.int64)
        return Batches(self.data, heads(np.frombuffer(self.data, np.uint8), bounds[0]), *bounds)


class OldMessages(NamedTuple):
    """Messages of magic 0 or 1, plain or compressed sets; their records come after offset `after`."""

    messages: list[memoryview]
    after: int


def damaged(range: Range, offset: int, why: object) -> PipelineError:
    """The error for an unreadable batch; `offset` is its first."""
    return PipelineError(f"{range.topic}-{range.partition}: the batch at offset {offset} cannot be read: {why}")


class Selection:
    """The batches of `range` in chunk after chunk; tracks aborted transactions.

    check_crcs: verify every checksum, as a consumer does (`check.crcs`).
    """

    def __init__(self, range: Range, check_crcs: bool = True) -> None:
        self._range, self._check_crcs = range, check_crcs
        self._aborted = _Aborted()
        self._last = -1  # the last offset seen

    def of(self, chunk: Chunk) -> Iterator[Batches | LargeBatches | OldMessages]:
        """What to read of `chunk`, in order; PipelineError for damaged data.

        Only the checksum protects a header, and it does not cover the base offset: a wrong base offset shows where
        offsets do not rise.
        """
        data = memoryview(chunk.data)
        self._aborted.learn(chunk.aborted)
        for old, starts in self._runs(data):
            if old:
                yield self._old([data[start:end] for start, end in pairwise(starts)])
            elif starts[-1] - starts[0] >= (len(starts) - 1) * LARGE_BATCH:
                yield self._large(data, starts)
            else:
                yield self._shown(_with_headers(data, np.array(starts, np.int64)))

    def _runs(self, data: memoryview) -> Iterator[tuple[bool, list[int]]]:
        """(whether of an old format, where each batch starts and the last one ends) for each run of the same format."""
        starts: list[int] = []
        old, at, total, unpack = False, 0, len(data), TO_MAGIC.unpack_from
        while at + TO_MAGIC.size <= total:
            offset, length, _, magic = unpack(data, at)
            if length < _LEAST.get(magic, total) or at + LOG_OVERHEAD + length > total:
                raise damaged(self._range, offset, f"{length} bytes of magic {magic} are not a batch")
            if old != (magic < 2) and starts:
                yield old, [*starts, at]
                starts = []
            old = magic < 2
            starts.append(at)
            at += LOG_OVERHEAD + length
        if at != total:
            raise damaged(self._range, self._last + 1, f"only {total - at} of its bytes are present")
        if starts:
            yield old, [*starts, at]

    def _old(self, messages: list[memoryview]) -> OldMessages:
        after = self._last
        for message in messages:
            offset = TO_MAGIC.unpack_from(message)[0]
            if offset <= self._last:
                raise damaged(self._range, offset, f"it comes after offset {self._last}")
            self._last = offset
        return OldMessages(messages, after)

    def _shown(self, batches: Batches) -> Batches:
        self._check_order(batches)
        last = batches.last_offsets()
        batches = batches.only(batches.heads["base_offset"] < self._range.end)
        if self._check_crcs:
            self._check_checksums(batches)
        hidden = batches.heads["attributes"] & CONTROL != 0
        hidden |= last[: len(hidden)] < self._range.start
        hidden |= self._aborted.within(batches)
        return batches.only(~hidden) if hidden.any() else batches

    def _large(self, data: memoryview, bounds: list[int]) -> LargeBatches:
        """The same as `_shown` with numbers instead of arrays, and without checksums of what is shown."""
        shown = LargeBatches(data, [], [], [])
        for start, end in pairwise(bounds):
            head = batch_v2.header(data, start)
            if head.base_offset <= self._last:
                raise damaged(self._range, head.base_offset, f"it comes after offset {self._last}")
            self._last = head.last_offset
            if head.base_offset >= self._range.end:
                continue
            if self._hides(head):
                self._check_checksum(data, head, start, end)
            else:
                shown.heads.append(head)
                shown.starts.append(start)
                shown.ends.append(end)
        return shown

    def _hides(self, head: Header) -> bool:
        aborted = self._aborted.hides(self._last, head.producer_id, head.attributes)
        return aborted or self._last < self._range.start or head.is_control

    def check(self, batches: LargeBatches, index: int) -> None:
        """Verify the checksum of a batch: it is in the processor's cache then, and should be decoded next."""
        self._check_checksum(batches.data, batches.heads[index], batches.starts[index], batches.ends[index])

    def _check_checksum(self, data: memoryview, head: Header, start: int, end: int) -> None:
        if self._check_crcs and crc32c(data[start + CRC_START : end]) != head.crc:
            raise damaged(self._range, head.base_offset, "its checksum is wrong")

    def _check_order(self, batches: Batches) -> None:
        base = batches.heads["base_offset"]
        before = np.concatenate(([self._last], batches.last_offsets()))
        falling = np.flatnonzero(base <= before[:-1])
        if falling.size:
            first = falling[0]
            raise damaged(self._range, int(base[first]), f"it comes after offset {before[first]}")
        self._last = int(before[-1])

    def _check_checksums(self, batches: Batches) -> None:
        data, checksum, skipped = batches.data, crc32c, CRC_START
        wanted = batches.heads["crc"].tolist()
        for index, (start, end) in enumerate(zip(batches.starts.tolist(), batches.ends.tolist(), strict=True)):
            if checksum(data[start + skipped : end]) != wanted[index]:
                raise damaged(self._range, int(batches.heads["base_offset"][index]), "its checksum is wrong")


def _with_headers(data: memoryview, bounds: np.ndarray) -> Batches:
    flat, starts, ends = np.frombuffer(data, np.uint8), bounds[:-1], bounds[1:]
    return Batches(data, heads(flat, starts), starts, ends)


class _Aborted:
    """The producers whose open transaction was aborted later in the log.

    A fetch response lists every aborted transaction that overlaps its records, so the same one may come again and
    again: it counts once, until its marker appears. The marker is the producer's next control batch, even when
    compaction has removed the record from it.
    """

    def __init__(self) -> None:
        self._known: set[tuple[int, int]] = set()
        self._ahead: list[tuple[int, int]] = []  # (first offset, producer id), last first
        self._open: set[int] = set()

    def learn(self, aborted: tuple[tuple[int, int], ...]) -> None:
        new = set(aborted) - self._known
        if new:
            self._known |= new
            self._ahead = sorted([*self._ahead, *((first, producer) for producer, first in new)], reverse=True)

    def within(self, batches: Batches) -> np.ndarray:
        """Which of `batches` are records of aborted transactions."""
        hidden = np.zeros(len(batches.heads), bool)
        if not (self._ahead or self._open):
            return hidden
        last, attributes = batches.last_offsets(), batches.heads["attributes"]
        for index in np.flatnonzero(attributes & TRANSACTIONAL).tolist():
            producer = int(batches.heads["producer_id"][index])
            hidden[index] = self.hides(int(last[index]), producer, int(attributes[index]))
        return hidden

    def hides(self, last: int, producer: int, attributes: int) -> bool:
        """Whether the next batch, with the last offset `last`, has records of an aborted transaction."""
        if not attributes & TRANSACTIONAL:
            return False
        while self._ahead and self._ahead[-1][0] <= last:
            self._open.add(self._ahead.pop()[1])
        if attributes & CONTROL:
            self._open.discard(producer)
            return False
        return producer in self._open
