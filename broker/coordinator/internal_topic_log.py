"""The log of an internal topic, `__consumer_offsets` or `__transaction_state`, as the coordinator appends and reads it.

Only the coordinator calls it, with its own batches, so only their size needs checking.
An append that reaches `flush.messages` waits for the disk here, on the coordinator's loop: one turn's commits share
that fsync, which is what the setting asks for.

The coordinator reads a partition within one term: a time of leading it without interruption. It writes only in that
term, which is checked under the partition's lock: once another broker has led, the loaded state is outdated, even if
this broker leads again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Iterable, Sequence
from typing import NamedTuple

from odradek.cluster.rules.topicnames import OFFSETS
from odradek.groups.log_writer import BATCH_BYTES, LogBusy, LogError
from odradek.ipc import memory_order, slots
from odradek.ipc.partition_counts import FAILED_PRODUCE_REQUESTS, PRODUCE_REQUESTS
from odradek.protocol.batch import MAGIC_AT, split
from odradek.protocol.errors import Error
from odradek.protocol.records import batch_v2
from odradek.storage.log import read
from odradek.storage.log.append import append
from odradek.storage.log.flush import Flush
from odradek.storage.log.log_batch import Batch
from odradek.storage.log.partition import LockNotAvailable, Partition, PartitionRemoved
from odradek.workers.dispatch.catalog import Catalog

log = logging.getLogger(__name__)

READ_BYTES = 1 << 20
ABSENT_S = 1.0  # renames under the partition's lock replace files, which takes milliseconds


class Term(NamedTuple):
    """A time of leading a partition without interruption; `epoch` is the leader epoch when it was entered here."""

    incarnation: int
    led_since: int
    epoch: int

    def lasts(self, values: Sequence[int]) -> bool:
        """Whether a slot's fields still belong to this term."""
        return (
            values[slots.F_STATE] == slots.LEADER
            and values[slots.F_LED_SINCE] == self.led_since
            and values[slots.F_INCARNATION] == self.incarnation
        )


