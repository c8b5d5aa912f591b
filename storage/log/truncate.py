"""Truncating a follower's log where it differs from its leader's log. Caller holds the lock.

Layout    : the segment in which the new end lies becomes the active one. If it was sealed, `<base>.log.tmp` is its
            beginning until it is renamed over it; the segments behind it become `.deleted`.
Owner     : the partition, while this broker follows.
Writers   : the replicator, with the partition's lock.
Lock      : the partition's. Readers take none: while the dirty word is TRUNCATING, `Partition.confirm` rejects all
            files found by name, and afterwards the generation has changed.
Crash rule: dirty TRUNCATING → beginning of the sealed segment copied and synced → later segments put aside, the last
            one first, in each the log first → directory synced → the copy renamed over its original, or the active
            segment cut → recovery of the last segment (indexes, epochs, producers, snapshots above the end) → publish
            → clear dirty.
            If only the active segment becomes shorter (storage.log.truncate_active), its indexes, its rows of aborted
            transactions and the snapshots above the end are cut instead of rebuilt.
            Each of these states is a whole log, which may only be longer than the target, since files are always
            removed from the end:
              copying            nothing is changed; recovery removes the copy
              putting aside      the log ends with the previous segment; recovery removes indexes without their log
              before the cut     the log ends with that segment's old end
              after the cut      derived files reach too far: recovery rebuilds them, as after any crash
              after the publish  done; recovery only repeats it
            So the next holder of the lock runs the same recovery over the segment that is the last now, and publishes
            the result. The follower fetches from its leader again, and truncates the rest. When the broker dies with
            its shared memory, its next start does the same. Data below the target end never changes, and a power
            failure leaves it as synced: the copy is synced before its rename, and the removal of later segments is
            synced before the cut; otherwise they could reappear behind it with a gap between.
            `restart` removes producers' snapshots, then all segments in that order. A death leaves a beginning of the
            old log, or none: then an empty log begins at the old log start, which its leader refuses, and the follower
            restarts again.
Sealed files are replaced, never cut: other processes have them open. An index that fits its log stays, and grows again.
"""

from __future__ import annotations

import logging
import os
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from odradek.ipc import renewal, slots
from odradek.ipc.slots import SlotState
from odradek.storage.files import disks, names
from odradek.storage.files.durable import FILES, pread_exact
from odradek.storage.files.durable import truncate as cut_file
from odradek.storage.log import read, roll, truncate_active
from odradek.storage.log.partition import APPENDING, TRUNCATING
from odradek.storage.log.recovered_state import described
from odradek.storage.producers import snapshots
from odradek.storage.recovery import recovery

if TYPE_CHECKING:
    from odradek.ipc.slots import Fields
    from odradek.storage.log.partition import Partition

log = logging.getLogger(__name__)

_COPY_SIZE = 1 << 20
_SYNC_SIZE = 64 << 20


def truncate(partition: Partition, values: Fields, offset: int) -> None:
    """Remove all batches whose last offset is `offset` or higher; updates `values`, with the high watermark if needed.

    The log then ends with the last remaining batch. If it already ends before `offset`, this only removes epochs that
    no batch has; if it begins after `offset`, an empty log starts there: both as in Kafka. Raises OSError; the next
    holder of the lock then repairs.
    """
    if offset < 0:
        raise ValueError(f"{partition!r} cannot be truncated to offset {offset}")
    with renewal.of(partition.slot):
        _truncate(partition, values, offset)


def _truncate(partition: Partition, values: Fields, offset: int) -> None:
    bases = partition.bases(values[slots.F_ACTIVE_BASE], values[slots.F_GENERATION])
    if offset >= values[slots.F_LEO]:
        _forget_epochs(partition, values)
    elif offset < bases[0]:
        restart(partition, values, offset)
    elif offset >= values[slots.F_ACTIVE_BASE] and (cut := truncate_active.find(partition, values, offset)):
        with _changing(partition, values):
            _publish(partition, values, truncate_active.carry_out(partition, SlotState._make(values), cut))
    else:
        base, position = read.locate(partition, values, offset)
        with _changing(partition, values):
            _shorten(partition.directory, base, position, [one for one in bases if one > base])
            _reopen(partition, values, offset)


def restart(partition: Partition, values: Fields, offset: int) -> None:
    """Remove the whole log; an empty one begins at `offset`. Raises OSError as `truncate`."""
    bases = list(partition.bases(values[slots.F_ACTIVE_BASE], values[slots.F_GENERATION]))
    with renewal.of(partition.slot), _changing(partition, values):
        for one in snapshots.snapshot_offsets(partition.directory):
            _put_aside(partition.directory, one, (names.SNAPSHOT,))
            renewal.renew()
        _put_segments_aside(partition.directory, bases)
        _reopen(partition, values, offset)


