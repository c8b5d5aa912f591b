"""Bringing a partition's log to the disk, and saying so in its slot (`flushed`, Kafka's recovery point).

Files are synced without the partition's lock, as that may take seconds; the lock is held only to publish. What was
appended meanwhile is not counted. A truncation in between makes the result worthless (`truncations`).
Crash rule: dying at any moment leaves `flushed` too small, which costs recovery time and nothing else.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.ipc import slots
from odradek.storage import epochs, names, repair
from odradek.storage.disks import SyncFailed
from odradek.storage.durable import FILES

if TYPE_CHECKING:
    from odradek.ipc.slots import Fields, SlotState
    from odradek.storage.partition import Partition


def files_to_sync(partition: Partition, state: SlotState, goal: int | None = None) -> list[str]:
    """What must be synced for everything below `goal` (the log end) to be on the disk; the directory is the last."""
    try:
        bases = partition.bases(state.active_base, state.generation)
    except FileNotFoundError:  # changed since: what compaction has put in place is synced already
        bases = repair.segment_bases(partition.directory)
    first = max((base for base in bases if base <= max(state.flushed, state.log_start)), default=bases[0])
    paths = [
        os.path.join(partition.directory, names.offset_name(base)) + kind
        for base in bases
        if base >= first and (goal is None or base < goal)
        for kind in names.SEGMENT_SUFFIXES
    ]
    # Until something of the active segment has been synced its files' names may not have been either.
    # The same goes for the epochs' file, which recovery completes only from the last segment on.
    first_time = [os.path.join(partition.directory, epochs.FILE_NAME), partition.directory]
    return paths + first_time if state.flushed <= state.active_base else paths


def sync_files(paths: Sequence[str]) -> None:
    """fsync each file or directory that is there (retention may have taken any). SyncFailed, or OSError of an open."""
    for path in paths:
        try:
            with FILES.opened(path, os.O_RDONLY) as fd:
                _fsync(fd, path)
        except FileNotFoundError:
            pass


def _fsync(fd: int, path: str) -> None:
    try:
        FILES.fsync(fd)
    except OSError as error:
        raise SyncFailed(error.errno, error.strerror, path) from error


def flushed(partition: Partition, values: Fields, upto: int) -> None:
    """Publish that everything below `upto` is on the disk. Caller holds the lock."""
    upto = max(values[slots.F_FLUSHED], min(upto, values[slots.F_LEO]))
    values[slots.F_FLUSHED] = upto
    values[slots.F_UNFLUSHED_SINCE] = time.time_ns() // 1_000_000 if upto < values[slots.F_LEO] else 0
    alone = values[slots.F_STATE] == slots.LEADER and values[slots.F_VOTERS] <= 1
    if partition.config.visible_after_flush and alone:
        values[slots.F_HW] = max(values[slots.F_HW], upto)
    partition.slot.publish(values)
