"""Admits inter-broker requests to this broker: only from the addresses of registered brokers.

Addresses are resolved when the controller announces other brokers, and again when a request comes from an unknown
address: its sender may just have registered or moved. The request waits for the result: a wrongly refused one is lost,
since controllers do not resend answered requests. Waiting requests are limited, per address and in total.

Workers read the addresses from the metadata (cluster.configs.admitted). They refuse an unknown follower at once, which
then retries, and request another lookup (`refresh`). Names that failed to resolve are retried every few seconds, and
all names are refreshed now and then. A broker is dropped only when neither ZooKeeper, after a successful read, nor the
controller lists it; its address is replaced only by another.

A registered broker that reaches others by another listener than this one does (a cluster goes over to another) is
admitted there. Only the tree has its listener, so it is read again when the controller announces other endpoints.
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
from odradek.cluster.tree.znodes import BrokerNode

log = logging.getLogger(__name__)

_PAUSE_S = 1.0  # between reads of the tree, however many requests wait
_TIMEOUT_S = 10.0  # for names of registered brokers that currently fail to resolve
_STALE_S = 5.0  # after which names are resolved again when the controller announces brokers
_RETRY_S = 5.0  # after which failed names are resolved again
_REFRESH_S = 30.0  # after which everything is refreshed while there are other brokers
_MOST_WAITING = 1000  # waiting requests
_MOST_WAITING_BYTES = 64 << 20
_SHARE = 4  # one address gets at most this fraction of either

Then = Callable[[bool], None]


class _Waiting(NamedTuple):
    listener: str
    host: str
    size: int
    then: Then
    since: float  # monotonic seconds


class BrokerAddresses:
    """Keeps the addresses in `view.admitted`; `changed()` is called when they change."""

    def __init__(self, config: Any, view: View, tree: Tree, poller: Poller, changed: Callable[[], None]) -> None:
        self._listener = listeners.between_brokers(config)
        self._allowed = admitted.parse_allowed(config[ALLOWED])
        self._view = view
        self._tree = tree
        self._poller = poller
        self._changed = changed
        self._resolver = Resolver()
        self._addresses: dict[str, frozenset[str]] = {}  # by host
        self._known: set[str] = set()  # hosts of brokers that the tree or the controller lists
        self._others: dict[str, set[str]] = {}  # by listener: hosts of those that reach others by another one
        self._endpoints: list[Any] = []  # announced by the controller
        self._pending: set[str] = set()  # hosts being resolved
        self._failed: set[str] = set()  # hosts that failed to resolve
        self._waiting: list[_Waiting] = []
        self._refresh_requested = False  # a worker has refused a follower
        self._refreshing = False  # the tree was read, and its names are being resolved
        self._refreshed_at = -math.inf
        self._resolved_at = -math.inf
        self._retry_at = -math.inf
        poller.watch(self._resolver.fileno(), select.EPOLLIN, lambda _: self._resolved())
        self.brokers_changed()

    def admit(self, listener: str, host: str, size: int, then: Then) -> None:
        """Call `then` with whether a connection to `listener` from `host` is a broker's, now or when that is known.

        `size`: bytes of the waiting request. A request beyond the limits is refused.
        """
        if self._view.admitted.allows(listener, host):
            then(True)
        elif self._has_room(host, size):
            self._waiting.append(_Waiting(listener, host, size, then, time.monotonic()))
        else:
            then(False)

    def refresh(self) -> None:
        """A worker has refused a follower: check soon whether it is a broker."""
        self._refresh_requested = True

    def brokers_changed(self) -> None:
        """The controller may have announced other brokers."""
        endpoints = [broker["endpoints"] for broker in self._view.brokers.values()]
        if endpoints != self._endpoints:
            self._endpoints, self._refresh_requested = endpoints, True
        hosts = self._announced_hosts()
        self._known |= hosts
        stale = time.monotonic() >= self._resolved_at + _STALE_S
        self._resolve(self._known if stale else hosts - self._addresses.keys() - self._failed)

    def due(self) -> float:
        """When `tick` next has work (monotonic seconds)."""
        return min(self._refresh_due(), self._retry_at if self._failed else math.inf)

    def tick(self, now: float, connected: bool = True) -> None:
        """When due, read the registered brokers, if ZooKeeper is `connected`, and resolve their addresses.

        While ZooKeeper is unavailable, requests from unknown addresses wait, except from brokers with a new address.
        """
        if now >= self._refresh_due():
            self._refreshed_at, self._retry_at, self._refresh_requested = now, now + _RETRY_S, False
            self._refreshing |= connected and self._read()
            self._resolve(self._known)
        elif now >= self.due():
            self._retry_at = now + _RETRY_S
            self._resolve(self._failed)

    def close(self) -> None:
        """Stop resolving names."""
        self._poller.unwatch(self._resolver.fileno())
        self._resolver.close()

    def _has_room(self, host: str, size: int) -> bool:
        own = [one.size for one in self._waiting if one.host == host]
        everybodys = len(self._waiting) < _MOST_WAITING and self._bytes() + size <= _MOST_WAITING_BYTES
        return everybodys and len(own) < _MOST_WAITING // _SHARE and sum(own) + size <= _MOST_WAITING_BYTES // _SHARE

    def _bytes(self) -> int:
        return sum(one.size for one in self._waiting)

    def _refresh_due(self) -> float:
        if (self._waiting or self._refresh_requested) and not self._refreshing:
            return self._refreshed_at + _PAUSE_S
        others = len(self._known) > 1 or len(self._view.brokers) > 1
        return self._refreshed_at + _REFRESH_S if others else math.inf

    def _read(self) -> bool:
        """Read the registered brokers; whether the read succeeded."""
        try:
            registered = _registered(self._tree)
        except TreeUnavailable as error:
            log.warning("cannot read the registered brokers: %s", error)
            return False
        self._others = _by_listener(registered, self._listener)
        hosts = (_host(node.endpoints, self._listener) for node in registered)
        self._known = {host for host in hosts if host is not None} | self._announced_hosts()
        self._known |= {host for others in self._others.values() for host in others}
        self._failed &= self._known
        return True

    # -- addresses

    def _announced_hosts(self) -> set[str]:
        hosts = (_host(broker["endpoints"], self._listener) for broker in self._view.brokers.values())
        return {host for host in hosts if host is not None}

    def _resolve(self, hosts: Iterable[str]) -> None:
        self._pending.update(hosts)
        if self._pending:
            self._resolved_at = time.monotonic()
        self._take_resolved()

    def _resolved(self) -> None:
        self._resolver.drain()
        self._take_resolved()

    def _take_resolved(self) -> None:
        """Take over the names resolved so far; the resolver signals further results."""
        for host in list(self._pending):
            try:
                found = self._resolver.resolve(host, 0)
            except OSError as error:
                self._fail(host, error)
                continue
            if found is not None:
                self._addresses[host] = frozenset(entry[4][0].partition("%")[0] for entry in found)
                self._pending.discard(host)
                self._failed.discard(host)
        self._publish()
        looked, self._refreshing = self._refreshing and not self._pending, self._refreshing and bool(self._pending)
        self._answer(looked)

    def _fail(self, host: str, error: OSError) -> None:
        """Handle a name that failed to resolve: its former address stays."""
        if host not in self._failed:
            log.warning("cannot resolve the broker's host name %s: %s", host, error)
        self._pending.discard(host)
        self._failed |= {host} & self._known
        self._retry_at = time.monotonic() + _RETRY_S

    def _publish(self) -> None:
        self._addresses = {host: found for host, found in self._addresses.items() if host in self._known}
        others = {name: self._of(hosts) for name, hosts in self._others.items()}
        now = Admitted(self._listener, self._of(self._addresses), self._allowed, others)
        if now.raw != self._view.admitted.raw:
            self._view.admitted = now
            self._changed()

    def _of(self, hosts: Iterable[str]) -> frozenset[str]:
        return frozenset().union(*(self._addresses.get(host, ()) for host in hosts))

    def _answer(self, looked: bool) -> None:
        """Answer requests from known addresses; also the others if registrations were `looked` up since they came."""
        asking, self._waiting = self._waiting, []
        now = time.monotonic()
        for one in asking:
            takes = self._view.admitted.allows(one.listener, one.host)
            judged = looked and one.since <= self._refreshed_at and (not self._failed or now >= one.since + _TIMEOUT_S)
            if not takes and not judged:
                self._waiting.append(one)
                continue
            if not takes:
                self._log_rejected(one)
            one.then(takes)

    def _log_rejected(self, one: _Waiting) -> None:
        if one.listener == self._listener:
            log.warning("rejected %s: not the address of a registered broker (if it is one, set %s)", one.host, ALLOWED)
        else:
            log.debug("rejected %s: no broker's inter.broker.listener.name is %s", one.host, one.listener)


def _registered(tree: Tree) -> list[BrokerNode]:
    """All registered brokers. TreeUnavailable."""
    try:
        return [node for node, _ in read_registered(tree).values()]
    except NoNode:
        return []


def _by_listener(registered: Iterable[BrokerNode], own: str) -> dict[str, set[str]]:
    """By inter-broker listener, the hosts of brokers that have another than `own`."""
    found: dict[str, set[str]] = {}
    for node in registered:
        name = node.between_brokers
        host = _host(node.endpoints, name) if name is not None and name != own else None
        if name is not None and host is not None:
            found.setdefault(name, set()).add(host)
    return found


def _host(endpoints: Mapping[str, Any], listener: str) -> str | None:
    """The host where other brokers reach a broker: on the listener of that name, or its first."""
    end = endpoints.get(listener) or next(iter(endpoints.values()), None)
    return None if end is None else str(end[0])
