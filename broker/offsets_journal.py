"""The coordinator's journal over the log: appends to and reads from `__consumer_offsets` or `__transaction_state`.

Called by the coordinator only, with its own batches, so nothing about them needs checking but their size.
An append that reaches `flush.messages` waits for the disk here, on the coordinator's loop: one round's commits
share that fsync, and whoever sets it wants it so.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

from odradek.groups.errors import Error
from odradek.groups.journal import JournalBusy, JournalError
from odradek.ipc import slots
from odradek.protocol.records import batch_v2
from odradek.storage import flush, read
from odradek.storage.append import Batch, append
from odradek.storage.partition import Busy, Gone, Partition
from odradek.workers.catalog import Catalog

log = logging.getLogger(__name__)

TOPIC = "__consumer_offsets"
READ_BYTES = 1 << 20
_MAGIC_AT = 16


class OffsetsJournal:
    """Implements `groups.journal.Journal`."""

    def __init__(self, catalog: Catalog, role: int, topic: str = TOPIC) -> None:
        self._catalog = catalog
        self._role = role
        self._topic = topic

    def _partition(self, index: int) -> Partition:
        partition = self._catalog.log.get(self._topic, index)
        if partition is None:
            raise JournalError(Error.NOT_LEADER_OR_FOLLOWER)
        return partition

    def append(self, partition: int, batch: bytes) -> int:
        """See `Journal.append`."""
        there = self._partition(partition)
        if len(batch) > there.config.max_message_bytes:
            raise JournalError(Error.MESSAGE_TOO_LARGE)
        header = batch_v2.header(batch)
        entry = Batch(
            memoryview(bytearray(batch)), header.num_records, header.max_timestamp, header.producer_id,
            header.producer_epoch,
        )  # fmt: skip
        entry.transactional = header.is_transactional
        try:
            with there.locked() as values:
                append(there, values, [entry], _wall_ms())
                end, unsynced = values[slots.F_LEO], values[slots.F_LEO] - values[slots.F_FLUSHED]
        except Busy:
            raise JournalBusy from None
        except Gone:
            raise JournalError(Error.NOT_LEADER_OR_FOLLOWER) from None
        except OSError as error:
            log.error("%r: %s", there, error)
            raise JournalError(Error.KAFKA_STORAGE_ERROR) from None
        if entry.error:
            raise JournalError(Error(entry.error))
        if unsynced >= there.config.flush_messages:
            self._sync(there, end)
        return entry.base_offset

    def _sync(self, partition: Partition, end: int) -> None:
        try:
            flush.sync_files(flush.files_to_sync(partition, partition.state()))
            with partition.locked() as values:
                flush.flushed(partition, values, end)
        except Busy:
            pass  # it is on the disk; that the slot says so can wait for the janitor
        except (OSError, Gone) as error:
            log.error("%r: could not be flushed: %s", partition, error)
            raise JournalError(Error.KAFKA_STORAGE_ERROR) from None

    def high_watermark(self, partition: int) -> int:
        """See `Journal.high_watermark`; -1 when the partition is gone."""
        there = self._catalog.log.get(self._topic, partition)
        if there is None:
            return -1
        state = there.state()
        return state.hw if state.incarnation == there.incarnation else -1

    def ring_me(self, partitions: list[int]) -> None:
        """Have the doorbell ring when these partitions change; look at them once more after this."""
        for index in partitions:
            there = self._catalog.log.get(self._topic, index)
            if there is not None:
                there.slot.wait(self._role)
        self._catalog.log.locks.fence()

    def state(self, partition: int) -> int:
        """The slot's state (ipc.slots): RECOVERING, LEADER, OFFLINE, …"""
        there = self._catalog.log.get(self._topic, partition)
        return slots.FREE if there is None else there.state().state

    def read_all(self, partition: int) -> Iterator[bytes]:
        """See `Journal.read_all`. OSError when the disk fails."""
        there = self._partition(partition)
        offset = there.state().log_start
        while True:
            values = there.slot.read()
            try:
                data = read.raw(there, values, max(offset, values[slots.F_LOG_START]), READ_BYTES)
            except FileNotFoundError:  # the segments changed between the two looks
                continue
            if not data:
                return
            for batch in split(data):
                yield batch
                offset = _next_offset(batch)


def split(data: bytes) -> Iterator[bytes]:
    """The batches in a run of whole ones."""
    position = 0
    while position < len(data):
        size = int.from_bytes(data[position + 8 : position + 12], "big") + batch_v2.LOG_OVERHEAD
        yield data[position : position + size]
        position += size


def _next_offset(batch: bytes) -> int:
    first = int.from_bytes(batch[:8], "big")
    if batch[_MAGIC_AT] < 2:  # a message set wrapped in one message has its last offset there
        return first + 1
    return batch_v2.header(batch).last_offset + 1


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
