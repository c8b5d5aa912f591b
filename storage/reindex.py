"""Rebuilds the indexes of a segment while it is in use, after a reader found them damaged (Partition.damaged).

Owner     : the janitor.
Lock      : the partition's, to seal the segment if it is the active one and to put the new files in place, not to read.
Crash rule: each file is replaced at once, and is right for its log whichever of the others are; the new generation
            makes all processes open them again. A death before that leaves the damaged ones; the next reader reports
            them.
"""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.ipc import slots
from odradek.storage import former_state, names, roll, snapshots
from odradek.storage.epochs import EpochCache
from odradek.storage.rebuild import Scanned, scan_segment
from odradek.storage.tidy import Contents

if TYPE_CHECKING:
    from odradek.storage.partition import Partition

log = logging.getLogger(__name__)


def mend(partition: Partition) -> None:
    """Rebuild the indexes that the slot names as damaged. Raises Busy, Gone, and OSError as the disk does."""
    base = partition.slot.damaged
    with partition.locked() as values:
        partition.slot.damaged = -1  # a reader that finds it damaged after this reports it again
        if base == values[slots.F_ACTIVE_BASE]:
            roll.roll(partition, values, time.time_ns() // 1_000_000)
        generation = values[slots.F_GENERATION]
    scanned = _scan(partition, base)
    with partition.locked() as values:
        if values[slots.F_GENERATION] == generation and base != values[slots.F_ACTIVE_BASE] and scanned is not None:
            _replace(partition, scanned)
            values[slots.F_GENERATION] += 1
            partition.slot.publish(values)


def _scan(partition: Partition, base: int) -> Scanned | None:
    """What the segment's batches say; None when it is gone, or is damaged itself."""
    directory, notes = Path(partition.directory), list[str]()
    sizes = {one: os.stat(names.segment_path(directory, one)).st_size for one in names.segment_bases(str(directory))}
    if base not in sizes:
        return None
    contents = Contents(sizes, snapshots.snapshot_offsets(directory))
    state = former_state.load_producers(directory, contents, base, EpochCache(), notes)
    scanned = scan_segment(directory, base, partition.config.index_interval_bytes, state)
    if scanned.bad is not None:
        log.error("%r: segment %d is damaged at byte %d: %s", partition, base, scanned.end, scanned.bad.reason)
        return None
    return scanned


def _replace(partition: Partition, scanned: Scanned) -> None:
    directory = Path(partition.directory)
    scanned.indexes.close()
    scanned.write_indexes(directory)
    scanned.write_txn_index(directory)
    log.warning("%r: the indexes of segment %d were made again from its log", partition, scanned.base)
