"""Syncing a partition's log to the disk, and publishing that in its slot (`flushed`, Kafka's recovery point).

Every sync of a log goes through `Flush`: the janitor, a worker's fsync thread, the coordinator, a stop. `begin` reads
the number of truncations of the log, then finds the files; `sync` needs no lock, as it may take seconds; `publish`
needs the lock and publishes the log end of `begin`, unless the log was truncated since. A truncation removes records,
and others get their offsets, which the fsync did not cover.
Several processes may sync one log at once: each publishes its result, and the highest wins.
Crash rule: a death at any moment leaves `flushed` too small, which only costs recovery time.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.ipc import slots
from odradek.storage.files import disks, names
from odradek.storage.files.durable import FILES
from odradek.storage.segment import epochs

if TYPE_CHECKING:
    from odradek.ipc.slots import Fields, SlotState
    from odradek.storage.log.partition import Partition

_SERVED = (slots.LEADER, slots.FOLLOWER)


def files_to_sync(partition: Partition, state: SlotState, goal: int | None = None) -> list[str]:
    """The paths to sync so that everything below `goal` (the log end) is on the disk; the directory is the last."""
    try:
        bases = partition.bases(state.active_base, state.generation)
    except FileNotFoundError:  # changed since: compaction has already synced its new segments
        bases = names.segment_bases(partition.directory)
    first = max((base for base in bases if base <= max(state.flushed, state.log_start)), default=bases[0])
    paths = [
        os.path.join(partition.directory, names.offset_name(base)) + kind
        for base in bases
        if base >= first and (goal is None or base < goal)
        for kind in names.SEGMENT_SUFFIXES
    ]
    # Until the first sync of the active segment, its file names may not be synced either.
    # The same holds for the epoch file, which recovery completes only from the last segment on.
    first_time = [os.path.join(partition.directory, epochs.FILE_NAME), partition.directory]
    return paths + first_time if state.flushed <= state.active_base else paths


def sync_files(paths: Sequence[str]) -> None:
    """fsync each existing file or directory (retention may have deleted any). SyncFailed, or OSError of an open."""
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
        raise disks.SyncFailed(error.errno, error.strerror, path) from error


def log_end(state: SlotState) -> int:
    """The log end, as the goal of a flush."""
    return state.leo


@dataclass
class Flush:
    """One sync of a log in its current state, so that everything below `goal` is on the disk."""

    partition: Partition
    state: SlotState
    goal: int
    paths: list[str]
    error: OSError | None = None

    @classmethod
    def begin(cls, partition: Partition, upto: Callable[[SlotState], int] = log_end) -> Flush:
        """A flush up to the offset that `upto` returns; no `paths` if all is synced already. Raises OSError.

        This reads the state before it finds the files: `publish` detects a truncation in between.
        """
        state = partition.state()
        goal = upto(state)
        is_needed = goal > state.flushed and state.state in _SERVED
        return cls(partition, state, goal, files_to_sync(partition, state, goal) if is_needed else [])

    def sync(self) -> None:
        """fsync the files, in any thread and without the lock; `publish` raises an error of it."""
        try:
            sync_files(self.paths)
        except OSError as error:
            self.error = error
            if disks.is_broken(error):  # a later fsync may succeed although this one has lost data
                self.partition.owner.disk_failed(self.state.log_dir)

    def publish(self, values: Fields) -> None:
        """Publish that all below the goal is on the disk, unless the log was truncated since. Caller holds the lock.

        Raises the OSError of `sync`, after which the log cannot be trusted: a broken disk takes it offline.
        """
        if self.error is not None:
            if disks.is_broken(self.error):
                values[slots.F_STATE] = slots.OFFLINE
                self.partition.slot.publish(values)
            raise self.error
        if values[slots.F_STATE] not in _SERVED:
            raise OSError(errno.EIO, f"{self.partition!r} is offline")
        if values[slots.F_TRUNCATIONS] == self.state.truncations:
            _publish(self.partition, values, self.goal)


def _publish(partition: Partition, values: Fields, upto: int) -> None:
    upto = max(values[slots.F_FLUSHED], min(upto, values[slots.F_LEO]))
    values[slots.F_FLUSHED] = upto
    values[slots.F_UNFLUSHED_SINCE] = time.time_ns() // 1_000_000 if upto < values[slots.F_LEO] else 0
    alone = values[slots.F_STATE] == slots.LEADER and values[slots.F_HW_QUORUM] <= 1
    if partition.config.visible_after_flush and alone:
        values[slots.F_HW] = max(values[slots.F_HW], upto)
    partition.slot.publish(values)