class InternalTopicLog:
    """Implements `groups.log_writer.CoordinatorLog`."""

    def __init__(self, catalog: Catalog, role: int, topic: str = OFFSETS) -> None:
        self._catalog = catalog
        self._role = role
        self._topic = topic
        self._terms: dict[int, Term] = {}

    # -- terms

    def enter(self, partition: int) -> bool:
        """Start reading and writing a partition that this broker leads; False when it does not lead it."""
        there = self._catalog.log.get(self._topic, partition)
        if there is None:
            return False
        values = there.slot.read()
        term = Term(there.incarnation, values[slots.F_LED_SINCE], values[slots.F_LEADER_EPOCH])
        if not term.lasts(values):
            return False
        self._terms[partition] = term
        return True

    def leave(self, partition: int) -> None:
        """Stop writing until the partition is entered again."""
        self._terms.pop(partition, None)

    def ended(self) -> list[int]:
        """The entered partitions whose term has ended, whether or not this broker leads them again."""
        return [partition for partition in self._terms if not self._lasts(partition)]

    def epoch(self, partition: int) -> int:
        """The leader epoch in which the partition was entered; -1 if it was not."""
        term = self._terms.get(partition)
        return -1 if term is None else term.epoch

    def _lasts(self, partition: int) -> bool:
        try:
            self._read(partition)
        except LogError:
            return False
        return True

    def _partition(self, index: int) -> Partition:
        partition = self._catalog.log.get(self._topic, index)
        if partition is None:
            raise LogError(Error.NOT_LEADER_OR_FOLLOWER)
        return partition

    def _read(self, partition: int) -> Sequence[int]:
        """The slot's fields, while the term lasts."""
        values = self._partition(partition).slot.read()
        self._check(partition, values)
        return values

    def _check(self, partition: int, values: Sequence[int]) -> None:
        term = self._terms.get(partition)
        if term is None or not term.lasts(values):
            offline = values[slots.F_STATE] == slots.OFFLINE
            raise LogError(Error.KAFKA_STORAGE_ERROR if offline else Error.NOT_LEADER_OR_FOLLOWER)

    # -- writing

    def max_batch_bytes(self, partition: int) -> int:
        """See `CoordinatorLog.max_batch_bytes`; if the partition is gone, `append` raises."""
        there = self._catalog.log.get(self._topic, partition)
        return BATCH_BYTES if there is None else there.config.max_message_bytes

    def append(self, partition: int, batch: bytes) -> int:
        """See `CoordinatorLog.append`."""
        there = self._partition(partition)
        if len(batch) > there.config.max_message_bytes:
            raise LogError(Error.MESSAGE_TOO_LARGE)
        header = batch_v2.header(batch)
        entry = Batch(
            memoryview(bytearray(batch)), header.num_records, header.max_timestamp, header.producer_id,
            header.producer_epoch,
        )  # fmt: skip
        entry.transactional = header.is_transactional
        try:
            with there.locked() as values:
                self._check(partition, values)
                there.counts[PRODUCE_REQUESTS] += 1
                if values[slots.F_ISR_COUNT] < values[slots.F_MIN_ISR]:
                    there.counts[FAILED_PRODUCE_REQUESTS] += 1
                    raise LogError(Error.NOT_ENOUGH_REPLICAS)
                append(there, values, [entry], _wall_ms())
                unsynced = values[slots.F_LEO] - values[slots.F_FLUSHED]
        except LockNotAvailable:
            raise LogBusy from None
        except PartitionRemoved:
            raise LogError(Error.NOT_LEADER_OR_FOLLOWER) from None
        except OSError as error:
            log.error("%r: %s", there, error)
            raise LogError(Error.KAFKA_STORAGE_ERROR) from None
        if entry.error:
            raise LogError(Error(entry.error))
        if unsynced >= there.config.flush_messages:
            _sync(there)
        return entry.base_offset

    def passed(self, partition: int, end: int) -> bool:
        """See `CoordinatorLog.passed`."""
        values = self._read(partition)
        if values[slots.F_HW] < end:
            return False
        if values[slots.F_HW_QUORUM] < values[slots.F_MIN_ISR]:
            raise LogError(Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        return True

    def request_ring(self, partitions: Iterable[int]) -> None:
        """Request a doorbell when these partitions change; the caller checks them once more after this."""
        for index in partitions:
            there = self._catalog.log.get(self._topic, index)
            if there is not None:
                there.slot.wait(self._role)
        memory_order.fence()

    def state(self, partition: int) -> int:
        """The slot's state (ipc.slots): RECOVERING, LEADER, OFFLINE, …"""
        there = self._catalog.log.get(self._topic, partition)
        return slots.FREE if there is None else there.state().state

    # -- reading

    def read_all(self, partition: int) -> Generator[bytes | None, None, int]:
        """See `CoordinatorLog.read_all`; returns the log end that it reached. None between batches: retry in a moment.

        OSError when the disk fails or a segment is missing, LogError when the term ends: the data read since may
        have been truncated.
        """
        there = self._partition(partition)
        offset = 0
        absent = _Absent()
        while True:
            values = self._read(partition)
            try:
                data = read.raw(there, values, max(offset, values[slots.F_LOG_START]), READ_BYTES)
            except FileNotFoundError as error:
                absent.seen(values, there.slot.dirty, error)
                yield None
                continue
            if not data:
                return values[slots.F_LEO]
            self._read(partition)
            for batch in split(data):
                yield batch
                offset = _next_offset(batch)

    def is_certain(self, partition: int, end: int) -> bool:
        """Whether all in-sync replicas have the log up to `end`, so that no failover can remove it."""
        there = self._catalog.log.get(self._topic, partition)
        return there is not None and self._lasts(partition) and there.slot.read()[slots.F_HW] >= end


def _sync(partition: Partition) -> None:
    try:
        one = Flush.begin(partition)
        one.sync()
        try:
            with partition.locked() as values:
                one.publish(values)
        except LockNotAvailable:  # the janitor can update the slot later
            if one.error is not None:
                raise one.error from None
    except (OSError, PartitionRemoved) as error:
        log.error("%r: flush failed: %s", partition, error or type(error).__name__)
        raise LogError(Error.KAFKA_STORAGE_ERROR) from None


class _Absent:
    """Distinguishes files that are being replaced from a missing file."""

    def __init__(self) -> None:
        self._generation, self._since = -1, 0.0

    def seen(self, values: Sequence[int], dirty: int, error: FileNotFoundError) -> None:
        """A file was not found. Raises `error` when the set of files has not changed for too long."""
        now = time.monotonic()
        if values[slots.F_GENERATION] != self._generation or dirty:
            self._generation, self._since = values[slots.F_GENERATION], now
        elif now - self._since > ABSENT_S:
            raise error


def _next_offset(batch: bytes) -> int:
    first = int.from_bytes(batch[:8], "big")
    if batch[MAGIC_AT] < 2:  # a message that wraps a message set has its last offset there
        return first + 1
    return batch_v2.header(batch).last_offset + 1


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
