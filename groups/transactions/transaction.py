"""One transactional id: its state in the log, and the pending transition.

`Metadata` is immutable; a transition is another `Metadata` that replaces it once it is in the log. Until then `pending`
is the target state, and other requests get CONCURRENT_TRANSACTIONS.
Epochs go up to `LAST_EPOCH`; the one above is reserved, so that one is always left for fencing.
"""

from __future__ import annotations

from typing import NamedTuple

from odradek.groups.transactions.states import COMPLETED, FROM, State
from odradek.protocol.errors import Error

TopicPartition = tuple[str, int]

NO_ID = -1
NO_EPOCH = -1
LAST_EPOCH = 0x7FFF - 1


class Metadata(NamedTuple):
    """A transactional id's state in the log; times are epoch ms, `started_ms` is -1 before the first transaction."""

    producer_id: int
    epoch: int
    timeout_ms: int
    state: State
    partitions: frozenset[TopicPartition]
    started_ms: int
    updated_ms: int
    previous_producer_id: int = NO_ID
    next_producer_id: int = NO_ID
    client_version: int = 0
    last_epoch: int = NO_EPOCH  # not in the log: the epoch before an InitProducerId that bumped its own (KIP-360)

    @property
    def is_exhausted(self) -> bool:
        """Whether the next producer needs another producer id."""
        return self.epoch >= LAST_EPOCH


class Transaction:
    """A transactional id with its pending transition.

    `partition`: the one in `__transaction_state`, by the hash of the id; stored because hashing is slow.
    """

    __slots__ = ("failed_fence", "id", "metadata", "partition", "pending")

    def __init__(self, transactional_id: str, partition: int, metadata: Metadata) -> None:
        self.id = transactional_id
        self.partition = partition
        self.metadata = metadata
        self.pending: State | None = None
        self.failed_fence = False  # the epoch was bumped to fence a producer, but the append failed

    def prepare(self, target: Metadata) -> Metadata:
        """Record that an append of `target` is under way; AssertionError for a transition not in the tables."""
        assert self.pending is None, f"{self.id}: {target.state.name} while {self.pending!r} is pending"
        assert self.metadata.state in FROM[target.state], f"{self.id}: {self.metadata.state!r} → {target.state!r}"
        self.pending = target.state
        return target

    def settle(self, target: Metadata | None) -> None:
        """End the pending transition: `target` is in the log, or (None) the append failed and nothing changes."""
        self.pending = None
        if target is not None:
            self.metadata = target


def new(producer_id: int, timeout_ms: int, now_ms: int) -> Metadata:
    """An unused transactional id; the first InitProducerId gives it its first epoch."""
    return Metadata(producer_id, NO_EPOCH, timeout_ms, State.EMPTY, frozenset(), -1, now_ms)


def may_init(m: Metadata, producer_id: int, epoch: int) -> bool:
    """Whether a producer that sends its former id and epoch (KIP-360) may continue; others are fenced.

    It may if there is no epoch yet, if it has the current producer id (its epoch is checked later), or if it has the
    previous producer id with exhausted epochs, because the answer with the new id may have been lost.
    """
    if producer_id == NO_ID or m.epoch == NO_EPOCH or producer_id == m.producer_id:
        return True
    return producer_id == m.previous_producer_id and epoch >= LAST_EPOCH


def bumped(m: Metadata, expected: int, timeout_ms: int, now_ms: int) -> Metadata | Error:
    """The next epoch for a producer that starts; `expected` is the former epoch that it sends, -1 for none."""
    epoch, last = m.epoch + 1, NO_EPOCH
    if expected != NO_EPOCH:
        if m.epoch == NO_EPOCH or expected == m.epoch:
            last = m.epoch
        elif expected == m.last_epoch:
            epoch, last = m.epoch, m.last_epoch  # a retry: repeat the lost answer
        else:
            return Error.PRODUCER_FENCED
    return _started(m, m.producer_id, epoch, last, timeout_ms, now_ms)


def rotated(m: Metadata, producer_id: int, expected: int, timeout_ms: int, now_ms: int) -> Metadata:
    """Another producer id, because the epochs of the old one are exhausted."""
    last = m.epoch if expected != NO_EPOCH else NO_EPOCH
    return _started(m, producer_id, 0, last, timeout_ms, now_ms)


def _started(m: Metadata, producer_id: int, epoch: int, last: int, timeout_ms: int, now_ms: int) -> Metadata:
    return Metadata(
        producer_id, epoch, timeout_ms, State.EMPTY, frozenset(), -1, now_ms,
        previous_producer_id=m.producer_id, last_epoch=last,
    )  # fmt: skip


def added(m: Metadata, partitions: frozenset[TopicPartition], now_ms: int) -> Metadata:
    """The transaction with more partitions; the first ones start it."""
    started = m.started_ms if m.state is State.ONGOING else now_ms
    return m._replace(
        state=State.ONGOING, partitions=m.partitions | partitions, started_ms=started, updated_ms=now_ms,
        next_producer_id=NO_ID, client_version=0,
    )  # fmt: skip


def fenced(transaction: Transaction) -> Metadata:
    """The ongoing transaction under an epoch that its producer does not have.

    Reuses the epoch of a failed attempt, because no producer ever got it.
    """
    m = transaction.metadata
    return m if transaction.failed_fence else m._replace(epoch=m.epoch + 1, last_epoch=NO_EPOCH)


def ended(m: Metadata, state: State, now_ms: int) -> Metadata:
    """The transaction with its outcome decided and its markers unwritten."""
    return m._replace(state=state, updated_ms=now_ms, next_producer_id=NO_ID, client_version=0)


def completed(m: Metadata, now_ms: int) -> Metadata:
    """The transaction with all its markers written.

    `next_producer_id` is only set when a Kafka broker with transaction version 2 prepared it (KIP-890).
    """
    done = m._replace(state=COMPLETED[m.state], partitions=frozenset(), updated_ms=now_ms)
    if m.next_producer_id == NO_ID:
        return done
    return done._replace(
        producer_id=m.next_producer_id, epoch=0, previous_producer_id=m.producer_id, next_producer_id=NO_ID
    )
