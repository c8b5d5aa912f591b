"""Markers for partitions that other brokers lead: WriteTxnMarkers over one connection to each of them.

One request is under way on a connection; what has come together meanwhile goes into the next. What a request says of a
marker is told, and NOT_LEADER_OR_FOLLOWER of all that were under way on a connection that is lost: who wants them
looks for their leaders again.
"""

from __future__ import annotations

import itertools
import select
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from odradek.broker.joining import between_brokers
from odradek.broker.link import Address, Limits, Link
from odradek.broker.resolver import Resolver
from odradek.cluster.snapshot import Snapshot
from odradek.groups.errors import Error
from odradek.groups.offsets import TopicPartition
from odradek.protocol import interbroker
from odradek.protocol.wire import WireError

if TYPE_CHECKING:
    from odradek.broker.markers import Job

NAME, VERSION = "WriteTxnMarkers", 1
CLIENT_ID = "odradek-coordinator"
MOST = 2_000  # markers in a request
ANSWER_BYTES = 1 << 20
PATIENCE_MS = 10_000  # answers come after a second at most (broker.markers), unless the other broker hangs

Marker = tuple["Job", TopicPartition]
Told = Callable[["Job", TopicPartition, Error], None]
Watch = Callable[[int, int, Callable[[int], None]], None]  # fd, events (0: no more), what to call with those that came


class MarkerLinks:
    """The connections to other brokers. `told(job, partition, error)` hears what became of each marker."""

    def __init__(self, config: Any, watch: Watch) -> None:
        self.own: int = config["broker.id"]
        self.alone = not config.clustered
        self.told: Told = lambda job, tp, error: None
        self._listener = between_brokers(config) if config.clustered else ""
        self._watch = watch
        self._snapshot = Snapshot.empty()
        self._links: dict[int, MarkerLink] = {}
        self._resolver: Resolver | None = None

    def follow(self, snapshot: Snapshot) -> None:
        """Where brokers are by now; connections to those that are gone, or elsewhere, are closed."""
        self._snapshot = snapshot
        for broker, link in list(self._links.items()):
            if self._address(broker) != link.address:
                self._close(broker)

    def _address(self, broker: int) -> Address | None:
        found = self._snapshot.brokers.get(broker)
        return None if found is None else found.endpoints.get(self._listener)

    def send(self, broker: int, job: Job, tp: TopicPartition) -> bool:
        """Have a broker write a marker, with the next request to it; False if nobody knows where it is."""
        link = self._links.get(broker)
        if link is None:
            address = self._address(broker)
            if address is None:
                return False
            link = self._links[broker] = self._connect(broker, address)
        link.queue[job, tp] = None
        return True

    def _connect(self, broker: int, address: Address) -> MarkerLink:
        if self._resolver is None:
            self._resolver = Resolver()
            self._watch(self._resolver.fileno(), select.EPOLLIN, lambda _: self._resolved())
        name = f"markers for broker {broker} at {address[0]}:{address[1]}"
        return MarkerLink(name, address, self._resolver, self._watch, lambda job, tp, error: self.told(job, tp, error))

    def _resolved(self) -> None:
        assert self._resolver is not None
        self._resolver.drain()
        for link in self._links.values():
            link.link.resolved()

    def recall(self) -> list[Marker]:
        """Take back all that is not under way."""
        taken = [marker for link in self._links.values() for marker in link.queue]
        for link in self._links.values():
            link.queue.clear()
        return taken

    def forget(self, job: Job) -> None:
        """Nobody wants these any more; what is under way stays so."""
        for link in self._links.values():
            for marker in [marker for marker in link.queue if marker[0] is job]:
                del link.queue[marker]

    @property
    def due_ms(self) -> int | None:
        """When `tick` is due (CLOCK_MONOTONIC), None when it is not."""
        return min((due for link in self._links.values() if (due := link.due_ms) is not None), default=None)

    def tick(self, now_ms: int) -> None:
        """Send, connect, lose patience; let go of a connection that was lost and that nobody needs now."""
        for broker, link in list(self._links.items()):
            if link.is_needed:
                link.link.tick(now_ms)
            elif not link.link.up:
                self._close(broker)

    def close(self) -> None:
        """Let go of everything."""
        for broker in list(self._links):
            self._close(broker)
        if self._resolver is not None:
            self._resolver.close()

    def _close(self, broker: int) -> None:
        link = self._links.pop(broker)
        link.link.close()
        link.lost(link.link)


class MarkerLink:
    """The connection to one broker (link.Talk). `told` as MarkerLinks'."""

    def __init__(self, name: str, address: Address, resolver: Resolver, watch: Watch, told: Told) -> None:
        self.address = address
        self.queue: dict[Marker, None] = {}
        self.link = Link(name, address, self, resolver, Limits(ANSWER_BYTES, ANSWER_BYTES, PATIENCE_MS, -1))
        self._under_way: list[Marker] = []
        self._watch, self._told = watch, told
        self._correlation = 0

    @property
    def is_needed(self) -> bool:
        """Whether there is something to send, or an answer to come."""
        return bool(self.queue or self._under_way)

    @property
    def due_ms(self) -> int | None:
        """When `tick` is due."""
        if not self.is_needed:
            return None
        return 0 if self.link.up and not self._under_way else self.link.due_ms

    def watch(self, fd: int, events: int) -> None:
        """See link.Talk."""
        self._watch(fd, events, self.link.ready)

    def request(self, link: Link) -> bytes | None:
        """See link.Talk."""
        if not self.queue:
            return None
        self._under_way = list(itertools.islice(self.queue, MOST))
        for marker in self._under_way:
            del self.queue[marker]
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        return interbroker.request(NAME, VERSION, self._correlation, CLIENT_ID, markers=_rows(self._under_way))

    def answer(self, link: Link, frame: memoryview) -> None:
        """See link.Talk."""
        correlation, answer = interbroker.response(NAME, VERSION, frame)
        if correlation != self._correlation:
            raise WireError(f"an answer to request {correlation} instead of {self._correlation}")
        outcomes = _outcomes(answer)
        markers, self._under_way = self._under_way, []
        for job, tp in markers:
            self._told(job, tp, outcomes.get((job.wanted.producer_id, tp), Error.UNKNOWN_SERVER_ERROR))

    def lost(self, link: Link) -> None:
        """See link.Talk."""
        markers, self._under_way = [*self._under_way, *self.queue], []
        self.queue.clear()
        for job, tp in markers:
            self._told(job, tp, Error.NOT_LEADER_OR_FOLLOWER)


def _rows(markers: Iterable[Marker]) -> list[Any]:
    """The markers as the request has them: by transaction, by topic."""
    row = interbroker.message_class(NAME + "Request").WritableTxnMarker
    by_job: dict[Job, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for job, (topic, index) in markers:
        by_job[job][topic].append(index)
    return [
        row(
            producer_id=job.wanted.producer_id,
            producer_epoch=job.wanted.epoch,
            transaction_result=job.wanted.commit,
            topics=[row.WritableTxnMarkerTopic(name=name, partition_indexes=rows) for name, rows in topics.items()],
            coordinator_epoch=job.wanted.coordinator_epoch,
        )
        for job, topics in by_job.items()
    ]


def _outcomes(answer: Any) -> dict[tuple[int, TopicPartition], Error]:
    """By producer id and partition."""
    return {
        (marker.producer_id, (topic.name, part.partition_index)): _error(part.error_code)
        for marker in answer.markers
        for topic in marker.topics
        for part in topic.partitions
    }


def _error(code: int) -> Error:
    try:
        return Error(code)
    except ValueError:
        return Error.UNKNOWN_SERVER_ERROR
