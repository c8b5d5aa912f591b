"""Verifies one segment in one pass over its log: checksums, offsets, epochs, indexes.

Reads only, so it may run next to a broker, whose active segment may then show a write in flight.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from odradek.protocol.batch import COMPRESSION
from odradek.protocol.records import batch_v2, message_sets
from odradek.protocol.records.errors import RecordError
from odradek.storage.files import names
from odradek.storage.files.durable import FILES
from odradek.storage.files.faults import Fault
from odradek.storage.segment.epochs import EpochCache
from odradek.storage.segment.index import MAX_RELATIVE
from odradek.storage.segment.scan import Batch, Scan, find_batch_after
from odradek.storage.tools.check_index import IndexCheck
from odradek.storage.tools.check_transactions import TransactionCheck

# A broker notes which logs it compacts. A replica that was created when its topic was no longer compacted has no note.
_OR_COMPACTED = " (no fault if its cleanup.policy was once compact)"


@dataclass
class CheckOptions:
    """The parameters of a check: a `compacted` log may have gaps, a follower's anywhere; `deep` decodes all records.

    `epochs` is the leader-epoch-checkpoint, None when there is none to compare with; `progress` gets
    the bytes of each batch read. Recovery removes the epochs below `log_start`.
    """

    deep: bool = False
    compacted: bool = False
    epochs: EpochCache | None = None
    progress: Callable[[int], None] | None = None
    log_start: int = 0


class SegmentCheck:
    """Checks the segment at `base`: iterate over `faults`; after that `next_offset` is its end.

    `expected` is the end of the previous segment, None for the first one.
    """

    def __init__(
        self, directory: Path, base: int, expected: int | None, sealed: bool, options: CheckOptions,
        transactions: TransactionCheck,
    ) -> None:  # fmt: skip
        self.directory = directory
        self.base = base
        self.expected = expected
        self.sealed = sealed
        self.options = options
        self.transactions = transactions
        self.path = names.segment_path(directory, base)
        self.indexes = IndexCheck(directory, base)
        self.next_offset = base
        self.max_timestamp = -1

    def faults(self) -> Iterator[Fault]:
        yield from self._place()
        yield from self.indexes.files()
        yield from self._log()
        yield from self.indexes.end(self.sealed, self.max_timestamp)
        yield from self.transactions.end(names.segment_path(self.directory, self.base, names.TXN_INDEX))

    def _place(self) -> Iterator[Fault]:
        if self.expected is None:
            return
        if self.base < self.expected:
            yield Fault(self.path, f"begins at offset {self.base}, but the segment before it ends at {self.expected}")
        elif self.base > self.expected and not self.options.compacted:
            yield Fault(self.path, f"offsets {self.expected} to {self.base - 1} are missing before it{_OR_COMPACTED}")

    def _log(self) -> Iterator[Fault]:
        """Faults of the log; after damage continues at the next intact batch, so one fault does not hide others."""
        with FILES.opened(self.path, os.O_RDONLY) as fd:
            size = os.fstat(fd).st_size
            position: int | None = 0
            while position is not None:
                scan = Scan(fd, position, size, least_offset=self.next_offset)
                for batch in scan:
                    yield from self._batch(batch, scan)
                if scan.bad is None:
                    return
                position = find_batch_after(fd, scan.bad.position, size, scan.least_offset)
                yield Fault(self.path, _damage(scan, size, position))

    def _batch(self, batch: Batch, scan: Scan) -> Iterator[Fault]:
        for message in self._batch_faults(batch, scan):
            yield Fault(self.path, f"batch at byte {batch.position}, offset {batch.base_offset}: {message}")
        yield from self.indexes.batch(batch)
        self.transactions.batch(batch, scan)
        self.next_offset = batch.last_offset + 1
        self.max_timestamp = max(self.max_timestamp, batch.max_timestamp)
        if self.options.progress is not None:
            self.options.progress(batch.size)

    def _batch_faults(self, batch: Batch, scan: Scan) -> Iterator[str]:
        dense = not self.options.compacted and self._has_first_offset(batch)
        if dense and batch.base_offset > self.next_offset:
            yield f"offsets {self.next_offset} to {batch.base_offset - 1} are missing before it{_OR_COMPACTED}"
        if batch.last_offset - self.base > MAX_RELATIVE:
            yield f"its last offset {batch.last_offset} is too far from the segment's base"
        if dense and batch.magic == 2 and batch.records != batch.last_offset_delta + 1:
            yield f"has {batch.records} records, but offsets for {batch.last_offset_delta + 1}{_OR_COMPACTED}"
        if self.options.epochs is not None and batch.leader_epoch >= 0 and batch.base_offset >= self.options.log_start:
            known = self.options.epochs.epoch_of(batch.base_offset)
            if known != batch.leader_epoch and not _begins_below(self.options.epochs, batch):
                yield f"its leader epoch is {batch.leader_epoch}, but leader-epoch-checkpoint says {known}"
        if self.options.deep and (why := _undecodable(batch, scan.payload())):
            yield why

    @staticmethod
    def _has_first_offset(batch: Batch) -> bool:
        return batch.magic == 2 or not batch.attributes & COMPRESSION


def _begins_below(cache: EpochCache, batch: Batch) -> bool:
    """Whether the epochs begin within the batch: the log start lies there, even without a checkpoint yet."""
    first = cache.entries[0] if cache.entries else None
    return first is not None and first.epoch == batch.leader_epoch and first.start_offset <= batch.last_offset


def _damage(scan: Scan, size: int, following: int | None) -> str:
    assert scan.bad is not None
    where = f"at byte {scan.bad.position} of {size}, after offset {scan.least_offset - 1}: {scan.bad.reason}"
    if following is None:
        return f"ends in a torn write {where}"
    return f"is damaged {where}; the next intact batch begins at byte {following}"


def _undecodable(batch: Batch, payload: bytes) -> str:
    """Why the batch's records cannot be read; "" when they can."""
    try:
        if batch.magic == 2:
            batch_v2.check(payload)
        else:
            for _ in message_sets.iterate(payload):
                pass
    except RecordError as problem:
        return f"its records cannot be read: {problem}"
    return ""
