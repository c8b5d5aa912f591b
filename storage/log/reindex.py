"""Rebuilds the indexes of a segment while it is in use, after a reader found them damaged (Partition.damaged).

Owner     : the janitor.
Lock      : the partition's, to seal the segment if it is the active one and to put the new files in place, not to read.
Crash rule: each file is replaced atomically, and fits its log whatever the state of the others; the new generation
            makes all processes open them again. A death before that leaves the damaged files; the next reader reports
            them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.ipc import slots
from odradek.storage.files import names
from odradek.storage.files.durable import FILES, replace
from odradek.storage.log import roll, transactions
from odradek.storage.producers.producer_state import AbortedTxn, read_txn_index
from odradek.storage.recovery import trusted_state
from odradek.storage.recovery.crash_cleanup import Contents
from odradek.storage.recovery.rebuild import LogState, Scanned, scan_segment
from odradek.storage.segment.epochs import EpochCache
from odradek.storage.segment.scan import Scan

if TYPE_CHECKING:
    from odradek.storage.log.partition import Partition

log = logging.getLogger(__name__)


def mend(partition: Partition) -> None:
    """Rebuild the indexes that the slot names as damaged.

    Raises LockNotAvailable, PartitionRemoved, and OSError from the disk.
    """
    base = partition.slot.damaged
    if base == transactions.EVERY_SEGMENT:
        _mend_rows(partition)
        return
    with partition.locked() as values:
        partition.slot.damaged = -1  # a reader that finds it damaged after this reports it again
        if base == values[slots.F_ACTIVE_BASE]:
            roll.roll(partition, values)
        generation = values[slots.F_GENERATION]
    scanned = _scan(partition, base)
    with partition.locked() as values:
        if values[slots.F_GENERATION] == generation and base != values[slots.F_ACTIVE_BASE] and scanned is not None:
            _replace(partition, scanned)
            values[slots.F_GENERATION] += 1
            partition.slot.publish(values)


def _scan(partition: Partition, base: int) -> Scanned | None:
    """The scan of the segment's batches; None when the segment is gone, or is damaged itself."""
    directory = Path(partition.directory)
    if base not in names.segment_bases(str(directory)):
        return None
    state = _producers_at(directory, base)
    scanned = scan_segment(directory, base, partition.config.index_interval_bytes, state)
    if scanned.bad is not None:
        log.error("%r: segment %d is damaged at byte %d: %s", partition, base, scanned.end, scanned.bad.reason)
        return None
    return scanned


def _producers_at(directory: Path, base: int) -> LogState:
    return trusted_state.load_producers(directory, Contents.of(directory), base, EpochCache(), [])


def _mend_rows(partition: Partition) -> None:
    """Write missing rows of transaction indexes in all segments: this has to read every marker."""
    with partition.locked() as values:
        partition.slot.damaged = -1
        roll.roll(partition, values)
        generation, bases = values[slots.F_GENERATION], names.segment_bases(partition.directory)
    found = _missing_rows(Path(partition.directory), bases[:-1])
    with partition.locked() as values:
        if values[slots.F_GENERATION] == generation:
            for base, rows in found.items():
                replace(names.segment_path(partition.directory, base, names.TXN_INDEX), rows, sync=False)
                log.warning("%r: rebuilt the transaction index of segment %d", partition, base)
            values[slots.F_ABORTED] = transactions.count(partition.directory)
            values[slots.F_GENERATION] += 1
            partition.slot.publish(values)


def _missing_rows(directory: Path, bases: list[int]) -> dict[int, bytes]:
    """The complete transaction indexes of the segments that lack a row."""
    found, state = {}, _producers_at(directory, bases[0])
    for base in bases:
        known = read_txn_index(names.segment_path(directory, base, names.TXN_INDEX))
        rows = {row.last_offset: row for row in known}
        rows |= {row.last_offset: row for row in _aborted_in(directory, base, state)}
        if len(rows) > len(known):
            found[base] = b"".join(row.pack() for _, row in sorted(rows.items()))
    return found


def _aborted_in(directory: Path, base: int, state: LogState) -> Iterator[AbortedTxn]:
    with FILES.opened(names.segment_path(directory, base), os.O_RDONLY) as fd:
        scan = Scan(fd, check=False)
        for batch in scan:
            if row := state.add(batch, scan):
                yield row


def _replace(partition: Partition, scanned: Scanned) -> None:
    directory = Path(partition.directory)
    scanned.indexes.close()
    scanned.write_indexes(directory)
    scanned.write_txn_index(directory)
    log.warning("%r: rebuilt the indexes of segment %d", partition, scanned.base)
