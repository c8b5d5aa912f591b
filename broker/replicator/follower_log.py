"""The log of a follower replica: how the replicator changes it, under the partition's lock.

A change applies only in the leader epoch in which its data was requested: `FencedLeaderEpoch` when the slot has moved
on, since a former leader's records must not follow those of a newer one (KIP-101, KIP-279).
Crash rule: a change that removes synced records first lowers the checkpoints to below its cut, publishes that recovery
            point under the same checkpoint lock, then cuts; it holds the partition's lock throughout. So a death
            between any two steps leaves no checkpoint that trusts, after a power failure, the records that replace the
            removed ones. It lowers the cleaner's checkpoint first too, or these records would count as compacted after
            a kill. The checkpoint lock is taken within the partition's lock: none of its holders takes a partition's
            lock. A writer of the checkpoint may wait for a slow disk; a change does not wait for it
            (LockNotAvailable, and the truncation is retried), since a process that holds a partition's lock for
            odradek.lock.stall.ms is killed, and the other replicas wait meanwhile.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from odradek.broker.process.checkpoint_lock import lower, lower_cleaner_point
from odradek.cluster.replication.partition_fetch_states import Position
from odradek.ipc import slots
from odradek.ipc.slots import F_HW, F_LATEST_EPOCH, F_LEADER_EPOCH, F_LEO, F_LOG_START, F_STATE, FOLLOWER, Fields
from odradek.protocol.fetch import FetchPartition
from odradek.protocol.fetch_client import FetchedPartition
from odradek.storage.log import append_as_follower, known_epochs, roll, truncate
from odradek.storage.log.partition import Partition
from odradek.storage.segment.epochs import UNDEFINED_EPOCH, common_end
from odradek.storage.segment.fetched_batches import FetchedBatches, MisplacedBatch

log = logging.getLogger(__name__)

Change = Callable[[Fields], Position]
Truncation = Callable[[Partition], Change]


class FencedLeaderEpoch(Exception):
    """The partition no longer follows in the leader epoch that the change was made for."""


def follows(partition: Partition) -> int:
    """The leader epoch in which the partition follows another broker; -1 when it does not."""
    values = partition.slot.read()
    following = values[F_STATE] == FOLLOWER and values[slots.F_INCARNATION] == partition.incarnation
    return values[F_LEADER_EPOCH] if following else -1


def position(partition: Partition) -> Position:
    """Where to continue. Has the epoch of the last record, not one in which this broker led without a record.

    Raises OSError, and CheckpointError while the epochs cannot be read.
    """
    state = partition.state()
    last = known_epochs.read(partition, state.latest_epoch).epoch_of(state.leo - 1)
    return Position(state.leader_epoch, state.leo, last, state.log_start)


def change(partition: Partition, leader_epoch: int, what: Change) -> Position:
    """Do `what` under the lock; returns the new position.

    Raises LockNotAvailable, PartitionRemoved, FencedLeaderEpoch, what `what` does.
    """
    with partition.locked() as values:
        if values[F_STATE] != FOLLOWER or values[F_LEADER_EPOCH] != leader_epoch:
            raise FencedLeaderEpoch
        return what(values)


def append(
    partition: Partition, sent: FetchPartition, part: FetchedPartition, now_ms: int, batches: FetchedBatches | None
) -> Change:
    """Append a leader's records, apply its high watermark and log start, from its response to `sent`. `batches`: the
    records' batches, if they were found before (storage.segment.fetched_batches). Raises MisplacedBatch when the log
    end has changed: missing records would count as compacted away."""

    def act(values: Fields) -> Position:
        before = values[F_LEO]
        if before != sent.offset:
            raise MisplacedBatch(sent.offset, before)
        append_as_follower.append(partition, values, part.records, part.hw, part.log_start, now_ms, batches)
        last = values[F_LATEST_EPOCH] if values[F_LEO] > before else sent.last_epoch
        return Position(values[F_LEADER_EPOCH], values[F_LEO], last, values[F_LOG_START])

    return act


def has_changes(partition: Partition, part: FetchedPartition) -> bool:
    """Whether a response without records has a high watermark or log start that would change anything."""
    values = partition.slot.read()
    leo = values[F_LEO]
    return min(part.hw, leo) > values[F_HW] or min(part.log_start, leo) > values[F_LOG_START]


def cut_diverging(partition: Partition, epoch: int, end: int) -> Change:
    """The leader's log has other records from `end` on, or before: its records of `epoch` end there."""

    def act(values: Fields) -> Position:
        common = common_end(roll.read_epochs(partition), epoch, end, values[F_LEO])
        return _cut(partition, values, common if common >= 0 else values[F_HW])

    return act


def cut_to(partition: Partition, offset: int) -> Change:
    """The leader's log ends at `offset`."""
    return lambda values: _cut(partition, values, offset)


def cut_unknown(partition: Partition) -> Change:
    """No epoch of the log is known, so no leader can tell where it diverges: keep what is committed, as Kafka does."""
    return lambda values: _cut(partition, values, values[F_HW])


def restart(partition: Partition, offset: int) -> Change:
    """The leader's log begins at `offset`, beyond the end of this one."""

    def act(values: Fields) -> Position:
        log.warning("%r: its leader has nothing before offset %d: starting there, skipping %d records from %d",
                    partition, offset, values[F_LEO] - values[F_LOG_START], values[F_LOG_START])  # fmt: skip
        _distrust(partition, values, offset)
        truncate.restart(partition, values, offset)
        return _position(partition, values)

    return act


def _cut(partition: Partition, values: Fields, offset: int) -> Position:
    offset = min(offset, values[F_LEO])
    if offset < values[F_HW]:
        log.warning("%r: truncated to offset %d, below the high watermark %d", partition, offset, values[F_HW])
    if offset < values[F_LEO]:
        log.info("%r: truncating from %d to %d", partition, values[F_LEO], offset)
    _distrust(partition, values, offset)
    truncate.truncate(partition, values, offset)
    return _position(partition, values)


def _distrust(partition: Partition, values: Fields, offset: int) -> None:
    """Lower the checkpoints before a cut at `offset`, the recovery point to the base of its segment: the cut removes
    the whole batch that holds `offset`, which may begin before it. `values` keep the flushed offset: the cut publishes
    what remains flushed.

    Lower the log start too if the log may end before it, as an unclean leader's may: a start removes a log whose end is
    before its checkpointed log start, and then fetches only from there on.
    """
    start = values[F_LOG_START]
    if offset >= values[F_LEO]:
        return
    bases = partition.bases(values[slots.F_ACTIVE_BASE], values[slots.F_GENERATION])
    base = max((base for base in bases if base <= offset), default=offset)
    lower_cleaner_point(partition, values, base)  # it may have been compacted, and may be again
    if offset >= values[slots.F_FLUSHED] and (offset > start or not start):
        return
    published = partition.slot.fields()
    published[slots.F_FLUSHED] = min(published[slots.F_FLUSHED], base)
    published[F_LOG_START] = min(published[F_LOG_START], base)
    published[slots.F_UNFLUSHED_SINCE] = published[slots.F_UNFLUSHED_SINCE] or time.time_ns() // 1_000_000
    lower(partition, published)


def _position(partition: Partition, values: Fields) -> Position:
    leo = values[F_LEO]
    return Position(values[F_LEADER_EPOCH], leo, roll.read_epochs(partition).epoch_of(leo - 1), values[F_LOG_START])


def is_unknown(where: Position) -> bool:
    """Whether the log has records but no known epoch."""
    return where.last_epoch == UNDEFINED_EPOCH and where.offset > where.log_start
