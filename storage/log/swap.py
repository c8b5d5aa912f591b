"""Replacing segments by the compacted segment made from them.

Layout    : `<base>.{log,index,timeindex[,txnindex]}.cleaned` while it is written; `.swap` from the moment it is
            complete; then the plain names. Replaced files become `.deleted`. The `.txnindex` exists, maybe
            empty, when any replaced segment has one.
Owner     : the partition.
Writers   : `.cleaned`: the janitor, without the lock. The renames: the process that holds the lock.
Lock      : the partition's. Readers take none: they confirm the generation after they have opened a file.
Crash rule: the slot's dirty word is SWAPPING from before the first rename until the new generation is published. The
            steps, and the action of the next holder of the lock after a death in each:
              `.cleaned` → `.swap`    a `.cleaned` is left, so no old file was touched: it removes the new files
              putting aside           the other replaced segments, rising, in each the index first (trim.put_aside): it
                                      puts aside those that lie below the new segment's end, and those that have
                                      lost their index
              moving in               the new files over those of the same name, the index first and the log last: it
                                      continues the renames
              publish                 nothing is left to rename: it publishes once more
            The new segment may end before a replaced one from which it keeps no record. If that one still has its
            index then its files and those of later segments are untouched, and they stay: their contents are as valid
            as before the compaction, and no tombstone is removed before the records it deletes. If it has no index,
            then the swap has taken it: every other cause of a missing index is repaired before a swap begins, under a
            dirty word of its own: a dead deletion is finished (storage.log.trim), a truncation ends with a recovery,
            which rebuilds missing indexes (storage.log.truncate), files of an unpublished roll are removed
            (storage.log.roll). A `.deleted` file proves nothing: it may be of a former segment at an offset where the
            log has grown again. At start storage.recovery.crash_cleanup does the same from the names alone. It rebuilds
            the index of a segment that has lost it and stays; the rows of aborted transactions are put aside after the
            log, so they exist as long as it does.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from odradek.ipc import renewal, slots
from odradek.storage.files import names
from odradek.storage.files.durable import FILES, remove
from odradek.storage.log import transactions, trim
from odradek.storage.log.partition import APPENDING, SWAPPING
from odradek.storage.segment.scan import Scan

if TYPE_CHECKING:
    from odradek.ipc.slots import Fields
    from odradek.storage.log.partition import Partition

log = logging.getLogger(__name__)

_KINDS = (*names.INDEXES, names.LOG)  # the index first, since a start checks for it; the log last


def put_in_place(partition: Partition, values: Fields, replaced: list[int]) -> None:
    """Replace the segments at `replaced` by the `.cleaned` one at the first of them. Caller holds the lock.

    FileNotFoundError, without a change, when the `.cleaned` log is missing: no segment may go without a replacement.
    """
    os.stat(names.segment_path(partition.directory, replaced[0], names.LOG, names.CLEANED))
    slot = partition.slot
    slot.dirty = SWAPPING
    values[slots.F_ABORTED] = max(0, values[slots.F_ABORTED] + _more_aborted(partition.directory, replaced))
    for kind in _KINDS:
        _rename(partition.directory, replaced[0], kind, names.CLEANED, names.SWAP)
    _move_in(partition.directory, replaced[0], replaced[1:])
    _publish(partition, values)
    slot.dirty = 0


def _more_aborted(directory: str, replaced: list[int]) -> int:
    """How many more aborted transactions the new segment has than the segments at `replaced`."""
    new = transactions.count_in(directory, replaced[0], names.CLEANED)
    return new - sum(transactions.count_in(directory, base) for base in replaced)


def finish(partition: Partition, values: Fields) -> None:
    """Finish, or undo, the swap of a dead janitor. Caller holds the lock and repairs."""
    directory, undo = partition.directory, bool(names.segment_files(partition.directory, names.CLEANED))
    swaps = names.segment_files(directory, names.SWAP)
    if undo:
        discard(directory)
    elif swaps:
        base = swaps[0].offset
        _move_in(directory, base, _replaced(directory, base))
    values[slots.F_ABORTED] = transactions.count(directory)
    _publish(partition, values)
    partition.slot.dirty = APPENDING
    log.warning("%r: an interrupted compaction was %s", partition, "undone" if undo else "finished")


def discard(directory: str) -> None:
    """Remove the files of an unfinished compaction. No process may be working on it."""
    for mark in (names.SWAP, names.CLEANED):  # this order: a `.cleaned` says that the `.swap` files are worthless
        for file in names.segment_files(directory, mark):
            remove(names.segment_path(directory, *file))


def _replaced(directory: str, base: int) -> list[int]:
    """The other segments that a dead swap at `base` replaces and that are not completely put aside, rising."""
    end = _next_offset(directory, base)
    files = [file for file in names.segment_files(directory) if file.offset > base and file.kind != names.SNAPSHOT]
    whole = {file.offset for file in files if file.kind == names.INDEX}
    return sorted({file.offset for file in files if file.offset < end or file.offset not in whole})


def _move_in(directory: str, base: int, others: Iterable[int]) -> None:
    for other in others:
        trim.put_aside(directory, other)
        renewal.renew()
    for kind in _KINDS:
        _rename(directory, base, kind, names.SWAP, "")


def _rename(directory: str, base: int, kind: str, mark: str, new_mark: str) -> None:
    path = os.path.join(directory, names.offset_name(base))
    try:
        os.rename(path + kind + mark, path + kind + new_mark)
    except FileNotFoundError:
        pass


def _publish(partition: Partition, values: Fields) -> None:
    values[slots.F_GENERATION] += 1
    partition.slot.publish(values)


def _next_offset(directory: str, base: int) -> int:
    """One past the last offset of the new segment, whose log is still a `.swap`; `base` when it is empty or gone.

    The index may be the old or the new one, so this scans the log from its start.
    """
    try:
        with FILES.opened(names.segment_path(directory, base, names.LOG, names.SWAP), os.O_RDONLY) as fd:
            scan = Scan(fd, check=False, least_offset=base)
            for _ in scan:
                pass
            return scan.least_offset
    except FileNotFoundError:
        return base
