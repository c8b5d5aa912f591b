"""Who may send this broker what only brokers send each other: the addresses of those that are registered.

They are looked up when the controller tells of other brokers, and again when a request comes from an unknown address:
its sender may have registered, or moved, just now. Until that is known the request waits: one that is refused wrongly
is lost, since controllers do not send again what was answered. What waits is bounded, for each address and for all.

Workers find the addresses in the metadata (cluster.configs.admitted). They refuse a follower at once, and it comes
again; so they have it looked up again (`look`). Names that could not be looked up are asked for again every few
seconds, and all of them now and then. A broker is forgotten only when ZooKeeper was read and does not have it, and the
controller does not tell of it either; its address is forgotten only for another.
"""

from __future__ import annotations

import logging
import math
import select
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from odradek.broker import listeners
from odradek.broker.controller.elected.brokers import read_registered
from odradek.broker.interbroker.peers import Poller
from odradek.broker.interbroker.resolver import Resolver
from odradek.cluster.configs import admitted
from odradek.cluster.configs.admitted import ALLOWED, Admitted
from odradek.cluster.metadata.view import View
from odradek.cluster.tree.tree import NoNode, Tree, TreeUnavailable

log = logging.getLogger(__name__)

_PAUSE_S = 1.0  # between looks into the tree, however many ask
_PATIENCE_S = 10.0  # for names of registered brokers that cannot be looked up now
_STALE_S = 5.0  # after which names are looked up again when the controller tells of brokers
_RETRY_S = 5.0  # after which names are looked up again that could not be
_REFRESH_S = 30.0  # after which everything is looked up again while there are other brokers
_MOST_ASKING = 1000  # requests that wait
_MOST_ASKING_BYTES = 64 << 20
_SHARE = 4  # one address has no more than this part of either

Then = Callable[[bool], None]


class _Asking(NamedTuple):
    host: str
    size: int
    then: Then
    since: float  # monotonic seconds


