"""Transactions as a partition sees them (KIP-98): open ones hold the last stable offset back, markers end them.

Layout    : markers are control batches in the log; `.txnindex` of the segment that holds an abort marker has a row for
            the aborted transaction (storage.producers.producer_state: 34 bytes a row). The slot has the first unstable
            offset and the number of aborted transactions; the producer table has each producer's open transaction.
Owner     : the partition.
Writers   : the process that holds the lock; markers only at the transaction coordinator's request.
Lock      : the partition's; readers of `.txnindex` take none, and ignore a partial row.
Crash rule: a marker is written as: index row → batch → publish (log end, first unstable offset) → producer table. A row
            whose marker was never published has a last offset at or above the log end, and repair cuts it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from odradek.ipc import renewal, slots
from odradek.ipc.partition_counts import FAILED_PRODUCE_REQUESTS
from odradek.ipc.producers import COORDINATOR_EPOCH, EPOCH, MARKED
from odradek.protocol import errors
from odradek.protocol.wire import INT64_MAX
from odradek.storage.files import names
from odradek.storage.files.durable import FILES, read_file
from odradek.storage.files.faults import DamagedIndex
from odradek.storage.log.log_batch import VerificationGuard
from odradek.storage.producers.producer_state import TXN_ENTRY, AbortedTxn, read_txn_index, txn_rows

if TYPE_CHECKING:
    from odradek.ipc.slots import Fields
    from odradek.storage.log.log_batch import Batch, Marker
    from odradek.storage.log.partition import Partition
    from odradek.storage.log.read import Values
    from odradek.storage.log.sequences import Staged

EVERY_SEGMENT = INT64_MAX - 1
"""Replaces the base offset of a damaged segment when rows are missing in an unknown segment."""


def may_open(partition: Partition, values: Fields, staged: Staged, batch: Batch, offset: int) -> bool:
    """Whether a client's transactional batch may be appended at `offset` (KIP-890). The append calls it, lock held.

    A batch that continues the producer's open transaction may. A batch that would open it may if the coordinator has
    confirmed that the transaction includes this partition, and no marker of the producer was appended since the
    request: a batch after its transaction's end would hold the last stable offset back for ever. Else `batch.guard`
    becomes the guard for the next request. A table of another generation counts as one with a marker, since it may have
    lost the marker's offset.
    """
    if (batch.producer_id, batch.epoch) in staged.begun:
        return True
    generation = values[slots.F_PSTATE_GEN]
    table = partition.producers.table(generation)
    at = table.find(batch.producer_id) if table is not None else -1
    marked = -1
    if table is not None and at >= 0:
        if table.words[at + EPOCH] == batch.epoch and table.txn_first(at) >= 0:
            return True
        marked = table.words[at + MARKED]
    guard = batch.guard
    if guard is not None and guard.generation == generation and marked < guard.log_end:
        return True
    batch.guard = VerificationGuard(generation, offset)
    return False


def stage_marker(partition: Partition, values: Fields, staged: Staged, batch: Batch, offset: int) -> bool:
    """Admit a marker at `offset`; False when it is fenced. The append calls it, lock held."""
    marker = batch.marker
    assert marker is not None
    table = partition.producers.table(values[slots.F_PSTATE_GEN])
    at = table.find(batch.producer_id) if table is not None else -1
    first = epoch = coordinator_epoch = -1
    if table is not None and at >= 0:
        epoch, coordinator_epoch = table.words[at + EPOCH], table.words[at + COORDINATOR_EPOCH]
        first = table.txn_first(at)
    if error := _refusal(marker, batch.epoch, epoch, coordinator_epoch, first):
        partition.counts[FAILED_PRODUCE_REQUESTS] += error != errors.NOT_LEADER_OR_FOLLOWER
        batch.refuse(error)
        return False
    if table is None:
        values[slots.F_UNSTABLE] = -1
    elif 0 <= first == values[slots.F_UNSTABLE]:  # else another producer's is the oldest, or none is open
        values[slots.F_UNSTABLE] = table.first_unstable(batch.producer_id)
    if not marker.commit and first >= 0:
        stable = values[slots.F_UNSTABLE]
        append_row(
            partition, values, AbortedTxn(batch.producer_id, first, offset, offset + 1 if stable < 0 else stable)
        )
    staged.decide(batch.producer_id, batch.epoch, marker.coordinator_epoch, offset, batch.max_timestamp)
    return True


def _refusal(marker: Marker, of: int, epoch: int, coordinator_epoch: int, first: int) -> int:
    """The error that refuses a marker of producer epoch `of`, given the producer's known values; 0 for none.

    INVALID_TXN_STATE: the epoch is old while a transaction is open; that transaction stays open.
    """
    if of < epoch:
        return errors.INVALID_PRODUCER_EPOCH if first < 0 else errors.INVALID_TXN_STATE
    if marker.coordinator_epoch < coordinator_epoch:  # from a replaced coordinator
        return errors.TRANSACTION_COORDINATOR_FENCED
    if marker.only_open and (first < 0 or of > epoch or marker.coordinator_epoch > max(coordinator_epoch, 0)):
        return errors.NOT_LEADER_OR_FOLLOWER  # a coordinator whose address is not known yet retries
    return errors.NONE


def append_row(partition: Partition, values: Fields, row: AbortedTxn) -> None:
    """Add the index row of an aborted transaction whose marker the active segment gets next. Caller holds the lock.

    The row goes after the last whole row: it overwrites the rest of a failed write.
    """
    path = _path(partition.directory, values[slots.F_ACTIVE_BASE])
    with FILES.opened(path, os.O_WRONLY | os.O_CREAT, 0o600) as fd:
        FILES.pwrite(fd, row.pack(), os.fstat(fd).st_size // TXN_ENTRY.size * TXN_ENTRY.size)
    values[slots.F_ABORTED] += 1


def _path(directory: str, base: int) -> str:
    return os.path.join(directory, names.offset_name(base) + names.TXN_INDEX)


def cut(path: str, log_end: int) -> None:
    """Remove rows of markers that were never published, and a partial row. Caller holds the lock.

    A damaged row stays, for readers to find.
    """
    try:
        data = read_file(path)
    except FileNotFoundError:
        return
    kept = sum(
        1 for version, *row in renewal.along(txn_rows(data)) if version or AbortedTxn(*row).last_offset < log_end
    )
    if len(data) > kept * TXN_ENTRY.size:
        os.truncate(path, kept * TXN_ENTRY.size)


def count_in(directory: str, base: int, mark: str = "") -> int:
    """The number of aborted transactions in the index of one segment."""
    try:
        return os.stat(_path(directory, base) + mark).st_size // TXN_ENTRY.size
    except FileNotFoundError:
        return 0


def count(directory: str) -> int:
    """The number of aborted transactions in the indexes of a partition."""
    return sum(
        entry.stat().st_size // TXN_ENTRY.size
        for entry in os.scandir(directory)
        if entry.name.endswith(names.TXN_INDEX)
    )


def aborted_between(partition: Partition, values: Values, start: int, end: int) -> list[tuple[int, int]]:
    """(producer id, first offset) of the aborted transactions with records in [start, end)."""
    bases = partition.bases(values[slots.F_ACTIVE_BASE], values[slots.F_GENERATION])
    found = [_rows(partition, values, base) for base in bases]
    check_count(partition, values, sum(map(len, found)))
    return [
        (row.producer_id, row.first_offset)
        for rows in found
        for row in rows
        if row.last_offset >= start and row.first_offset < end
    ]


def check_count(partition: Partition, values: Values, found: int) -> None:
    """DamagedIndex if all indexes have fewer rows than the slot says: aborted records would become visible.

    Kafka holds the files open, so a removed file has no effect there before the next start.
    """
    if found >= values[slots.F_ABORTED]:
        return
    if partition.slot.dirty:  # segments are being deleted
        raise FileNotFoundError(f"{partition!r}: the set of segments changes")
    partition.confirm()
    missing = values[slots.F_ABORTED] - found
    raise partition.damaged(EVERY_SEGMENT, f"{missing} aborted transactions are missing in its indexes")


def _rows(partition: Partition, values: Values, base: int) -> list[AbortedTxn]:
    """A segment's rows, read again only when aborted transactions were added since the last read."""
    cached = partition.aborted.get(base)
    if cached is not None and (cached[0] == values[slots.F_ABORTED] or base != values[slots.F_ACTIVE_BASE]):
        return cached[1]
    rows = rows_of(partition, base)
    partition.confirm()
    partition.aborted[base] = (values[slots.F_ABORTED], rows)
    return rows


def rows_of(partition: Partition, base: int) -> list[AbortedTxn]:
    """The rows of one segment's index. Reports impossible rows to the janitor and raises DamagedIndex."""
    try:
        rows = read_txn_index(_path(partition.directory, base))
    except DamagedIndex as error:
        raise partition.damaged(base, str(error)) from None
    if wrong := next((row for row in rows if not row.is_possible(base)), None):
        raise partition.damaged(base, f"the transaction index of segment {base} has {tuple(wrong)}")
    return rows
