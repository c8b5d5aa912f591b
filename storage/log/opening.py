"""Recovering partitions into shared memory at start: any process may help, one partition lock at a time.

The controller puts every partition's slot into RECOVERING. Workers and the janitor each iterate over those slots, take
a free lock, recover the partition's directory (storage.recovery.recovery) and publish it in the state that its slot
names (LEADER or FOLLOWER), or as OFFLINE when its log is damaged or its disk fails: that is logged as an error and the
other partitions continue.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple

from odradek.ipc import renewal, slots
from odradek.ipc.slots import Fields, SlotState
from odradek.storage.dirs import boot_id
from odradek.storage.files import checkpoints, disks
from odradek.storage.log.log import Log
from odradek.storage.log.partition import LockNotAvailable, Partition, PartitionRemoved
from odradek.storage.log.recovered_state import described
from odradek.storage.recovery import recovery

log = logging.getLogger(__name__)


class LogDir(NamedTuple):
    """A log directory's data about its partitions: Kafka's checkpoints, and whether the last stop was clean."""

    clean: bool
    cut: bool  # odradek.recovery.on.corruption
    recovery_points: dict[tuple[str, int], int]
    log_starts: dict[tuple[str, int], int]
    high_watermarks: dict[tuple[str, int], int]
    compacted: dict[tuple[str, int], int]
    restarted: bool = False  # whether the machine restarted since the directory was in use

    @classmethod
    def read(cls, path: str, clean: bool, cut: bool = False) -> LogDir:
        """The checkpoints in `path`; a broken one counts as empty, which only costs a longer recovery."""
        return cls(
            clean,
            cut,
            _offsets(path, checkpoints.RECOVERY_POINT),
            _offsets(path, checkpoints.LOG_START),
            _offsets(path, checkpoints.HIGH_WATERMARK),
            _offsets(path, checkpoints.CLEANER),
            boot_id.restarted_since(path),
        )


def _offsets(path: str, name: str) -> dict[tuple[str, int], int]:
    try:
        return checkpoints.read_offsets(path, name)
    except checkpoints.CheckpointError as error:
        log.warning("%s: ignored: %s", name, error)
        return {}
    except OSError as error:  # an offline directory
        log.warning("%s: %s", path, error)
        return {}


def open_all(log_: Log, partitions: Iterable[tuple[str, int]], log_dirs: list[LogDir], done: Callable[[], None]) -> int:
    """Recover every partition of `partitions` that is RECOVERING and not locked by another process; returns how many.

    Calls `done` after each one (a process counts in its row of the process table).
    """
    count = 0
    for topic, index in partitions:
        if log_.state(topic, index) != slots.RECOVERING:
            continue
        partition = log_.get(topic, index)
        if partition is None:
            continue
        try:
            values = partition.acquire()  # no wait: a process that holds the lock recovers the partition
        except (LockNotAvailable, PartitionRemoved):
            continue
        try:
            if values[slots.F_STATE] == slots.RECOVERING:
                with renewal.of(partition.slot):
                    _open(partition, values, log_dirs[values[slots.F_LOG_DIR]])
                count += 1
                done()
        finally:
            partition.release()
    return count


def _open(partition: Partition, values: Fields, log_dir: LogDir) -> None:
    """Recover one partition and publish it. Caller holds the lock."""
    key = (partition.topic, partition.index)
    state = SlotState._make(values)
    try:
        found = recovery.recover(
            partition.directory,
            partition.config,
            recovery_point=log_dir.recovery_points.get(key, 0),
            log_start=log_dir.log_starts.get(key, 0),
            clean=log_dir.clean and not state.used,
            restarted=log_dir.restarted,
            compacted_upto=log_dir.compacted.get(key, 0),
            on_corruption="cut" if log_dir.cut else "refuse",
        )
        opened = _state(partition, log_dir, state, found)
    except Exception as error:  # also our own bugs: every process that opens it would die, one after the other
        expected = isinstance(error, (recovery.CorruptLog, OSError))
        log.error("%r is offline: %s", partition, error, exc_info=not expected)
        damaged = isinstance(error, recovery.CorruptLog)
        to = slots.OFFLINE if damaged else state.recovers_to  # all other errors may be gone at the next start
        partition.slot.publish(state._replace(state=slots.OFFLINE, recovers_to=to))
        if isinstance(error, OSError) and disks.is_broken(error):
            partition.owner.disk_failed(state.log_dir)
        return
    for note in found.notes:
        log.warning("%r: %s", partition, note)
    _log_loss(partition, log_dir, found)
    partition.slot.publish(opened)


def _log_loss(partition: Partition, log_dir: LogDir, found: recovery.Recovered) -> None:
    """Log how many records are missing by the checkpoints; the loss after the last checkpoint is unknown."""
    key = (partition.topic, partition.index)
    synced, seen = log_dir.recovery_points.get(key, 0), log_dir.high_watermarks.get(key, 0)
    if found.leo < max(synced, seen):
        what = "although they were synced" if found.leo < synced else "which were not synced"
        log.error(
            "%r ends at offset %d, but its checkpoints say %d or more: at least %d records are lost, %s",
            partition, found.leo, max(synced, seen), max(synced, seen) - found.leo, what,
        )  # fmt: skip


def _state(partition: Partition, log_dir: LogDir, state: SlotState, found: recovery.Recovered) -> SlotState:
    """The state to publish: a replicated log is visible up to the checkpointed high watermark, else all of it."""
    opened = described(partition, state, found)
    hw = opened.leo
    if state.recovers_to == slots.FOLLOWER or state.hw_quorum > 1:
        seen = log_dir.high_watermarks.get((partition.topic, partition.index), 0)
        hw = max(opened.log_start, min(seen, opened.leo))
    cut = _ends_below_clean(partition, log_dir, found.leo)
    return opened._replace(state=state.recovers_to, hw=hw, truncations=opened.truncations + cut)


def _ends_below_clean(partition: Partition, log_dir: LogDir, leo: int) -> bool:
    """Whether the log end is below the cleaner checkpoint: the cleaner has not read records appended later, so the log
    counts as truncated."""
    upto = log_dir.compacted.get((partition.topic, partition.index), 0)
    if leo < upto:
        log.warning(
            "%r: cleaner checkpoint %d is beyond the log end offset %d: treating the log as dirty", partition, upto, leo
        )
    return leo < upto
