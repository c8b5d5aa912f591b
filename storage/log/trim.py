"""Moving a log's start: DeleteRecords and retention. Caller holds the lock.

Order: publish the new log start → rename the files of segments wholly below it to `.deleted` → publish a new
generation. A death in between leaves segments below the log start, which repair renames; it always publishes a new
generation, as other processes may use deleted segments. The janitor unlinks `.deleted` files after
file.delete.delay.ms.
"""

from __future__ import annotations

import os
from itertools import pairwise
from typing import TYPE_CHECKING

from odradek.ipc import renewal, slots
from odradek.storage.files import names
from odradek.storage.log import transactions
from odradek.storage.log.partition import TRIMMING

if TYPE_CHECKING:
    from odradek.ipc.slots import Fields
    from odradek.storage.log.partition import Partition

# The log goes after the files that can be rebuilt from it, so that it still exists after a death. Its aborted
# transactions and the snapshot of the producers before it cannot be rebuilt: they exist as long as the log does. (By
# the checkpoint, which may lag behind, the log start may lie in it again.)
_ORDER = (names.INDEX, names.TIME_INDEX, names.LOG, names.TXN_INDEX, names.SNAPSHOT)


def advance(partition: Partition, values: Fields, log_start: int) -> int:
    """Make `log_start` (at most the log end) the first offset; returns the number of deleted segments."""
    if log_start <= values[slots.F_LOG_START]:
        return 0
    partition.slot.dirty = TRIMMING
    values[slots.F_LOG_START] = log_start
    values[slots.F_HW] = max(values[slots.F_HW], log_start)
    partition.slot.publish(values)
    return delete_below_start(partition, values)


def delete_below_start(partition: Partition, values: Fields) -> int:
    """Mark the files of the segments wholly below the log start as deleted; returns the number of segments."""
    partition.slot.dirty = TRIMMING
    bases = list(partition.bases(values[slots.F_ACTIVE_BASE], values[slots.F_GENERATION]))
    aborted = [transactions.count_in(partition.directory, base) for base in _below(bases, values[slots.F_LOG_START])]
    gone = rename_below(partition.directory, bases, values[slots.F_LOG_START])
    if gone:
        values[slots.F_ABORTED] = max(0, values[slots.F_ABORTED] - sum(aborted))
        values[slots.F_GENERATION] += 1
        partition.slot.publish(values)
    partition.slot.dirty = 0
    return gone


def rename_below(directory: str, bases: list[int], log_start: int) -> int:
    """Mark the files of every segment that ends at or below `log_start` as deleted; never the last one."""
    gone = _below(bases, log_start)
    for base in gone:
        put_aside(directory, base)
        renewal.renew()
    return len(gone)


def _below(bases: list[int], log_start: int) -> list[int]:
    return [base for base, following in pairwise(bases) if following <= log_start]


def put_orphans_aside(directory: str) -> None:
    """Mark indexes without a log as deleted, which a death in `put_aside` has left."""
    files = names.segment_files(directory)
    logs = {file.offset for file in files if file.kind == names.LOG}
    for base in {file.offset for file in files if file.kind in names.INDEXES} - logs:
        put_aside(directory, base)
        renewal.renew()


def put_aside(directory: str, base: int) -> None:
    """Mark the files of the segment at `base` as deleted: the index first; what cannot be rebuilt after the log."""
    path = os.path.join(directory, names.offset_name(base))
    for kind in _ORDER:
        try:
            os.rename(path + kind, path + kind + names.DELETED)
        except FileNotFoundError:
            pass
