"""Putting a compacted segment in the place of those it was made from.

Layout    : `<base>.{log,index,timeindex[,txnindex]}.cleaned` while it is written; `.swap` from the moment it is
            complete; then the plain names. What it replaces becomes `.deleted`. The `.txnindex` is there, maybe
            empty, when any replaced segment has one.
Owner     : the partition.
Writers   : `.cleaned`: the janitor, without the lock. The renames: who holds the lock.
Lock      : the partition's. Readers take none: they confirm the generation after they have opened a file.
Crash rule: the slot's dirty word is SWAPPING from before the first rename until the new generation is published. While
            a `.cleaned` is left nothing old was touched, and the next holder removes what is new; after that it renames
            on: the other replaced segments first, then the new files over those of the same name, the log last.
            At start storage.tidy does the same from the names alone.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from odradek.ipc import slots
from odradek.storage import names
from odradek.storage.durable import FILES, remove
from odradek.storage.scan import Scan

if TYPE_CHECKING:
    from odradek.ipc.slots import Fields
    from odradek.storage.partition import Partition

log = logging.getLogger(__name__)

SWAPPING = 4
_KINDS = (names.TXN_INDEX, names.TIME_INDEX, names.INDEX, names.LOG)  # the log last
_BUSY_WITH_IT_NO_MORE = 1


def put_in_place(partition: Partition, values: Fields, replaced: list[int]) -> None:
    """Replace the segments at `replaced` by the `.cleaned` one at the first of them. Caller holds the lock."""
    slot = partition.slot
    slot.dirty = SWAPPING
    for kind in _KINDS:
        _rename(partition.directory, replaced[0], kind, names.CLEANED, names.SWAP)
    _move_in(partition.directory, replaced[0], replaced[1:])
    _publish(partition, values)
    slot.dirty = 0


def finish(partition: Partition, values: Fields) -> None:
    """Finish, or undo, what a dead janitor left. Caller holds the lock and repairs."""
    directory, undo = partition.directory, bool(marked(partition.directory, names.CLEANED))
    swaps = marked(directory, names.SWAP)
    if undo:
        discard(directory)
    elif swaps:
        base = swaps[0].offset
        end = _next_offset(directory, base)
        begun = {file.offset for file in marked(directory, names.DELETED)}  # of some nothing may be left in the new one
        logs = [file.offset for file in marked(directory) if file.kind == names.LOG and file.offset > base]
        others = [offset for offset in logs if offset < end or offset in begun]
        _move_in(directory, base, sorted(others))
    _publish(partition, values)
    partition.slot.dirty = _BUSY_WITH_IT_NO_MORE
    log.warning("%r: a compaction that died is %s", partition, "undone" if undo else "finished")


def discard(directory: str) -> None:
    """Remove what a compaction that did not finish has written. Nobody may be at it."""
    for mark in (names.SWAP, names.CLEANED):  # this order: a `.cleaned` says that the `.swap` files are worthless
        for file in marked(directory, mark):
            remove(names.segment_path(directory, *file))


def marked(directory: str, mark: str = "") -> list[names.SegmentFile]:
    """The segment files of a partition directory that bear `mark`, rising."""
    parsed = (names.parse_segment_file(name) for name in os.listdir(directory))
    return sorted(file for file in parsed if file is not None and file.mark == mark)


def _move_in(directory: str, base: int, others: Iterable[int]) -> None:
    for other in others:
        for kind in (*names.INDEXES, names.SNAPSHOT, names.LOG):
            _rename(directory, other, kind, "", names.DELETED)
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
