"""Bringing a partition's log to the disk, and saying so in its slot (`flushed`, Kafka's recovery point).

The files are synced without the partition's lock, as that may take seconds; the lock is held only to publish.
What was appended meanwhile is not counted. A truncation in between makes the result worthless (`truncations`).
Crash rule: dying at any moment leaves `flushed` too small, which costs recovery time and nothing else.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from odradek.ipc import slots
from odradek.ipc.slots import SlotState
from odradek.storage import epochs, names
from odradek.storage.durable import FILES
from odradek.storage.partition import Busy, Partition

_TRIES = 100
_PAUSE_S = 0.001


@contextmanager
def patiently(partition: Partition) -> Iterator[list[int]]:
    """`partition.locked()` for those who may wait a tenth of a second. Raises Busy after that, or Gone."""
    for _ in range(_TRIES):
        try:
            values = partition.acquire()
            break
        except Busy:
            time.sleep(_PAUSE_S)
    else:
        raise Busy
    try:
        yield values
    finally:
        partition.release()


def sync(partition: Partition, upto: Callable[[SlotState], int] = lambda state: state.leo) -> bool:
    """Sync a log up to the offset that `upto` picks from its state; whether there was anything to sync.

    Raises OSError when the disk fails (then nothing may be believed of it), Busy, Gone."""
    state = partition.state()
    goal = upto(state)
    if goal <= state.flushed or state.state not in (slots.LEADER, slots.FOLLOWER):
        return False
    for base in _segments(partition, state, goal):
        _sync_segment(partition.directory, base)
    FILES.sync_dir(partition.directory)
    with patiently(partition) as values:
        now = SlotState._make(values)
        if (now.generation >= state.generation, now.truncations) == (True, state.truncations):
            _publish(partition, now, goal)
    return True


def _segments(partition: Partition, state: SlotState, goal: int) -> list[int]:
    bases = partition.bases(state.active_base, state.generation)
    first = partition.segment_of(state.flushed, tuple(state))
    return [base for base in bases if first <= base < goal]


def _sync_segment(directory: str, base: int) -> None:
    """The log, its indexes and the producers' snapshot taken when it began; retention may have taken any."""
    path = os.path.join(directory, names.offset_name(base))
    for kind in names.SEGMENT_SUFFIXES:
        sync_file(path + kind)


def sync_file(path: str) -> None:
    """fsync a file that need not be there."""
    try:
        with FILES.opened(path, os.O_RDONLY) as fd:
            os.fsync(fd)
    except FileNotFoundError:
        pass


def sync_epochs(partition: Partition) -> None:
    """fsync the leader epochs, which appends write without waiting for the disk."""
    sync_file(os.path.join(partition.directory, epochs.FILE_NAME))


def _publish(partition: Partition, state: SlotState, flushed: int) -> None:
    """Caller holds the lock."""
    flushed = max(state.flushed, min(flushed, state.leo))
    since = time.time_ns() // 1_000_000 if flushed < state.leo else 0
    hw = state.hw
    if partition.config.visible_after_flush and state.isr_count <= 1:
        hw = max(hw, flushed)
    partition.slot.publish(state._replace(flushed=flushed, unflushed_since=since, hw=hw))
