"""Waiting for the disk without stalling the loop: flush.messages, with one fsync for all batches that came meanwhile.

A partition whose unsynced records reached flush.messages is handed to one thread, which syncs its active segment. The
loop then publishes the recovery point (and the high watermark, where the topic shows only synced records) and continues
with the batches: they are decided, or wait for followers too (workers.produce.acks_all). Batches that arrive during
an fsync share the next one. A failed fsync takes the partition offline: pages that the kernel dropped are lost.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.protocol import errors
from odradek.storage.log.flush import Flush
from odradek.storage.log.partition import LockNotAvailable, Partition, PartitionRemoved
from odradek.workers.produce.batching import refuse

if TYPE_CHECKING:
    from odradek.workers.produce.batching import Batching, PendingBatch, Waiting

log = logging.getLogger(__name__)


class _Group:
    """Batches of one partition that share an fsync."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.runs: list[tuple[list[PendingBatch], int, Waiting]] = []  # (batches, led_since, since), one append each
        self.flush: Flush | None = None  # None: it could not start
        self.error: Exception | None = None


class Syncer:
    """The worker's fsync thread and the batches that wait for it. Only `_run` runs in the thread."""

    def __init__(self, batching: Batching, again: Callable[[Callable[[], bool]], None]) -> None:
        """`again(work)` calls `work` every millisecond until it returns True."""
        self._batching = batching
        self._again = again
        self._next: dict[Partition, _Group] = {}
        self._busy: set[Partition] = set()
        self._todo: queue.SimpleQueue[_Group | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[_Group] = queue.SimpleQueue()
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread: threading.Thread | None = None
        self._retrying = False

    def fileno(self) -> int:
        """A descriptor that is readable when `collect` has work."""
        return self._event

    def submit(self, partition: Partition, batches: list[PendingBatch], led_since: int, since: Waiting) -> None:
        """Pass the appended `batches` to `Batching.synced` once they are on the disk."""
        group = self._next.get(partition)
        if group is None:
            group = self._next[partition] = _Group(partition)
        group.runs.append((batches, led_since, since))
        if partition not in self._busy:
            self._start(partition)

    def _start(self, partition: Partition) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="fsync", daemon=True)
            thread.start()  # may fail: the next call retries
            self._thread = thread
        self._busy.add(partition)
        group = self._next.pop(partition)
        try:
            group.flush = Flush.begin(partition)
        except Exception as error:
            group.error = error
            self._finished(group)
        else:
            self._todo.put(group)

    def _run(self) -> None:
        while (group := self._todo.get()) is not None:
            try:
                if group.flush is not None:
                    group.flush.sync()
            except Exception as error:  # this thread must survive, or nothing would be synced any more
                group.error = error
            self._finished(group)
        os.close(self._event)

    def _finished(self, group: _Group) -> None:
        self._done.put(group)
        os.eventfd_write(self._event, 1)

    def collect(self) -> None:
        """Publish and decide the groups that the thread has finished."""
        try:
            os.eventfd_read(self._event)
        except BlockingIOError:
            pass
        retry = []
        while not self._done.empty():
            group = self._done.get()
            try:
                self._publish(group)
            except LockNotAvailable:
                retry.append(group)
                continue
            self._busy.discard(group.partition)
            for batches, led_since, since in group.runs:
                self._batching.synced(group.partition, batches, led_since, since)
            if group.partition in self._next:
                self._start(group.partition)
        for group in retry:
            self._done.put(group)
        if retry and not self._retrying:
            self._retrying = True
            self._again(self._retry)

    def _retry(self) -> bool:
        self._retrying = False
        self.collect()
        return True

    def _publish(self, group: _Group) -> None:
        """Raises LockNotAvailable when the lock is taken. Refuses a group whose records may not be on the disk."""
        try:
            if group.error is not None:
                raise group.error
            assert group.flush is not None
            with group.partition.locked() as values:
                group.flush.publish(values)
        except LockNotAvailable:
            raise
        except Exception as error:
            fault = None if isinstance(error, OSError | PartitionRemoved) else error
            log.error("%r: fsync failed: %s", group.partition, error or type(error).__name__, exc_info=fault)
            for batches, *_ in group.runs:
                refuse(batches, errors.KAFKA_STORAGE_ERROR)

    def close(self) -> None:
        """Let the thread end, without waiting for its work; so the thread itself closes the eventfd that it writes."""
        if self._thread is None:
            os.close(self._event)
        else:
            self._todo.put(None)
