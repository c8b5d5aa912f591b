"""Requests of this broker's coordinator to other brokers: items of one kind, over one connection to each broker.

A connection has one request in flight; items that accumulate meanwhile go into the next. The outcome of each item goes
to `kind.on_outcome`: NOT_LEADER_OR_FOLLOWER for all items of a lost connection, because they may concern another broker
by then. Each kind has its own connections, so that a slow response delays only requests of its kind.
"""

from __future__ import annotations

import itertools
import logging
import re
import select
import time
from collections.abc import Callable, Hashable, Iterable
from operator import attrgetter
from typing import Any, Generic, Protocol, TypeVar

from odradek.broker.interbroker.connection import Address, Link, LinkLimits
from odradek.broker.interbroker.link_security import LinkSecurity
from odradek.broker.interbroker.resolver import Resolver
from odradek.broker.listeners import between_brokers
from odradek.cluster.metadata.snapshot import Snapshot
from odradek.groups.offsets import TopicPartition
from odradek.protocol import interbroker
from odradek.protocol.errors import Error
from odradek.protocol.wire import WireError, next_correlation
from odradek.storage.dirs.boot_id import boot_id

log = logging.getLogger(__name__)

MOST = 2_000  # items in a request
ANSWER_BYTES = 1 << 20
TIMEOUT_MS = (
    10_000  # answers come after a second at most (broker.coordinator.txn_markers), unless the other broker hangs
)

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)
Watch = Callable[[int, int, Callable[[int], None]], None]  # fd, events (0: stop), callback for events that occur


class RequestType(Protocol[Item]):
    """A Kafka API, and how items become its requests."""

    title: str  # of a connection, in the log
    api: str
    version: int

    def fields(self, items: list[Item]) -> dict[str, Any]:
        """The request's fields."""

    def outcomes(self, items: list[Item], answer: Any) -> Iterable[tuple[Item, Error]]:
        """The outcome of each item."""

    def on_outcome(self, item: Item, error: Error) -> None:
        """Called with the outcome of each item."""


class BrokerChannels(Generic[Item]):
    """The connections to other brokers."""

    def __init__(
        self, config: Any, watch: Watch, kind: RequestType[Item], security: LinkSecurity | None = None
    ) -> None:
        """`security`: the process's, which keeps it up to date."""
        self.own: int = config["broker.id"]
        self.alone = not config.clustered
        self.kind = kind
        self._listener = between_brokers(config) if config.clustered else ""
        self._security = security
        self._watch = watch
        self._snapshot = Snapshot.empty()
        self._channels: dict[int, BrokerChannel[Item]] = {}
        self._resolver: Resolver | None = None

    def follow(self, snapshot: Snapshot) -> None:
        """Take over a new snapshot; close connections to brokers that have gone or have another address."""
        self._snapshot = snapshot
        for broker, channel in list(self._channels.items()):
            if self._address(broker) != channel.address:
                self._close(broker)

    def _address(self, broker: int) -> Address | None:
        found = self._snapshot.brokers.get(broker)
        return None if found is None else found.endpoints.get(self._listener)

    def send(self, broker: int, item: Item) -> bool:
        """Queue an item for the next request to a broker; False if its address is unknown."""
        channel = self._channels.get(broker)
        if channel is None:
            address = self._address(broker)
            if address is None:
                return False
            channel = self._channels[broker] = self._connect(broker, address)
        channel.queue[item] = None
        return True

    def _connect(self, broker: int, address: Address) -> BrokerChannel[Item]:
        if self._resolver is None:
            self._resolver = Resolver()
            self._watch(self._resolver.fileno(), select.EPOLLIN, lambda _: self._resolved())
        name = f"{self.kind.title} for broker {broker} at {address[0]}:{address[1]}"
        return BrokerChannel(name, self.own, address, self._resolver, self._watch, self.kind, self._security)

    def _resolved(self) -> None:
        assert self._resolver is not None
        self._resolver.drain()
        for channel in self._channels.values():
            channel.link.resolved()

    def take_queued(self) -> list[Item]:
        """Take back all items that are not in flight."""
        taken = [item for channel in self._channels.values() for item in channel.queue]
        for channel in self._channels.values():
            channel.queue.clear()
        return taken

    def forget(self, unwanted: Callable[[Item], bool]) -> None:
        """Drop these items from the queues; those in flight stay."""
        for channel in self._channels.values():
            for item in [item for item in channel.queue if unwanted(item)]:
                del channel.queue[item]

    @property
    def due_ms(self) -> int | None:
        """When `tick` is due (CLOCK_MONOTONIC), None for never."""
        return min((due for channel in self._channels.values() if (due := channel.due_ms) is not None), default=None)

    def tick(self, now_ms: int) -> None:
        """Send, connect, time out; drop a lost connection that is not needed now."""
        for broker, channel in list(self._channels.items()):
            try:
                if channel.is_needed:
                    channel.link.tick(now_ms)
                elif not channel.link.up:
                    self._close(broker)
            except Exception:
                log.exception("unexpected error while sending %s to broker %d", self.kind.title, broker)
                self._close(broker)

    def close(self) -> None:
        """Close all connections and the resolver."""
        for broker in list(self._channels):
            self._close(broker)
        if self._resolver is not None:
            self._resolver.close()

    def _close(self, broker: int) -> None:
        channel = self._channels.pop(broker)
        channel.link.close()
        channel.lost(channel.link)


