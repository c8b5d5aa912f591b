"""Truncations that may take long, in threads: the replicator's loop fetches other partitions meanwhile.

A cut in a sealed segment copies it up to the cut and recovers it, some seconds for a GiB; a cut of many records in the
active segment reads them. A few run at a time, each in a thread that acts like a separate process: it has its own open
file description of the lock file (ipc.locks), so that the loop finds the lock held, and its own files and producers.

Lock      : the partition's, held by the thread. The epoch cannot change meanwhile: that needs the lock too. While a cut
            waits for it, its partition may be assigned again in the same epoch, cut and fetched. The waiting cut is
            dropped then, as it would remove newer records.
Crash rule: storage.log.truncate's. A thread ends with its process; a process that stops waits for running cuts.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue

from odradek.broker.replicator import follower_log
from odradek.cluster.replication.partition_fetch_states import Position
from odradek.ipc import roles, slots
from odradek.ipc.shm import Shared
from odradek.ipc.slots import Fields
from odradek.storage.log.log import Log, PartitionLocation
from odradek.storage.log.partition import LockNotAvailable, Partition

log = logging.getLogger(__name__)

THREADS = 4
_MANY = 1000  # records: their batches' headers are read in some milliseconds
_AGAIN_S = 0.001

Outcome = Position | Exception
Done = Callable[[Outcome], None]
IsCurrent = Callable[[], bool]


def may_take_long(partition: Partition, offset: int) -> bool:
    """Whether the loop must not wait for a cut at `offset`."""
    values = partition.slot.read()
    return offset < values[slots.F_ACTIVE_BASE] or values[slots.F_LEO] - offset > _MANY


class Truncations:
    """The running cuts; call `drain` when `fileno` is readable."""

    def __init__(self, shared: Shared, run_dir: Path) -> None:
        self._shared = shared
        self._run_dir = run_dir
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._over = False
        self._threads = ThreadPoolExecutor(THREADS, "cut")
        self._ended: SimpleQueue[tuple[Done, Future[Position]]] = SimpleQueue()

    def fileno(self) -> int:
        """Readable when a cut has ended."""
        return self._event

    def begin(
        self, partition: Partition, epoch: int, cut: follower_log.Truncation, is_current: IsCurrent, done: Done
    ) -> None:
        """Run `cut` if the partition is followed in `epoch`; `drain` calls `done` with the outcome.

        A thread calls `is_current` while it waits for the lock, and when it has it.
        """
        future = self._threads.submit(self._carry_out, partition, epoch, cut, is_current)
        future.add_done_callback(partial(self._end, done))

    def drain(self) -> None:
        """Report cuts that have ended."""
        try:
            os.eventfd_read(self._event)
        except BlockingIOError:
            pass
        while True:
            try:
                done, future = self._ended.get_nowait()
            except Empty:
                return
            error = future.exception()
            done(error if isinstance(error, Exception) else future.result())

    def close(self) -> None:
        """Wait for running cuts; drop those that have not begun."""
        self._over = True
        self._threads.shutdown(cancel_futures=True)
        os.close(self._event)

    # -- in a thread

    def _carry_out(
        self, partition: Partition, epoch: int, cut: follower_log.Truncation, is_current: IsCurrent
    ) -> Position:
        thread_log = self._own_log(partition)
        try:
            own = thread_log.get(partition.topic, partition.index)
            assert own is not None
            return self._cut(own, epoch, cut(own), is_current)
        finally:
            thread_log.close()

    def _own_log(self, partition: Partition) -> Log:
        """The partition as another process would see it."""
        log_dir = os.path.dirname(partition.directory)
        place = PartitionLocation(partition.topic_id, partition.slot.number, partition.incarnation, log_dir)
        return Log(self._shared, self._run_dir, roles.REPLICATOR, lambda *_: place, lambda _: partition.config)

    def _cut(self, own: Partition, epoch: int, change: follower_log.Change, is_current: IsCurrent) -> Position:
        while True:
            try:
                return follower_log.change(own, epoch, _if_current(change, is_current))
            except LockNotAvailable:
                if self._over:
                    raise
            if not is_current():
                raise follower_log.FencedLeaderEpoch
            time.sleep(_AGAIN_S)

    def _end(self, done: Done, future: Future[Position]) -> None:
        if not future.cancelled():
            self._ended.put((done, future))
            os.eventfd_write(self._event, 1)


def _if_current(change: follower_log.Change, is_current: IsCurrent) -> follower_log.Change:
    def act(values: Fields) -> Position:
        if not is_current():
            raise follower_log.FencedLeaderEpoch
        return change(values)

    return act
