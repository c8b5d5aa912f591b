"""One transactional id: what the log says of it, and the change that is on its way there.

`Metadata` never changes; a transition is another `Metadata` that takes its place once it is in the log. Until then
`pending` names the state it leads to, and whoever wants something else is told CONCURRENT_TRANSACTIONS.
Epochs go up to `LAST_EPOCH`; the one above is kept back so that there is always one left to fence with.
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
    """A transactional id's state as it is in the log; times are epoch ms, `started_ms` is -1 before the first."""

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

    `partition`: that of `__transaction_state`, by the hash of the id, which takes its time.
    """

    __slots__ = ("failed_fence", "id", "metadata", "partition", "pending")

    def __init__(self, transactional_id: str, partition: int, metadata: Metadata) -> None:
        self.id = transactional_id
        self.partition = partition
        self.metadata = metadata
        self.pending: State | None = None
        self.failed_fence = False  # the epoch was bumped to fence a producer and that did not reach the log

    def prepare(self, target: Metadata) -> Metadata:
        """Note that `target` is being appended; AssertionError where the tables do not lead to it."""
        assert self.pending is None, f"{self.id}: {target.state.name} while {self.pending!r} is pending"
        assert self.metadata.state in FROM[target.state], f"{self.id}: {self.metadata.state!r} → {target.state!r}"
        self.pending = target.state
        return target

    def settle(self, target: Metadata | None) -> None:
        """`target` is in the log; None: it did not get there and all is as before."""
        self.pending = None
        if target is not None:
            self.metadata = target


def new(producer_id: int, timeout_ms: int, now_ms: int) -> Metadata:
    """A transactional id that nobody has used; its first epoch comes with the first InitProducerId."""
    return Metadata(producer_id, NO_EPOCH, timeout_ms, State.EMPTY, frozenset(), -1, now_ms)


def may_init(m: Metadata, producer_id: int, epoch: int) -> bool:
    """Whether a producer that says who it was (KIP-360) may go on; others have been fenced.

    It may when nobody has an epoch yet, when it is the one we know (its epoch is looked at later), and when it is
    the one before with its epochs used up, whose answer may have been lost.
    """
    if producer_id == NO_ID or m.epoch == NO_EPOCH or producer_id == m.producer_id:
        return True
    return producer_id == m.previous_producer_id and epoch >= LAST_EPOCH


def bumped(m: Metadata, expected: int, timeout_ms: int, now_ms: int) -> Metadata | Error:
    """The next epoch for a producer that starts; `expected` is the epoch it says it had, -1 for none."""
    epoch, last = m.epoch + 1, NO_EPOCH
    if expected != NO_EPOCH:
        if m.epoch == NO_EPOCH or expected == m.epoch:
            last = m.epoch
        elif expected == m.last_epoch:
            epoch, last = m.epoch, m.last_epoch  # a retry: it gets the answer that was lost
        else:
            return Error.PRODUCER_FENCED
    return _started(m, m.producer_id, epoch, last, timeout_ms, now_ms)


def rotated(m: Metadata, producer_id: int, expected: int, timeout_ms: int, now_ms: int) -> Metadata:
    """Another producer id, because the epochs of the old one are used up."""
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
    """The running transaction under an epoch that its producer does not have.

    An epoch that a failed attempt took was never given to anyone, and is used again.
    """
    m = transaction.metadata
    return m if transaction.failed_fence else m._replace(epoch=m.epoch + 1, last_epoch=NO_EPOCH)


def ended(m: Metadata, state: State, now_ms: int) -> Metadata:
    """The transaction with its outcome decided, markers to be written."""
    return m._replace(state=state, updated_ms=now_ms, next_producer_id=NO_ID, client_version=0)


def completed(m: Metadata, now_ms: int) -> Metadata:
    """The transaction with all its markers written.

    `next_producer_id` is only there when a Kafka broker with transactions of version 2 prepared it (KIP-890).
    """
    done = m._replace(state=COMPLETED[m.state], partitions=frozenset(), updated_ms=now_ms)
    if m.next_producer_id == NO_ID:
        return done
    return done._replace(
        producer_id=m.next_producer_id, epoch=0, previous_producer_id=m.producer_id, next_producer_id=NO_ID
    )
