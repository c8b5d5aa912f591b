"""The interface of the coordinator process for its handlers, and helpers that several of them share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from odradek.cluster.metadata.snapshot import Snapshot
from odradek.groups.events import Now
from odradek.groups.groups import Groups
from odradek.groups.offsets import TopicPartition
from odradek.groups.transactions.events import Producer
from odradek.groups.transactions.transactions import Transactions
from odradek.protocol.errors import Error
from odradek.workers.dispatch.authorization import Authorization
from odradek.workers.dispatch.context import Context

NO_ID = UUID(int=0)
UNKNOWN = Error.UNKNOWN_TOPIC_OR_PARTITION


class Coordinator(Protocol):
    """The coordinator process as its handlers see it."""

    authorization: Authorization
    groups: Groups
    transactions: Transactions

    @property
    def snapshot(self) -> Snapshot:
        """The cluster's metadata."""

    @property
    def now(self) -> Now:
        """The time of this round."""

    def begin(self, work: Iterator[None]) -> None:
        """Do the rest of a request in steps; small requests have their turn in between."""

    def when_offsets_topic(self, ready: Callable[[bool], None], groups: Iterable[str] = ()) -> None:
        """Call `ready` once `__consumer_offsets` exists, after creating it if needed; with False on a timeout.

        For a while, it also waits until those of `groups` that this broker coordinates are loaded.
        """

    def when_transactions_topic(self, ready: Callable[[bool], None], ids: Iterable[str] = ()) -> None:
        """The same for `__transaction_state` and transactional ids."""

    def admits_markers(self, client_id: str | None) -> bool:
        """Whether markers requested under this client id may be written: not if the connection has been replaced."""

    def verify(self, producer: Producer, partition: TopicPartition, done: Callable[[Error], None]) -> None:
        """Ask the transaction's coordinator, here or on another broker, whether the transaction has the partition."""

    def write_markers(self, entry: TxnMarkerEntry, done: Callable[[dict[TopicPartition, Error]], None]) -> None:
        """Write another coordinator's markers; `done` gets each partition's outcome."""

    def look_for_brokers(self) -> None:
        """Markers came from an address of no known broker: look up the brokers again, at most once a second."""

    def tree_commit(self, group: str, offsets: dict[TopicPartition, int], done: Callable[[bool], None]) -> None:
        """Write 0.8's offsets to `/consumers/<group>/offsets/<topic>/<partition>` in the metadata tree."""

    def tree_fetch(
        self, group: str, partitions: list[TopicPartition], done: Callable[[dict[TopicPartition, int] | None], None]
    ) -> None:
        """Read 0.8's offsets, without missing ones; None when the controller cannot be reached."""


class TxnMarkerEntry(NamedTuple):
    """Markers to write to these partitions. `only_open`: see storage.log.control_batch.write_marker."""

    producer_id: int
    epoch: int
    coordinator_epoch: int
    commit: bool
    partitions: frozenset[TopicPartition]
    only_open: bool = False


def for_old_producers(error: Error, version: int, first: int) -> Error:
    """The error for a fenced producer in versions before `first`: INVALID_PRODUCER_EPOCH."""
    return Error.INVALID_PRODUCER_EPOCH if error is Error.PRODUCER_FENCED and version < first else error


def client_host(context: Context) -> str:
    """The client's address as Java prints it, since tools and `__consumer_offsets` show this form."""
    return f"/{context.client_host}"


def topic_name(snapshot: Snapshot, topic: Any, by_id: bool) -> str | None:
    """The name of a request's topic, which newer versions give by id; None for an unknown id."""
    if not by_id:
        name: str = topic.name
        return name
    return None if topic.topic_id is None else snapshot.by_id(topic.topic_id.bytes)  # None: all zeros


def answered(snapshot: Snapshot, name: str | None, topic: Any) -> bool:
    """Whether Kafka's answer has this topic of a request: not if it exists and the request names no partition of it."""
    return bool(topic.partitions) or name not in snapshot.topics


def exists(snapshot: Snapshot, tp: TopicPartition) -> bool:
    """Whether the cluster has this partition."""
    return snapshot.partition(*tp) is not None
