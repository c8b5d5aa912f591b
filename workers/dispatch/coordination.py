"""What the handlers that run in the coordinator process may ask of it, and what several of them share."""

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
from odradek.workers.dispatch.context import Context

NO_ID = UUID(int=0)
UNKNOWN = Error.UNKNOWN_TOPIC_OR_PARTITION


class Coordinator(Protocol):
    """The coordinator process as its handlers see it."""

    groups: Groups
    transactions: Transactions

    @property
    def snapshot(self) -> Snapshot:
        """The cluster's metadata."""

    @property
    def now(self) -> Now:
        """The time of this round."""

    def begin(self, work: Iterator[None]) -> None:
        """Do the rest of a request in steps, between which small ones have their turn."""

    def when_offsets_topic(self, ready: Callable[[bool], None], groups: Iterable[str] = ()) -> None:
        """Call `ready` once `__consumer_offsets` is there, made if need be; False if that takes too long.

        It waits for those of `groups` that this broker coordinates to be loaded, too, for a while.
        """

    def when_transactions_topic(self, ready: Callable[[bool], None], ids: Iterable[str] = ()) -> None:
        """The same for `__transaction_state` and transactional ids."""

    def admits_markers(self, client_id: str | None) -> bool:
        """Whether markers that a client of this name asks for may be written: not of a connection given up since."""

    def verify(self, producer: Producer, partition: TopicPartition, done: Callable[[Error], None]) -> None:
        """Whether the producer's transaction has the partition, as its coordinator says, on whichever broker it is."""

    def write_markers(self, wanted: Wanted, done: Callable[[dict[TopicPartition, Error]], None]) -> None:
        """Write another coordinator's markers; `done` gets each partition's outcome."""

    def look_for_brokers(self) -> None:
        """An address that markers came from is no known broker's: have it looked up again, once a second at most."""

    def tree_commit(self, group: str, offsets: dict[TopicPartition, int], done: Callable[[bool], None]) -> None:
        """Write 0.8's offsets to `/consumers/<group>/offsets/<topic>/<partition>` in the metadata tree."""

    def tree_fetch(
        self, group: str, partitions: list[TopicPartition], done: Callable[[dict[TopicPartition, int] | None], None]
    ) -> None:
        """Read 0.8's offsets; those that are not there are left out; None when the controller cannot be asked."""


class Wanted(NamedTuple):
    """Markers that somebody wants in these partitions. `only_open`: see storage.log.transactions.write_marker."""

    producer_id: int
    epoch: int
    coordinator_epoch: int
    commit: bool
    partitions: frozenset[TopicPartition]
    only_open: bool = False


def for_old_producers(error: Error, version: int, first: int) -> Error:
    """Versions before `first` know a fenced producer only by its epoch."""
    return Error.INVALID_PRODUCER_EPOCH if error is Error.PRODUCER_FENCED and version < first else error


def client_host(context: Context) -> str:
    """The client's address as Java prints it, since that is what tools and `__consumer_offsets` show."""
    return f"/{context.client_host}"


def topic_name(snapshot: Snapshot, topic: Any, by_id: bool) -> str | None:
    """The name of a request's topic, which newer versions give by id; None for an id nobody has."""
    if not by_id:
        return topic.name
    return None if topic.topic_id is None else snapshot.by_id(topic.topic_id.bytes)  # None: all zeros


def answered(snapshot: Snapshot, name: str | None, topic: Any) -> bool:
    """Whether Kafka's answer has this topic of a request: not one that exists and of which no partition is named."""
    return bool(topic.partitions) or name not in snapshot.topics


def exists(snapshot: Snapshot, tp: TopicPartition) -> bool:
    """Whether the cluster has this partition."""
    return snapshot.partition(*tp) is not None
