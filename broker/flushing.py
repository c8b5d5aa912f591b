"""Bringing partitions' logs to the disk from processes that may wait for it (`storage.flush` has the rules)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from odradek.ipc import slots
from odradek.ipc.slots import Fields, SlotState
from odradek.storage import epochs, flush
from odradek.storage.partition import Busy, Partition

_TRIES = 100
_PAUSE_S = 0.001


@contextmanager
def patiently(partition: Partition) -> Iterator[Fields]:
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
    flush.sync_files(flush.files_to_sync(partition, state, goal))
    with patiently(partition) as values:
        if values[slots.F_TRUNCATIONS] == state.truncations:
            flush.flushed(partition, values, goal)
    return True


def sync_epochs(partition: Partition) -> None:
    """fsync the leader epochs, which appends write without waiting for the disk."""
    flush.sync_files([os.path.join(partition.directory, epochs.FILE_NAME)])
