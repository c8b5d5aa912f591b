"""Records the progress of this broker's followers, and acts on it.

A follower that fetches from an offset has all records below it. Its progress goes into its row (ipc.replicas) and may
advance the high watermark; the controller process adds a follower that has caught up to the ISR
(broker.controller.member.isr_keeper).
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, NamedTuple, Protocol

from odradek.ipc import replicas, roles, slots
from odradek.storage.log.partition import QUICK_TRIES, LockNotAvailable, Partition, PartitionRemoved
from odradek.workers.fetch.epoch_caches import EpochCaches
from odradek.workers.fetch.throttling import Throttling

if TYPE_CHECKING:
    from odradek.ipc.slots import Fields
    from odradek.workers.dispatch.services import Services
    from odradek.workers.net.connection import Connection

log = logging.getLogger(__name__)

PROGRESS_DELAY_S = 0.05
_RING_PAUSE_S = 0.1
_ISR_STATUS, _LOG_START = 1, 3  # indexes of these words in a row (ipc.replicas)


class Progress(NamedTuple):
    """A follower has all records below `offset`, and its log begins at `log_start`.

    `leo` and `epoch` are the leader's log end and epoch at the time; it is not valid in another epoch.
    """

    partition: Partition
    broker: int
    offset: int
    log_start: int
    leo: int
    epoch: int


class WaitingFetch(Protocol):
    """A follower's fetch that may wait in the purgatory."""

    connection: Connection
    finished: bool

    def send_progress(self) -> None:
        """Stop waiting: send the high watermark or log start that the follower does not know."""


class FollowerProgress:
    """A worker's state about followers, in addition to the shared rows."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._deferred: dict[tuple[Partition, int], Progress] = {}
        self._scheduled: dict[WaitingFetch, float] = {}
        self._next_ring = 0.0
        self.throttling = Throttling(services)
        self.epochs = EpochCaches()

    # -- progress

    def record(self, progress: Progress) -> None:
        """Record a follower's progress, now or when the partition's lock is free."""
        key = progress.partition, progress.broker
        if key not in self._deferred:
            if self._recorded(progress) or self._recorded_soon(progress):
                return
            if not self._deferred:
                self._services.again(self._retry)
        self._deferred[key] = progress

    def _recorded_soon(self, progress: Progress) -> bool:
        """Another process's append holds the lock for some 20 µs."""
        for _ in range(QUICK_TRIES):
            os.sched_yield()
            if self._recorded(progress):
                return True
        return False

    def _retry(self) -> bool:
        deferred, self._deferred = self._deferred, {}
        for key, progress in deferred.items():
            if not self._recorded_or_dropped(progress):
                progress.partition.record_wait()
                self._deferred[key] = progress
        return not self._deferred

    def _recorded_or_dropped(self, progress: Progress) -> bool:
        """`_recorded`, but an error loses only this progress: the follower's next fetch repeats it.

        If `_retry` raised it, the entries that were put back into `_deferred` before it would never be retried, and
        `record` would only add to them.
        """
        try:
            return self._recorded(progress)
        except Exception:
            log.exception("cannot record the fetch offset of broker %d for %r", progress.broker, progress.partition)
            return True

    def _recorded(self, progress: Progress) -> bool:
        """Record the progress; False while another process has the lock."""
        partition, slot = progress.partition, progress.partition.slot
        before = slot.sequence
        try:
            values = partition.acquire()
        except LockNotAvailable:
            return False
        except (PartitionRemoved, OSError):
            return True
        try:
            self._record(progress, values)
        finally:
            # Mostly only the row has changed: nothing waits for that. Followers do not wait for the high watermark.
            partition.release(slots.NOTHING if slot.sequence == before else slots.ANYTHING)
        return True

    def _record(self, progress: Progress, values: Fields) -> None:
        """The caller holds the lock."""
        slot, offset = progress.partition.slot, progress.offset
        row = replicas.find(slot, progress.broker)
        if row < 0 or values[slots.F_STATE] != slots.LEADER or values[slots.F_LEADER_EPOCH] != progress.epoch:
            return
        log_start = slot.words[row + _LOG_START]
        now_ms = time.monotonic_ns() // 1_000_000
        replicas.record_fetch(slot, values, row, offset, progress.log_start, progress.leo, now_ms)
        if log_start != progress.log_start:
            slot.publish(values)  # DeleteRecords may wait for it
        if slot.words[row + _ISR_STATUS] == replicas.OUT:
            if offset >= values[slots.F_HW] and offset >= values[slots.F_EPOCH_START]:
                self._ring_controller()
        elif offset > values[slots.F_HW]:
            hw, hw_quorum = replicas.committed(slot, values[slots.F_LEO])
            if hw > values[slots.F_HW]:
                values[slots.F_HW], values[slots.F_HW_QUORUM] = hw, hw_quorum
                slot.publish(values)

    def _ring_controller(self) -> None:
        """A follower may join the ISR. Its next fetch rings again."""
        now = time.monotonic()
        if now >= self._next_ring:
            self._next_ring = now + _RING_PAUSE_S
            self._services.catalog.log.ring(roles.CONTROLLER)

    # -- high watermarks and log starts

    def schedule_progress(self, fetch: WaitingFetch) -> None:
        """`fetch` waits for records while its follower does not know the high watermark or the log start."""
        self._scheduled.setdefault(fetch, time.monotonic())

    def cancel_progress(self, fetch: WaitingFetch) -> None:
        """`fetch` is answered, and its follower fetches again."""
        self._scheduled.pop(fetch, None)

    def tick(self) -> None:
        """Answer fetches that have waited for PROGRESS_DELAY_S. Steady records carry the high watermark earlier."""
        due = time.monotonic() - PROGRESS_DELAY_S
        for fetch, since in list(self._scheduled.items()):
            if fetch.connection.delayed is not fetch or fetch.finished:
                del self._scheduled[fetch]
            elif since <= due:
                del self._scheduled[fetch]
                fetch.send_progress()
