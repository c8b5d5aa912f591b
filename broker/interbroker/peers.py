"""Connections from this broker's controller process to other brokers: ordered requests, fast detection of dead brokers.

A dead process closes its connections, and a host whose broker is dead refuses new ones, all in milliseconds, while a
ZooKeeper session lasts for seconds. So each peer reports its broker's reachability: REACHED, or REFUSED when no process
listens there. REFUSED is a suspicion, not knowledge: code that acts on it must be correct also when it is wrong
(broker.controller.elected.brokers). If a broker does not answer at all, only its session decides.

A peer sends requests one at a time, in order, and again after a lost connection, until it is closed: the receiver
handles duplicates without harm (Kafka's RequestSendThread). broker.interbroker.connection opens and closes connections.
"""

from __future__ import annotations

import logging
import math
import select
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol
from weakref import WeakSet

from odradek.broker.interbroker.connection import SMALL, Address, Link, LinkLimits
from odradek.broker.interbroker.link_security import LinkSecurity
from odradek.broker.interbroker.resolver import Resolver
from odradek.cluster.metadata.view import CONTROLLER
from odradek.protocol.wire import next_correlation

log = logging.getLogger(__name__)

REACHED, REFUSED = "reached", "refused"
CLIENT_ID = CONTROLLER
_LARGEST = 64 << 20  # bytes of an answer
# Apache's brokers register 0.2 s and more before they listen, and report no brokers at all to clients until the
# controller's first request: librdkafka may ask no other broker. This is the pause of Kafka's RequestSendThread.
_LONGEST_MS = 100

Encode = Callable[[int], bytes]  # correlation id → the whole frame
Answered = Callable[[bytes], None]  # the response frame without its length
Changed = Callable[[int, str], None]  # broker, REACHED | REFUSED


class _Request(NamedTuple):
    encode: Encode
    answered: Answered


class Poller(Protocol):
    """Watches a peer's descriptor: the controller's loop."""

    def watch(self, fd: int, events: int, ready: Callable[[int], None]) -> None:
        """Call `ready(events)` whenever one of `events` occurs; replaces an earlier call for `fd`."""

    def unwatch(self, fd: int) -> None:
        """Stop watching `fd`."""


class PeerPool:
    """Makes the connections of one process. `timeout_ms`: the response timeout, controller.socket.timeout.ms."""

    def __init__(self, poller: Poller, timeout_ms: int, security: LinkSecurity | None = None) -> None:
        self._poller, self._security = poller, security
        self._limits = LinkLimits(
            usual=SMALL, most=_LARGEST, timeout_ms=timeout_ms, receive_buffer=-1, longest_ms=_LONGEST_MS
        )
        self._resolver = Resolver()
        self._peers: WeakSet[Peer] = WeakSet()
        poller.watch(self._resolver.fileno(), select.EPOLLIN, lambda _: self._resolved())

    def connect(self, broker: int, address: Address, changed: Changed) -> Peer:
        """A connection to a broker; `changed` is called when its reachability changes."""
        peer = Peer(broker, address, self._poller, self._resolver, self._limits, changed, self._security)
        self._peers.add(peer)
        return peer

    def _resolved(self) -> None:
        self._resolver.drain()
        for peer in list(self._peers):
            peer.link.resolved()

    def close(self) -> None:
        """Stop looking names up; callers of `connect` close their peers."""
        self._poller.unwatch(self._resolver.fileno())
        self._resolver.close()


class Peer:
    """One broker and the requests to it (a ConnectionHandler). The first call of `tick` opens the connection."""

    def __init__(
        self, broker: int, address: Address, poller: Poller, resolver: Resolver, limits: LinkLimits, changed: Changed,
        security: LinkSecurity | None = None,
    ) -> None:  # fmt: skip
        self.broker = broker
        self.link = Link(f"broker {broker} at {address[0]}:{address[1]}", address, self, resolver, limits, security)
        self._poller = poller
        self._changed = changed
        self._reachability = ""
        self._queue: deque[_Request] = deque()
        self._under_way: _Request | None = None
        self._correlation = 0

    @property
    def idle(self) -> bool:
        """Whether everything sent is answered."""
        return not self._queue

    @property
    def due(self) -> float:
        """When `tick` has something to do (monotonic seconds)."""
        due_ms = self.link.due_ms
        return math.inf if due_ms is None else due_ms / 1000

    def tick(self, now: float) -> None:
        """Connect when it is due, time out late responses."""
        self.link.tick(int(now * 1000))

    def send(self, encode: Encode, answered: Answered) -> None:
        """Send a request after those sent before."""
        self._queue.append(_Request(encode, answered))
        self.link.send_next()

    def forget(self) -> None:
        """Drop unanswered requests: the broker counts as dead, and gets the full state if it is not."""
        self._queue.clear()

    def close(self) -> None:
        """Close the connection and drop unanswered requests."""
        self.forget()
        self.link.close()

    def _set_reachability(self, reachability: str) -> None:
        if reachability != self._reachability:
            self._reachability = reachability
            self._changed(self.broker, reachability)

    # -- the ConnectionHandler

    def watch(self, fd: int, events: int) -> None:
        """See ConnectionHandler."""
        if events:
            self._poller.watch(fd, events, self._ready)
        else:
            self._poller.unwatch(fd)

    def _ready(self, events: int) -> None:
        self.link.ready(events)
        if self.link.up:
            self._set_reachability(REACHED)

    def request(self, link: Link) -> bytes | None:
        """See ConnectionHandler. It stays in the queue until it is answered."""
        if not self._queue:
            return None
        self._under_way = self._queue[0]
        self._correlation = next_correlation(self._correlation)
        return self._under_way.encode(self._correlation)

    def answer(self, link: Link, frame: memoryview) -> None:
        """See ConnectionHandler. Ignores the response to a request that was dropped meanwhile."""
        if not self._queue or self._queue[0] is not self._under_way:
            return
        request = self._queue.popleft()
        try:
            request.answered(bytes(frame))
        except Exception:
            log.exception("unexpected error while handling a response of broker %d", self.broker)

    def lost(self, link: Link) -> None:
        """See ConnectionHandler."""
        if link.refused:
            self._set_reachability(REFUSED)
