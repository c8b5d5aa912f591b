"""Inputs and outputs of the transaction state machines, besides the groups' `Answer` and `Append`."""

from __future__ import annotations

from typing import NamedTuple

from odradek.groups.transactions.transaction import NO_EPOCH, NO_ID, TopicPartition
from odradek.protocol.errors import Error


class TransactionConfig(NamedTuple):
    """The broker's settings for transactions, with Kafka's names and defaults, in ms."""

    max_timeout_ms: int = 900_000  # transaction.max.timeout.ms
    expiration_ms: int = 7 * 24 * 3600 * 1000  # transactional.id.expiration.ms
    abort_interval_ms: int = 10_000  # transaction.abort.timed.out.transaction.cleanup.interval.ms
    expiry_interval_ms: int = 3_600_000  # transaction.remove.expired.transaction.cleanup.interval.ms
    append_timeout_ms: int = 5_000
    retry_ms: int = 100


class Producer(NamedTuple):
    """A producer's identity in its request."""

    transactional_id: str
    id: int = NO_ID
    epoch: int = NO_EPOCH


class InitResult(NamedTuple):
    """The answer to InitProducerId."""

    error: Error
    producer_id: int = NO_ID
    epoch: int = NO_EPOCH


class Markers(NamedTuple):
    """Write all of these markers, however long it takes; then call `Transactions.markers_written` with this."""

    transactional_id: str
    producer_id: int
    epoch: int
    commit: bool
    partitions: frozenset[TopicPartition]

    @property
    def key(self) -> str:
        """The key to reload if this effect could not be carried out."""
        return self.transactional_id


class NeedIds(NamedTuple):
    """Get a block of producer ids and call `Transactions.take_ids`."""


class Summary(NamedTuple):
    """A transactional id for ListTransactions and DescribeTransactions."""

    transactional_id: str
    state: str
    producer_id: int = NO_ID
    epoch: int = NO_EPOCH
    timeout_ms: int = 0
    started_ms: int = -1
    partitions: frozenset[TopicPartition] = frozenset()