class Admission:
    """The addresses, entered into `view.admitted`; `changed()` is called when they are others."""

    def __init__(self, config: Any, view: View, tree: Tree, sources: Poller, changed: Callable[[], None]) -> None:
        self._listener = listeners.between_brokers(config)
        self._allowed = admitted.parse_allowed(config[ALLOWED])
        self._view = view
        self._tree = tree
        self._sources = sources
        self._changed = changed
        self._resolver = Resolver()
        self._addresses: dict[str, frozenset[str]] = {}  # by host
        self._known: set[str] = set()  # hosts of brokers that the tree or the controller has told of
        self._pending: set[str] = set()  # hosts that are being looked up
        self._failed: set[str] = set()  # hosts that could not be
        self._asking: list[_Asking] = []
        self._wanted = False  # a worker has refused a follower
        self._looking = False  # the tree was read, and its names are being looked up
        self._looked_at = -math.inf
        self._resolved_at = -math.inf
        self._retry_at = -math.inf
        sources.watch(self._resolver.fileno(), select.EPOLLIN, lambda _: self._resolved())
        self.follow()

    def ask(self, listener: str, host: str, size: int, then: Then) -> None:
        """Call `then` with whether a connection to `listener` from `host` is a broker's, now or when that is known.

        `size`: bytes of the request that waits for it. One more than may wait is refused.
        """
        if listener != self._listener or self._view.admitted.takes(listener, host):
            then(listener == self._listener)
        elif self._has_room(host, size):
            self._asking.append(_Asking(host, size, then, time.monotonic()))
        else:
            then(False)

    def look(self) -> None:
        """A worker has refused a follower: look soon whether it is a broker."""
        self._wanted = True

    def follow(self) -> None:
        """The controller may have told of other brokers."""
        hosts = self._told()
        self._known |= hosts
        stale = time.monotonic() >= self._resolved_at + _STALE_S
        self._resolve(self._known if stale else hosts - self._addresses.keys() - self._failed)

    def due(self) -> float:
        """When `tick` has something to do (monotonic seconds)."""
        return min(self._look_due(), self._retry_at if self._failed else math.inf)

    def tick(self, now: float, connected: bool = True) -> None:
        """Look who is registered, if ZooKeeper is `connected`, and what addresses they have, if that is due.

        While ZooKeeper is away, requests from unknown addresses wait, but for brokers whose address is another now.
        """
        if now >= self._look_due():
            self._looked_at, self._wanted = now, False
            self._looking |= connected and self._read()
            self._resolve(self._known)
        elif now >= self.due():
            self._retry_at = now + _RETRY_S
            self._resolve(self._failed)

    def close(self) -> None:
        """Look no names up any more."""
        self._sources.unwatch(self._resolver.fileno())
        self._resolver.close()

    def _has_room(self, host: str, size: int) -> bool:
        own = [one.size for one in self._asking if one.host == host]
        everybodys = len(self._asking) < _MOST_ASKING and self._bytes() + size <= _MOST_ASKING_BYTES
        return everybodys and len(own) < _MOST_ASKING // _SHARE and sum(own) + size <= _MOST_ASKING_BYTES // _SHARE

    def _bytes(self) -> int:
        return sum(one.size for one in self._asking)

    def _look_due(self) -> float:
        if (self._asking or self._wanted) and not self._looking:
            return self._looked_at + _PAUSE_S
        others = len(self._known) > 1 or len(self._view.brokers) > 1
        return self._looked_at + _REFRESH_S if others else math.inf

    def _read(self) -> bool:
        """Who is registered, and who is no more; whether the tree says it."""
        try:
            registered = _registered(self._tree, self._listener)
        except TreeUnavailable as error:
            log.warning("cannot read the registered brokers: %s", error)
            return False
        self._known = registered | self._told()
        self._failed &= self._known
        return True

    # -- addresses

    def _told(self) -> set[str]:
        told = (_host(broker["endpoints"], self._listener) for broker in self._view.brokers.values())
        return {host for host in told if host is not None}

    def _resolve(self, hosts: Iterable[str]) -> None:
        self._pending.update(hosts)
        if self._pending:
            self._resolved_at = time.monotonic()
        self._go_on()

    def _resolved(self) -> None:
        self._resolver.drain()
        self._go_on()

    def _go_on(self) -> None:
        """Take over what is known by now; the resolver tells when there is more."""
        for host in list(self._pending):
            try:
                found = self._resolver.ask(host, 0)
            except OSError as error:
                self._fail(host, error)
                continue
            if found is not None:
                self._addresses[host] = frozenset(entry[4][0].partition("%")[0] for entry in found)
                self._pending.discard(host)
                self._failed.discard(host)
        self._enter()
        looked, self._looking = self._looking and not self._pending, self._looking and bool(self._pending)
        self._answer(looked)

    def _fail(self, host: str, error: OSError) -> None:
        """A former address stays."""
        if host not in self._failed:
            log.warning("cannot resolve the broker's host name %s: %s", host, error)
        self._pending.discard(host)
        self._failed |= {host} & self._known
        self._retry_at = time.monotonic() + _RETRY_S

    def _enter(self) -> None:
        self._addresses = {host: found for host, found in self._addresses.items() if host in self._known}
        now = Admitted(self._listener, frozenset().union(*self._addresses.values()), self._allowed)
        if now.raw != self._view.admitted.raw:
            self._view.admitted = now
            self._changed()

    def _answer(self, looked: bool) -> None:
        """Those whose address is known; the others too when who is registered was `looked` up since they ask."""
        asking, self._asking = self._asking, []
        now = time.monotonic()
        for one in asking:
            takes = self._view.admitted.takes(self._listener, one.host)
            judged = looked and one.since <= self._looked_at and (not self._failed or now >= one.since + _PATIENCE_S)
            if not takes and not judged:
                self._asking.append(one)
                continue
            if not takes:
                log.warning("refused: %s is no registered broker's address (if it is one: %s)", one.host, ALLOWED)
            one.then(takes)


def _registered(tree: Tree, listener: str) -> set[str]:
    """The hosts of all brokers that are registered. TreeUnavailable."""
    try:
        found = read_registered(tree)
    except NoNode:
        return set()
    hosts = (_host(node.endpoints, listener) for node, _ in found.values())
    return {host for host in hosts if host is not None}


def _host(endpoints: Mapping[str, Any], listener: str) -> str | None:
    """Where a broker is reached by others: on the listener of that name, or the first it has."""
    end = endpoints.get(listener) or next(iter(endpoints.values()), None)
    return None if end is None else str(end[0])
