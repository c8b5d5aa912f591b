"""How far this broker's followers have come, and what follows from it.

A follower that fetches from an offset on has all below. That goes into its row (ipc.replicas), may move the high
watermark, and lets one that has caught up into the ISR, which is for the controller process to do
(broker.controller.member.isr).
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, NamedTuple

from odradek.ipc import replicas, roles, slots
from odradek.storage.log.partition import Busy, Gone, Partition
from odradek.workers.fetch.epoch_caches import EpochCaches
from odradek.workers.fetch.throttling import Throttling
from odradek.workers.produce.batching import QUICK_TRIES

if TYPE_CHECKING:
    from odradek.ipc.slots import Fields
    from odradek.workers.fetch.follower_fetch import FollowerFetch
    from odradek.workers.worker import Worker

log = logging.getLogger(__name__)

TELL_S = 0.05
_RING_PAUSE_S = 0.1
_STANDING, _LOG_START = 1, 3  # these words of a row (ipc.replicas)


class Progress(NamedTuple):
    """A follower has all below `offset`, and its log begins at `log_start`.

    `leo` and `epoch` are the leader's log end and epoch when that was found; in another epoch it may not be true.
    """

    partition: Partition
    broker: int
    offset: int
    log_start: int
    leo: int
    epoch: int


class FollowerProgress:
    """What a worker knows of followers beyond the rows that all share."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._later: dict[tuple[Partition, int], Progress] = {}
        self._untold: dict[FollowerFetch, float] = {}
        self._next_ring = 0.0
        self.throttling = Throttling(worker)
        self.epochs = EpochCaches()

    # -- progress

    def note(self, progress: Progress) -> None:
        """Take over how far a follower is, now or when the partition's lock is free."""
        key = progress.partition, progress.broker
        if key not in self._later:
            if self._noted(progress) or self._noted_soon(progress):
                return
            if not self._later:
                self._worker.again(self._retry)
        self._later[key] = progress

    def _noted_soon(self, progress: Progress) -> bool:
        """An append elsewhere holds the lock for some 20 µs."""
        for _ in range(QUICK_TRIES):
            os.sched_yield()
            if self._noted(progress):
                return True
        return False

    def _retry(self) -> bool:
        later, self._later = self._later, {}
        for key, progress in later.items():
            if not self._noted_or_dropped(progress):
                progress.partition.note_wait()
                self._later[key] = progress
        return not self._later

    def _noted_or_dropped(self, progress: Progress) -> bool:
        """`_noted`, but an error costs this progress alone: the follower's next fetch says it again.

        Were it raised from `_retry`, no one would retry what was put back into `_later` before it, and `note` would
        only ever add to that.
        """
        try:
            return self._noted(progress)
        except Exception:
            log.exception("cannot record the fetch offset of broker %d for %r", progress.broker, progress.partition)
            return True

    def _noted(self, progress: Progress) -> bool:
        """Do it; False while another process has the lock."""
        partition, slot = progress.partition, progress.partition.slot
        before = slot.sequence
        try:
            values = partition.acquire()
        except Busy:
            return False
        except (Gone, OSError):
            return True
        try:
            self._note(progress, values)
        finally:
            # Mostly only the row has changed: nobody waits for that. Followers do not wait for the high watermark.
            partition.release(slots.NOTHING if slot.sequence == before else slots.ANYTHING)
        return True

    def _note(self, progress: Progress, values: Fields) -> None:
        """Caller holds the lock."""
        slot, offset = progress.partition.slot, progress.offset
        row = replicas.find(slot, progress.broker)
        if row < 0 or values[slots.F_STATE] != slots.LEADER or values[slots.F_LEADER_EPOCH] != progress.epoch:
            return
        log_start = slot.words[row + _LOG_START]
        now_ms = time.monotonic_ns() // 1_000_000
        replicas.fetched(slot, values, row, offset, progress.log_start, progress.leo, now_ms)
        if log_start != progress.log_start:
            slot.publish(values)  # DeleteRecords may wait for it
        if slot.words[row + _STANDING] == replicas.OUT:
            if offset >= values[slots.F_HW] and offset >= values[slots.F_EPOCH_START]:
                self._ring_controller()
        elif offset > values[slots.F_HW]:
            hw, voters = replicas.committed(slot, values[slots.F_LEO])
            if hw > values[slots.F_HW]:
                values[slots.F_HW], values[slots.F_VOTERS] = hw, voters
                slot.publish(values)

    def _ring_controller(self) -> None:
        """A follower may join the ISR. It says so again with its next fetch."""
        now = time.monotonic()
        if now >= self._next_ring:
            self._next_ring = now + _RING_PAUSE_S
            self._worker.catalog.log.ring(roles.CONTROLLER)

    # -- news

    def untold(self, fetch: FollowerFetch) -> None:
        """While `fetch` waits for records its follower does not know the high watermark, or the log's start."""
        self._untold.setdefault(fetch, time.monotonic())

    def told(self, fetch: FollowerFetch) -> None:
        """`fetch` is answered, and asks again."""
        self._untold.pop(fetch, None)

    def tick(self) -> None:
        """Tell who has waited for TELL_S: where records keep coming, the watermark comes with them before that."""
        due = time.monotonic() - TELL_S
        for fetch, since in list(self._untold.items()):
            if fetch.connection.parked is not fetch or fetch.finished:
                del self._untold[fetch]
            elif since <= due:
                del self._untold[fetch]
                fetch.tell()
