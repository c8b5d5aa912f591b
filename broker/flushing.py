"""Bringing partitions' logs to the disk from processes that may wait for it (`storage.flush` has the rules)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from odradek.ipc import slots
from odradek.ipc.slots import Fields, SlotState
from odradek.storage import flush
from odradek.storage.partition import Busy, Partition

_TRIES = 100
_PAUSE_S = 0.001


def _log_end(state: SlotState) -> int:
    return state.leo


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


@dataclass
class Flush:
    """What is to be synced of a log, as it is now, so that everything below `goal` is on the disk."""

    partition: Partition
    state: SlotState
    goal: int
    paths: list[str]

    @classmethod
    def begin(cls, partition: Partition, upto: Callable[[SlotState], int] = _log_end) -> Flush:
        """Up to the offset that `upto` picks; no `paths` where all of it is synced already. Raises OSError."""
        state = partition.state()
        goal = upto(state)
        wanted = goal > state.flushed and state.state in (slots.LEADER, slots.FOLLOWER)
        return cls(partition, state, goal, flush.files_to_sync(partition, state, goal) if wanted else [])

    def publish(self) -> None:
        """The paths are synced: say so, unless the log was truncated meanwhile. Raises OSError, Busy, Gone."""
        with patiently(self.partition) as values:
            if values[slots.F_TRUNCATIONS] == self.state.truncations:
                flush.flushed(self.partition, values, self.goal)


def sync(partition: Partition, upto: Callable[[SlotState], int] = _log_end) -> bool:
    """Sync a log up to the offset that `upto` picks from its state; whether there was anything to sync.

    Raises OSError when the disk fails (then nothing may be believed of it), Busy, Gone."""
    one = Flush.begin(partition, upto)
    if one.paths:
        flush.sync_files(one.paths)
        one.publish()
    return bool(one.paths)