def finish(partition: Partition, values: Fields) -> None:
    """Finish the truncation of a dead process; updates `values`. Repair calls it, lock held."""
    _reopen(partition, values, values[slots.F_LOG_START])


def _forget_epochs(partition: Partition, values: Fields) -> None:
    partition.slot.dirty = APPENDING
    latest = roll.cut_epochs(partition, values[slots.F_LEO])
    if latest != values[slots.F_LATEST_EPOCH]:
        values[slots.F_LATEST_EPOCH] = latest
        partition.slot.publish(values)
    partition.slot.dirty = 0


@contextmanager
def _changing(partition: Partition, values: Fields) -> Iterator[None]:
    """Wraps every change of files; the caller looks files up by name before it."""
    partition.close_files()
    partition.slot.dirty = TRUNCATING
    try:
        yield
    except BaseException as error:  # also our own bugs: a repair creates the same generation of the producer table
        partition.close_files()
        partition.producers.forget()
        if isinstance(error, OSError):
            _failed(partition, values, error)
        raise
    if values[slots.F_STATE] == slots.OFFLINE:
        from odradek.storage.log.partition import Unrepaired

        raise Unrepaired(f"{partition!r} is damaged")
    partition.slot.dirty = 0


def _failed(partition: Partition, values: Fields, error: OSError) -> None:
    log.error("%r: truncation failed: %s", partition, error)
    if disks.is_broken(error):
        _take_offline(partition, values)
        partition.owner.disk_failed(values[slots.F_LOG_DIR])


def _take_offline(partition: Partition, values: Fields) -> None:
    values[slots.F_STATE] = slots.OFFLINE
    partition.slot.publish(values)


def _shorten(directory: str, base: int, position: int, later: list[int]) -> None:
    """End the segment at `base` at byte `position` and remove all `later` ones; if there are none it is the active."""
    path = names.segment_path(directory, base)
    temporary = names.segment_path(directory, base, names.LOG, names.TEMPORARY)
    copied = bool(later) and position < os.stat(path).st_size
    if copied:
        _copy(path, temporary, position)
    if later:
        _put_segments_aside(directory, later)
    if copied:
        FILES.rename(temporary, path)
        FILES.sync_dir(directory)
    elif not later:
        cut_file(path, position, sync=False)


def _copy(path: os.PathLike[str], target: os.PathLike[str], size: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with FILES.opened(path, os.O_RDONLY) as source, FILES.opened(target, flags) as copy:
        for at in range(0, size, _COPY_SIZE):
            FILES.pwrite(copy, pread_exact(source, min(_COPY_SIZE, size - at), at), at)
            if at % _SYNC_SIZE == _SYNC_SIZE - _COPY_SIZE:  # one fsync of it all could exceed odradek.lock.stall.ms
                FILES.fsync(copy)
            renewal.renew()
        FILES.fsync(copy)


def _put_segments_aside(directory: str, bases: Iterable[int]) -> None:
    for base in sorted(bases, reverse=True):
        _put_aside(directory, base, (names.LOG, *names.INDEXES))
        renewal.renew()
    FILES.sync_dir(directory)


def _put_aside(directory: str, offset: int, kinds: Iterable[str]) -> None:
    path = os.path.join(directory, names.offset_name(offset))
    for kind in kinds:
        try:
            os.rename(path + kind, path + kind + names.DELETED)
        except FileNotFoundError:
            pass


def _reopen(partition: Partition, values: Fields, start: int) -> None:
    """Recover the directory and publish its log: an empty log at `start` if it has no segment."""
    bases = names.segment_bases(partition.directory)
    try:
        found = recovery.recover(
            partition.directory,
            partition.config,
            recovery_point=bases[-1] if bases else start,
            log_start=0 if bases else start,  # not the old log start: the log may end below it
        )
    except recovery.CorruptLog as error:
        log.error("%r is offline: %s", partition, error)
        _take_offline(partition, values)
        return
    _publish(partition, values, described(partition, SlotState._make(values), found))


def _publish(partition: Partition, values: Fields, found: SlotState) -> None:
    """Publish the state found after the cut."""
    former = SlotState._make(values)
    state = _shortened(found, former)
    partition.slot.publish(state)
    values[:] = array("q", state)
    partition.producers.retire(former.pstate_gen)
    log.info("%r: truncated from offset %d to %d", partition, former.leo, state.leo)


def _shortened(state: SlotState, former: SlotState) -> SlotState:
    """`state` with log start, high watermark and recovery point moved back only as far as the log end."""
    start = max(state.log_start, min(former.log_start, state.leo))
    flushed = min(former.flushed, state.leo)
    return state._replace(
        log_start=start,
        hw=max(start, min(former.hw, state.leo)),
        flushed=flushed,
        unflushed_since=former.unflushed_since if flushed < state.leo else 0,
        truncations=former.truncations + 1,
    )
