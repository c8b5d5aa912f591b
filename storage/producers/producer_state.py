"""The producer state of a partition, replayed from batches (KIP-98), and aborted transactions.

An entry keeps the last five batches of a producer id, so that a resent batch is recognized by its
sequence numbers and answered with its first offset. A transaction is open from its first batch to
its control batch (commit or abort); aborted ones are listed in `.txnindex`, 34 bytes each, big-endian:
version h (0), producer id q, first offset q, last offset q (of the marker), last stable offset q.

Pure memory, no clock. Owner of the txn index file: the process that holds the partition's lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple

from odradek.protocol.batch import TRANSACTIONAL
from odradek.protocol.records.control import ABORT, COMMIT, read_marker
from odradek.protocol.records.errors import RecordError
from odradek.protocol.wire import INT32_MAX
from odradek.storage.files.durable import StrPath, read_file
from odradek.storage.files.faults import DamagedIndex
from odradek.storage.segment.scan import Batch

__all__ = [
    "ABORT",
    "BATCHES_KEPT",
    "COMMIT",
    "AbortedTxn",
    "ProducedBatch",
    "ProducerEntry",
    "ProducerReplay",
    "next_sequence",
    "parse_marker",
    "previous_sequence",
    "read_txn_index",
]

BATCHES_KEPT = 5
NO_SEQUENCE = -1
MAX_SEQUENCE = INT32_MAX
TXN_ENTRY = Struct(">hqqqq")


class ProducedBatch(NamedTuple):
    """One batch of a producer: sequences and offsets are of its first and last record."""

    first_seq: int
    last_seq: int
    first_offset: int
    last_offset: int
    timestamp: int
    epoch: int


@dataclass(slots=True)
class ProducerEntry:
    """A producer id's state. `txn_first_offset` is -1 when it has no open transaction.

    `marked_offset` is that of its last marker. A snapshot does not have it: then this is the snapshot's last offset.
    """

    epoch: int = -1
    coordinator_epoch: int = -1
    timestamp: int = -1
    txn_first_offset: int = -1
    batches: list[ProducedBatch] = field(default_factory=list)
    marked_offset: int = field(default=-1, compare=False)

    @property
    def last(self) -> ProducedBatch | None:
        return self.batches[-1] if self.batches else None

    def enter_epoch(self, epoch: int) -> None:
        """Set the epoch; a new one restarts the sequences."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()

    def add(self, batch: ProducedBatch) -> None:
        self.enter_epoch(batch.epoch)
        self.batches.append(batch)
        if len(self.batches) > BATCHES_KEPT:
            del self.batches[0]
        self.timestamp = batch.timestamp


class AbortedTxn(NamedTuple):
    """A row of the transaction index."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    def pack(self) -> bytes:
        return TXN_ENTRY.pack(0, *self)

    def is_possible(self, base: int) -> bool:
        """Whether the segment at `base` may have such a row. The last stable offset is at most one past its marker."""
        producer_id, first, last, stable = self
        return producer_id >= 0 and 0 <= first < last and base <= last and 0 <= stable <= last + 1


def txn_rows(data: bytes) -> Iterator[tuple[int, ...]]:
    """The whole rows of a `.txnindex`: the version, then the fields of AbortedTxn."""
    return TXN_ENTRY.iter_unpack(data[: len(data) // TXN_ENTRY.size * TXN_ENTRY.size])


def read_txn_index(path: StrPath) -> list[AbortedTxn]:
    """All aborted transactions of a segment's `.txnindex`; [] without the file.

    Raises DamagedIndex on an unknown version; a partial row at the end is ignored.
    """
    try:
        data = read_file(path)
    except FileNotFoundError:
        return []
    rows = []
    for version, *row in txn_rows(data):
        if version != 0:
            raise DamagedIndex(f"{path}: aborted transaction of version {version}, known is 0")
        rows.append(AbortedTxn(*row))
    return rows


def next_sequence(sequence: int, count: int) -> int:
    """The sequence number `count` after `sequence`: past 2^31−1 comes 0."""
    return (sequence + count) & MAX_SEQUENCE


def previous_sequence(sequence: int, count: int) -> int:
    """The sequence number `count` before `sequence`, wrapping the same way."""
    return (sequence - count) & MAX_SEQUENCE


class ProducerReplay:
    """Producer entries after all batches added so far, in offset order."""

    def __init__(self, producers: dict[int, ProducerEntry] | None = None) -> None:
        self.producers: dict[int, ProducerEntry] = {} if producers is None else producers

    def add(self, batch: Batch) -> None:
        """Adds a data batch of a producer id (`batch.producer_id` >= 0, not a control batch)."""
        entry = self.producers.setdefault(batch.producer_id, ProducerEntry())
        delta = batch.last_offset - batch.base_offset
        first = batch.base_sequence
        last = next_sequence(first, delta) if first >= 0 else NO_SEQUENCE
        entry.add(
            ProducedBatch(first, last, batch.base_offset, batch.last_offset, batch.max_timestamp, batch.producer_epoch)
        )
        if batch.attributes & TRANSACTIONAL and entry.txn_first_offset < 0:
            entry.txn_first_offset = batch.base_offset

    def add_control(self, batch: Batch, payload: bytes) -> AbortedTxn | None:
        """Adds a control batch with its bytes; returns the transaction when this aborted one."""
        marker = parse_marker(payload)
        if marker is None:
            return None
        kind, coordinator_epoch = marker
        entry = self.producers.setdefault(batch.producer_id, ProducerEntry())
        first = entry.txn_first_offset
        entry.enter_epoch(batch.producer_epoch)
        entry.coordinator_epoch, entry.timestamp = coordinator_epoch, batch.max_timestamp
        entry.txn_first_offset, entry.marked_offset = -1, batch.last_offset
        if kind != ABORT or first < 0:
            return None
        stable = self.first_unstable()
        return AbortedTxn(batch.producer_id, first, batch.last_offset, batch.last_offset + 1 if stable < 0 else stable)

    def first_unstable(self) -> int:
        """First offset of the oldest open transaction, -1 when none is open."""
        return min((e.txn_first_offset for e in self.producers.values() if e.txn_first_offset >= 0), default=-1)


def parse_marker(payload: bytes | memoryview) -> tuple[int, int] | None:
    """(ABORT or COMMIT, coordinator epoch) of a control batch; None for other kinds or an emptied one."""
    try:
        return read_marker(payload)
    except (RecordError, StopIteration):
        return None