class BrokerChannel(Generic[Item]):
    """The connection to one broker (connection.ConnectionHandler)."""

    def __init__(
        self, name: str, own: int, address: Address, resolver: Resolver, watch: Watch, kind: RequestType[Item],
        security: LinkSecurity | None = None,
    ) -> None:  # fmt: skip
        self.address = address
        self.queue: dict[Item, None] = {}
        limits = LinkLimits(ANSWER_BYTES, ANSWER_BYTES, TIMEOUT_MS, -1)
        self.link = Link(name, address, self, resolver, limits, security)
        self._own = own
        self._client_id = ""
        self._under_way: list[Item] = []
        self._watch, self._kind = watch, kind
        self._correlation = 0

    @property
    def is_needed(self) -> bool:
        """Whether there is something to send, or a response to come."""
        return bool(self.queue or self._under_way)

    @property
    def due_ms(self) -> int | None:
        """When `tick` is due."""
        if not self.is_needed:
            return None
        return 0 if self.link.up and not self._under_way else self.link.due_ms

    def watch(self, fd: int, events: int) -> None:
        """See connection.ConnectionHandler."""
        self._watch(fd, events, self.link.ready)

    def request(self, link: Link) -> bytes | None:
        """See connection.ConnectionHandler."""
        if not self.queue:
            return None
        self._under_way = list(itertools.islice(self.queue, MOST))
        for item in self._under_way:
            del self.queue[item]
        self._correlation = next_correlation(self._correlation)
        self._client_id = self._client_id or client_id(self._own)
        kind = self._kind
        fields = kind.fields(self._under_way)
        return interbroker.request(kind.api, kind.version, self._correlation, self._client_id, **fields)

    def answer(self, link: Link, frame: memoryview) -> None:
        """See connection.ConnectionHandler."""
        correlation, answer = interbroker.response(self._kind.api, self._kind.version, frame)
        if correlation != self._correlation:
            raise WireError(f"an answer to request {correlation} instead of {self._correlation}")
        items, self._under_way = self._under_way, []
        for item, error in self._kind.outcomes(items, answer):
            self._kind.on_outcome(item, error)

    def lost(self, link: Link) -> None:
        """See connection.ConnectionHandler."""
        items, self._under_way = [*self._under_way, *self.queue], []
        self.queue.clear()
        self._client_id = ""
        for item in items:
            self._kind.on_outcome(item, Error.NOT_LEADER_OR_FOLLOWER)


# -- the newest connection of each coordinator

_NAME = "odradek-coordinator"


def client_id(broker: int) -> str:
    """The client id of a new connection: a later one of the same broker has a higher time since its host's boot."""
    return f"{_NAME}/{broker}/{boot_id()}/{time.clock_gettime_ns(time.CLOCK_BOOTTIME)}"


class NewestConnections:
    """The newest connection of each broker's coordinator; requests from older ones are refused.

    A request may wait in the buffers of a connection, or of a stopped process, while its sender times out and asks
    again over a new connection. If carried out after that, its marker ends the producer's *next* transaction, which has
    the same producer epoch before KIP-890's version 2. Connections from another boot of the sender's host count as
    newer. Other clients, including Apache Kafka's brokers, are not compared. A restarted coordinator process knows no
    earlier connections: it accepts a marker that a stopped worker has held since.
    """

    def __init__(self) -> None:
        self._newest: dict[int, tuple[str, int]] = {}

    def admits(self, client: str | None) -> bool:
        """Whether no later connection of that coordinator has sent a request before."""
        found = _CLIENT.fullmatch(client or "")
        if found is None:
            return True
        broker, boot, since = int(found[1]), found[2], int(found[3])
        former = self._newest.get(broker)
        if former is not None and former[0] == boot and since < former[1]:
            return False
        self._newest[broker] = boot, since
        return True


_CLIENT = re.compile(_NAME + r"/(\d{1,10})/([0-9a-f-]{0,36})/(\d{1,19})", re.ASCII)


# -- common to all kinds: partitions of a transaction


def by_topic(items: Iterable[tuple[Key, TopicPartition]]) -> dict[Key, dict[str, list[int]]]:
    """For a request: the partitions of each key by topic, each once, in order of arrival."""
    found: dict[Key, dict[str, dict[int, None]]] = {}
    for key, (topic, index) in items:
        found.setdefault(key, {}).setdefault(topic, {})[index] = None
    return {key: {topic: list(rows) for topic, rows in topics.items()} for key, topics in found.items()}


def error_codes(
    results: Iterable[Any], key: str, topics: str, partitions: str, code: str
) -> dict[tuple[Any, TopicPartition], int]:
    """A response's error codes by key and partition; the fields of its rows have other names in each API."""
    get_key, get_topics, get_partitions, get_code = map(attrgetter, (key, topics, partitions, code))
    return {
        (get_key(result), (topic.name, part.partition_index)): get_code(part)
        for result in results
        for topic in get_topics(result)
        for part in get_partitions(topic)
    }


def to_error(code: int) -> Error:
    """The error of a code that another broker sent."""
    try:
        return Error(code)
    except ValueError:
        return Error.UNKNOWN_SERVER_ERROR
