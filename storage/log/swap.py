"""Putting a compacted segment in the place of those it was made from.

Layout    : `<base>.{log,index,timeindex[,txnindex]}.cleaned` while it is written; `.swap` from the moment it is
            complete; then the plain names. What it replaces becomes `.deleted`. The `.txnindex` is there, maybe
            empty, when any replaced segment has one.
Owner     : the partition.
Writers   : `.cleaned`: the janitor, without the lock. The renames: who holds the lock.
Lock      : the partition's. Readers take none: they confirm the generation after they have opened a file.
Crash rule: the slot's dirty word is SWAPPING from before the first rename until the new generation is published. The
            steps, and what the next holder of the lock finds after a death in each:
              `.cleaned` → `.swap`    a `.cleaned` is left, so nothing old was touched: it removes what is new
              putting aside           the other replaced segments, rising, in each the index first (trim.put_aside): it
                                      puts aside those that lie below the new segment's end, and those that have
                                      lost their index
              moving in               the new files over those of the same name, the index first and the log last: it
                                      renames on
              publish                 nothing is left to rename: it publishes once more
            The new segment may end before a replaced one, of which nothing is left in it. If that one still has its
            index then none of its files was touched, nor of those behind it, and they stay: what they have is as true
            as before the compaction, and no tombstone goes before what it deletes. If it has none, then the swap has
            taken it, because all else that leaves a segment without index is mended before a swap begins, under a dirty
            word of its own: a dead deletion is finished (storage.log.trim), a truncation ends with a recovery, which
            makes missing indexes again (storage.log.truncate), files of a roll that was not published are removed
            (storage.log.roll). A `.deleted` file says nothing: it may be of a former segment at an offset where the log
            has grown again. At start storage.recovery.tidy does the same from the names alone. A segment that has lost
            its index and stays gets it again there; its aborted transactions are put aside behind its log, so they are
            there as long as it is.
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
from odradek.storage.segment.scan import Scan

if TYPE_CHECKING:
    from odradek.ipc.slots import Fields
    from odradek.storage.log.partition import Partition

log = logging.getLogger(__name__)

SWAPPING = 4
_KINDS = (*names.INDEXES, names.LOG)  # the index first, as a start goes by it; the log last
_BUSY_WITH_IT_NO_MORE = 1


def put_in_place(partition: Partition, values: Fields, replaced: list[int]) -> None:
    """Replace the segments at `replaced` by the `.cleaned` one at the first of them. Caller holds the lock.

    FileNotFoundError, with nothing changed, when the `.cleaned` log is not there: nothing may go that nothing replaces.
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
    """How many more aborted transactions the new segment names than those at `replaced`."""
    new = transactions.count_in(directory, replaced[0], names.CLEANED)
    return new - sum(transactions.count_in(directory, base) for base in replaced)


def finish(partition: Partition, values: Fields) -> None:
    """Finish, or undo, what a dead janitor left. Caller holds the lock and repairs."""
    directory, undo = partition.directory, bool(names.segment_files(partition.directory, names.CLEANED))
    swaps = names.segment_files(directory, names.SWAP)
    if undo:
        discard(directory)
    elif swaps:
        base = swaps[0].offset
        _move_in(directory, base, _replaced(directory, base))
    values[slots.F_ABORTED] = transactions.count(directory)
    _publish(partition, values)
    partition.slot.dirty = _BUSY_WITH_IT_NO_MORE
    log.warning("%r: an interrupted compaction was %s", partition, "undone" if undo else "finished")


def discard(directory: str) -> None:
    """Remove what a compaction that did not finish has written. Nobody may be at it."""
    for mark in (names.SWAP, names.CLEANED):  # this order: a `.cleaned` says that the `.swap` files are worthless
        for file in names.segment_files(directory, mark):
            remove(names.segment_path(directory, *file))


def _replaced(directory: str, base: int) -> list[int]:
    """The other segments that a dead swap at `base` replaces and that are not wholly put aside, rising."""
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
    """One past the last offset of the new segment, whose log is still a `.swap`; `base` when nothing is left of it.

    The old index may stand there already or not, so the log is walked from its start.
    """
    try:
        with FILES.opened(names.segment_path(directory, base, names.LOG, names.SWAP), os.O_RDONLY) as fd:
            scan = Scan(fd, check=False, least_offset=base)
            for _ in scan:
                pass
            return scan.least_offset
    except FileNotFoundError:
        return base
