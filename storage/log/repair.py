"""Repairing the half-done change of a dead holder of a partition's lock.

The slot says how much of the files is valid; `dirty` says which operation was running. The next holder of the
lock calls this. Repairing twice, or a death during repair, is harmless: each step leads to the same result.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from odradek.ipc import slots
from odradek.storage.files import names
from odradek.storage.log import producer_capacity, roll, swap, transactions, trim, truncate
from odradek.storage.log.partition import SWAPPING, TRIMMING, TRUNCATING
from odradek.storage.segment.index import OFFSET_ENTRY, TIME_ENTRY

if TYPE_CHECKING:
    from odradek.ipc.slots import Fields
    from odradek.storage.log.partition import Partition

log = logging.getLogger(__name__)


def repair(partition: Partition, values: Fields, dirty: int) -> Fields:
    """Cut the files to the published size, finish deletions, replay producers; returns the fields as published."""
    log.warning("%r: repairing the unfinished change of a dead process (%d)", partition, dirty)
    partition.close_files()
    if values[slots.F_STATE] != slots.LEADER and values[slots.F_STATE] != slots.FOLLOWER:
        return values  # a recovery died: another process runs it from the start
    if dirty == TRUNCATING:
        truncate.finish(partition, values)
        return values
    if dirty == SWAPPING:
        swap.finish(partition, values)
    base = values[slots.F_ACTIVE_BASE]
    path = os.path.join(partition.directory, names.offset_name(base))
    _cut(path + names.LOG, values[slots.F_ACTIVE_SIZE])
    _cut(path + names.INDEX, values[slots.F_INDEX_ENTRIES] * OFFSET_ENTRY.size)
    _cut(path + names.TIME_INDEX, values[slots.F_TIME_ENTRIES] * TIME_ENTRY.size)
    transactions.cut(path + names.TXN_INDEX, values[slots.F_LEO])
    _drop_above(partition.directory, base, values[slots.F_LEO])
    _cut_epochs(partition, values)
    if dirty == TRIMMING:
        _finish_deletion(partition, values)
    return _replay_producers(partition, values)


def _cut(path: str, size: int) -> None:
    """Truncate, or create, a file of the active segment; other segments are never cut."""
    try:
        if os.stat(path).st_size > size:
            os.truncate(path, size)
    except FileNotFoundError:
        with open(path, "xb"):
            pass


def _drop_above(directory: str, base: int, end: int) -> None:
    """Remove the files of a roll that was never published.

    Its snapshot is valid at the log's end. Behind a gap it would cover records that may yet fill the gap, from another
    leader, and a truncation would use it.
    """
    for file in names.segment_files(directory):
        if file.offset > (end if file.kind == names.SNAPSHOT else base):
            os.unlink(names.segment_path(directory, *file))


def _cut_epochs(partition: Partition, values: Fields) -> None:
    """Remove epochs of batches, or of a leader, that were never published; one at the log end may be published."""
    latest = roll.cut_epochs(partition, values[slots.F_LEO] + 1)
    if latest > values[slots.F_LATEST_EPOCH]:
        latest = roll.cut_epochs(partition, values[slots.F_LEO])
    if latest != values[slots.F_LATEST_EPOCH]:
        values[slots.F_LATEST_EPOCH] = latest
        partition.slot.publish(values)


def _finish_deletion(partition: Partition, values: Fields) -> None:
    """Finish a deletion, even if nothing is left to rename: other processes may still use the deleted segments."""
    trim.rename_below(partition.directory, names.segment_bases(partition.directory), values[slots.F_LOG_START])
    trim.put_orphans_aside(partition.directory)
    values[slots.F_ABORTED] = transactions.count(partition.directory)
    values[slots.F_GENERATION] += 1
    partition.slot.publish(values)


def _replay_producers(partition: Partition, values: Fields) -> Fields:
    from odradek.storage.log import replay

    if values[slots.F_PSTATE_LEO] < values[slots.F_LEO]:
        staged = replay.staged_between(partition, values, values[slots.F_PSTATE_LEO], values[slots.F_LEO])
        producer_capacity.reserve_staged(partition, values, staged)
        partition.producers.apply(staged, values[slots.F_PSTATE_GEN])
        values[slots.F_PSTATE_LEO] = values[slots.F_LEO]
        table = partition.producers.table(values[slots.F_PSTATE_GEN])
        values[slots.F_UNSTABLE] = table.first_unstable() if table is not None else -1
        partition.slot.publish(values)
    return values
