"""The Produce requests of one round of the event loop: all batches for a partition go into one append.

Batches are collected while connections are read (`add`), and executed when the round ends, when a connection sends
another request behind them, or when the receive buffer is full (`flush`). A partition whose lock stays taken for longer
than an append keeps its batches, copied out of the receive buffer, and retries every millisecond; the others proceed.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from odradek.ipc.partition_counts import FAILED_PRODUCE_REQUESTS, PRODUCE_REQUESTS
from odradek.ipc.slots import (
    F_FLUSHED,
    F_HW_QUORUM,
    F_ISR_COUNT,
    F_LED_SINCE,
    F_LEO,
    F_MIN_ISR,
    F_STATE,
    LEADER,
)
from odradek.protocol import errors
from odradek.storage.log.append import append
from odradek.storage.log.log_batch import Batch
from odradek.storage.log.partition import QUICK_TRIES, LockNotAvailable, Partition, PartitionRemoved

if TYPE_CHECKING:
    from odradek.ipc.slots import Fields
    from odradek.workers.net.connection import Connection
    from odradek.workers.net.request_times import RequestTimes
    from odradek.workers.produce.produce_targets import ProduceTarget

log = logging.getLogger(__name__)

ALONE = -1  # in place of `led_since`: there are no followers to wait for


class PendingBatch(Batch):
    """A batch with what its answer needs: its connection, its destination (`target`), whether it is decided."""

    __slots__ = ("connection", "correlation", "done", "reply", "target")

    def __init__(self, view: memoryview, connection: Connection, correlation: int, target: ProduceTarget) -> None:
        # Does not call Batch.__init__: this runs for every request.
        self.view = view
        self.connection = connection
        self.correlation = correlation
        self.target = target
        self.reply = target.reply  # encodes the answer when there is no error; None: see produce_responses
        self.done = False
        self.error = errors.NONE
        self.base_offset = self.log_start = self.producer_id = -1

    @property
    def size(self) -> int:
        """Bytes of records."""
        return len(self.view)


Waiting = tuple[int, int]
"""When the round that received the batches began, and since when they wait (workers.net.request_times)."""

Append = Callable[[Partition, list[PendingBatch], int, Waiting], None]


class Batching:
    """The batches collected since the last flush, and the connections whose answers may now be complete."""

    def __init__(self, times: RequestTimes) -> None:
        self._times = times
        self._executed = self._waiting = 0  # batches of the flush under way
        self._sync: Append = _nowhere
        self._replicate: Append = _nowhere
        self._verify: Callable[[Partition, list[PendingBatch]], None] = _nowhere
        self.touched: list[Partition] = []
        self.deferred: list[Partition] = []
        self.settling: list[Connection] = []
        self.appends = 0
        self.messages = 0
        self.lock_waits = 0

    def connect(self, sync: Append, replicate: Append, verify: Callable[[Partition, list[PendingBatch]], None]) -> None:
        """Set what takes over batches of one append, with its `led_since`, that must wait.

        `sync`: for an fsync (workers.produce.fsync). `replicate`: for followers (workers.produce.acks_all). `verify`:
        because they would open a transaction (workers.produce.verification).
        """
        self._sync, self._replicate, self._verify = sync, replicate, verify

    def add(self, partition: Partition, batch: PendingBatch) -> None:
        """Collect one checked batch."""
        pending = partition.pending
        if partition.deferred:
            batch.view = memoryview(bytearray(batch.view))
        elif not pending:
            self.touched.append(partition)
        pending.append(batch)

    def flush(self) -> None:
        """Append the collected batches."""
        touched = self.touched
        if touched:
            now_ms = time.time_ns() // 1_000_000
            for partition in touched:
                if not self._append(partition, now_ms) and not self._append_soon(partition, now_ms):
                    self._defer(partition)
            touched.clear()
            self._count_times()

    def _count_times(self) -> None:
        self._times.executed(self._executed, self._waiting)
        self._executed = self._waiting = 0

    def _append_soon(self, partition: Partition, now_ms: int) -> bool:
        """Another process's append holds the lock for some 20 µs: less than deferring the batches would cost."""
        for _ in range(QUICK_TRIES):
            os.sched_yield()
            if self._append(partition, now_ms):
                return True
        return False

    def retry(self) -> None:
        """Retry the partitions whose lock was taken."""
        deferred, self.deferred = self.deferred, []
        now_ms = time.time_ns() // 1_000_000
        for partition in deferred:
            if self._append(partition, now_ms):
                partition.deferred = False
            else:
                self._defer(partition)
        self._count_times()

    def _append(self, partition: Partition, now_ms: int) -> bool:
        """One partition's append; False when its lock is taken."""
        batches = partition.pending
        try:
            values = partition.acquire()
        except LockNotAvailable:
            return False
        except PartitionRemoved:
            refuse(batches, errors.UNKNOWN_TOPIC_OR_PARTITION)
        except OSError:
            partition.counts[PRODUCE_REQUESTS] += len(batches)
            refuse(batches, errors.KAFKA_STORAGE_ERROR)
        else:
            before = values[F_LEO]
            safe = batches if values[F_MIN_ISR] <= 1 else _safe(partition, values, batches)
            try:
                append(partition, values, safe, now_ms)
            except OSError as error:
                log.error("%r: append failed: %s", partition, error)
                refuse(batches, errors.KAFKA_STORAGE_ERROR)
            except Exception:  # a bug: the next holder of the lock repairs the log, the batches are refused
                log.exception("%r: append failed", partition)
                partition.counts[FAILED_PRODUCE_REQUESTS] += len(batches)
                refuse(batches, errors.UNKNOWN_SERVER_ERROR)
            finally:
                partition.release()
            if partition.unverified:
                batches = self._left_out(partition, batches)
            leo = values[F_LEO]
            self.appends += 1
            self.messages += leo - before
            executed = len(batches)
            self._executed += executed
            partition.counts[PRODUCE_REQUESTS] += executed
            if leo - values[F_FLUSHED] >= partition.config.synced_after and _any_stored(batches):
                partition.pending = []
                led_since = values[F_LED_SINCE] if values[F_HW_QUORUM] > 1 else ALONE
                self._waiting += len(batches)
                self._sync(partition, batches, led_since, self._times.wait())  # retries too: originals may be unsynced
                return True
            if values[F_HW_QUORUM] > 1:
                partition.pending = []
                rest = self._await_followers(partition, batches, values[F_LED_SINCE], self._times.wait())
                self._waiting += len(batches) - len(rest)
                self.finish(rest)
                return True
        partition.pending = []
        self.finish(batches)
        return True

    def _left_out(self, partition: Partition, batches: list[PendingBatch]) -> list[PendingBatch]:
        """Hand over the batches that the append left out for verification; returns the others."""
        held = [batch for batch in partition.unverified if not batch.error]
        partition.unverified = []
        self._verify(partition, held)
        left_out = set(held)
        return [batch for batch in batches if batch not in left_out]

    def go_on(self, partition: Partition, batches: list[PendingBatch]) -> None:
        """Append these batches, which are outside the receive buffer, before all others of the partition."""
        if not partition.pending and not partition.deferred:
            self.touched.append(partition)
        partition.pending[:0] = batches

    def _defer(self, partition: Partition) -> None:
        """Copy and keep a partition's batches: the receive buffer that holds them will be reused."""
        self.lock_waits += 1
        partition.record_wait()
        if not partition.deferred:
            for batch in partition.pending:
                batch.view = memoryview(bytearray(batch.view))
        partition.deferred = True
        self.deferred.append(partition)

    def synced(self, partition: Partition, batches: list[PendingBatch], led_since: int, since: Waiting) -> None:
        """The batches, which have waited for the disk, are on it."""
        rest = self._await_followers(partition, batches, led_since, since) if led_since != ALONE else batches
        self.complete(rest, since)

    def _await_followers(
        self, partition: Partition, batches: list[PendingBatch], led_since: int, since: Waiting
    ) -> list[PendingBatch]:
        """The batches with acks=all, which are as durable on this broker as required, wait; returns the others."""
        waiting = [batch for batch in batches if batch.target.acks_all and not batch.error]
        if not waiting:
            return batches
        self._replicate(partition, waiting, led_since, since)
        return [batch for batch in batches if batch.error or not batch.target.acks_all]

    def complete(self, batches: Sequence[PendingBatch], since: Waiting) -> None:
        """`finish` for batches that have waited."""
        if batches:
            self._times.decided(since, len(batches))
        self.finish(batches)

    def finish(self, batches: Sequence[PendingBatch]) -> None:
        """The batches are decided: their connections can answer."""
        settling = self.settling
        for batch in batches:
            batch.done = True
            connection = batch.connection
            if not connection.settling:
                connection.settling = True
                settling.append(connection)

    def settle(self, connection: Connection) -> None:
        """Answer the decided requests of `connection` at the end of the round."""
        if not connection.settling:
            connection.settling = True
            self.settling.append(connection)


def _nowhere(*_: object) -> None:
    raise AssertionError("Batching.connect was not called")


def _any_stored(batches: list[PendingBatch]) -> bool:
    return not all(batch.error for batch in batches)


def _safe(partition: Partition, values: Fields, batches: list[PendingBatch]) -> list[PendingBatch]:
    """The batches that may be stored: all but those with acks=all if fewer than min.insync.replicas are in sync."""
    if values[F_STATE] != LEADER or values[F_ISR_COUNT] >= values[F_MIN_ISR]:
        return batches
    refused = [batch for batch in batches if batch.target.acks_all]
    refuse(refused, errors.NOT_ENOUGH_REPLICAS)
    partition.counts[FAILED_PRODUCE_REQUESTS] += len(refused)
    return [batch for batch in batches if not batch.target.acks_all]


def refuse(batches: list[PendingBatch], error: int) -> None:
    """Decide all of `batches` with `error`."""
    for batch in batches:
        batch.refuse(error)
