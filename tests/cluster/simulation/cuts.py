"""Truncations outside the replicator's loop: broker.replicator.truncations with events in place of its threads.

A truncation begins some time after its request, waits for the partition's lock, and may hold it for long. Meanwhile
anything may happen: the process dies, or the partition is assigned again, in its epoch or another, and truncated again.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from odradek.broker.replicator import follower_log, truncations
from odradek.cluster.replication.partition_fetch_states import Position
from odradek.ipc.slots import Fields
from odradek.storage.log.partition import LockNotAvailable

from .world import Process, Thread, World

_BEGINS_S = (0.01, 0.3, 1.0, 3.0)
_LASTS_S = (0.0, 0.0, 0.02, 0.5)


class Cuts(truncations.Truncations):
    """The truncations of one run of a replicator."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process: Any = process
        self._over = True  # an attempt that finds the lock taken is repeated in another event
        self.under_way = 0

    def begin(
        self,
        partition: Any,
        epoch: int,
        cut: follower_log.Truncation,
        is_current: truncations.IsCurrent,
        done: truncations.Done,
    ) -> None:
        """See broker.replicator.truncations."""
        world, thread = self._world, Thread(self._process)
        lasts = world.between(0, world.random.choice(_LASTS_S))
        self.under_way += 1
        world.say(f"broker {thread.broker}: a truncation of {partition} outside the loop")

        def attempt() -> None:
            try:
                outcome: truncations.Outcome = self._carry_out(partition, epoch, self._slow(cut, lasts), is_current)
            except LockNotAvailable:
                world.after(0.001, thread, attempt)
                return
            except Exception as error:
                outcome = error
            world.after(world.between(0, 0.02), self._process, lambda: self._ended_with(done, outcome))

        world.after(world.between(0, world.random.choice(_BEGINS_S)), thread, attempt)

    def _slow(self, cut: follower_log.Truncation, seconds: float) -> follower_log.Truncation:
        """With the lock held it takes that long before anything changes."""

        def slow(own: Any) -> follower_log.Change:
            change = cut(own)

            def act(values: Fields) -> Position:
                self._world.elapse(seconds)
                return change(values)

            return act if seconds else change

        return slow

    def _ended_with(self, done: truncations.Done, outcome: truncations.Outcome) -> None:
        self.under_way -= 1
        done(outcome)
        self._process.go_on()

    def _own_log(self, partition: Any) -> Any:
        return SimpleNamespace(get=lambda *_: partition, close=lambda: None)
