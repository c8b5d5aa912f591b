"""Reading one segment from its first batch to its last, and rebuilding the data derived from it.

Derived are the two indexes, the transaction index, the leader epochs and the producers' state. Recovery
and the checker use it; for writes the caller owns the directory alone.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from odradek.protocol.batch import CONTROL
from odradek.storage.files import names
from odradek.storage.files.durable import FILES, Files, remove, replace
from odradek.storage.producers.producer_state import AbortedTxn, ProducerEntry, ProducerReplay
from odradek.storage.segment.epochs import EpochCache
from odradek.storage.segment.index import MAX_RELATIVE, OffsetIndex
from odradek.storage.segment.index_files import NO_TIMESTAMP, IndexBuilder
from odradek.storage.segment.scan import BadBatch, Batch, Scan


class LogState:
    """Leader epochs and producers after all batches taken so far, in offset order."""

    def __init__(self, epochs: EpochCache, producers: dict[int, ProducerEntry], since: int) -> None:
        self.epochs = epochs
        self.replay = ProducerReplay(producers)
        self.since = since  # batches below this offset are in `producers` already

    def add(self, batch: Batch, scan: Scan) -> AbortedTxn | None:
        """Adds the batch that `scan` has just yielded; returns a transaction when the batch aborted one."""
        if batch.leader_epoch > self.epochs.latest:
            self.epochs.assign(batch.leader_epoch, batch.base_offset)
        if batch.producer_id < 0 or batch.base_offset < self.since:
            return None
        if batch.attributes & CONTROL:
            return self.replay.add_control(batch, scan.payload())
        self.replay.add(batch)
        return None


@dataclass
class Scanned:
    """One scanned segment. `end`: size in bytes up to which it is intact; `bad`: why it ends there."""

    base: int
    indexes: IndexBuilder
    end: int = 0
    next_offset: int = 0
    first_timestamp: int = NO_TIMESTAMP
    bad: BadBatch | None = None
    aborted: list[AbortedTxn] = field(default_factory=list)

    def write_indexes(self, directory: Path, *, files: Files = FILES) -> None:
        """Replaces the segment's index files by those built from its batches."""
        self.indexes.write(directory, files=files)

    def write_txn_index(self, directory: Path, *, files: Files = FILES) -> None:
        """The same for the transaction index, which exists only if a transaction was aborted."""
        path = names.segment_path(directory, self.base, names.TXN_INDEX)
        if self.aborted:
            replace(path, b"".join(row.pack() for row in self.aborted), sync=False, files=files)
        else:
            remove(path, files=files)


def scan_segment(directory: Path, base: int, interval: int, state: LogState | None = None) -> Scanned:
    """Checks every batch of the segment at `base` and adds it to `state`; changes nothing else.

    `interval` is index.interval.bytes. Raises OSError from reads.
    """
    out = Scanned(base, IndexBuilder(base, interval), next_offset=base)
    add, limit = out.indexes.add, base + MAX_RELATIVE
    with FILES.opened(names.segment_path(directory, base), os.O_RDONLY) as fd:
        scan = Scan(fd, least_offset=base)
        for batch in scan:
            if batch.last_offset > limit:
                out.bad = BadBatch(batch.position, f"offset {batch.last_offset} is too far from the segment's base")
                break
            add(batch.last_offset, batch.position, batch.max_timestamp)
            if state is not None and (aborted := state.add(batch, scan)):
                out.aborted.append(aborted)
            if not batch.position:
                out.first_timestamp = batch.max_timestamp
            out.end, out.next_offset = batch.position + batch.size, batch.last_offset + 1
    out.bad = out.bad or scan.bad
    return out


def position_before(directory: Path, base: int, offset: int) -> int:
    """The position to search from for `offset` in a trusted segment, by its index; 0 if that is wrong or missing."""
    try:
        index = OffsetIndex(str(names.segment_path(directory, base, names.INDEX)))
    except (FileNotFoundError, EOFError):
        return 0
    position = index.position_before(offset - base, index.entries)
    with FILES.opened(names.segment_path(directory, base), os.O_RDONLY) as fd:
        first = next(iter(Scan(fd, position, check=False)), None) if position else None
    return position if first is not None and base <= first.base_offset <= offset else 0


def walk_headers(directory: Path, base: int, state: LogState, *, position: int = 0, upto: int) -> None:
    """Adds to `state` the batches of a trusted segment from byte `position` that begin below offset `upto`."""
    with FILES.opened(names.segment_path(directory, base), os.O_RDONLY) as fd:
        scan = Scan(fd, position, check=False)
        for batch in scan:
            if batch.base_offset >= upto:
                return
            state.add(batch, scan)
