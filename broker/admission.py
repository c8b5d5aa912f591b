"""Who may send this broker what only brokers send each other: the addresses of those that are registered.

They are looked up when the controller tells of other brokers, and again when a request comes from an unknown address:
its sender may have registered, or moved, just now. Until that is known the request waits: one that is refused wrongly
is lost, since controllers do not send again what was answered. Workers find the addresses in the metadata
(cluster.admitted).
"""

from __future__ import annotations

import logging
import math
import select
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from odradek.broker import joining
from odradek.broker.brokers import read_registered
from odradek.broker.peers import Sources
from odradek.broker.resolver import Resolver
from odradek.cluster import admitted
from odradek.cluster.admitted import ALLOWED, Admitted
from odradek.cluster.tree import NoNode, Tree, TreeUnavailable
from odradek.cluster.view import View

log = logging.getLogger(__name__)

_PAUSE_S = 1.0  # between looks into the tree, however many ask
_PATIENCE_S = 10.0  # for names of registered brokers that cannot be looked up now
_STALE_S = 5.0  # after which names are looked up again when the controller tells of brokers

Then = Callable[[bool], None]


class _Asking(NamedTuple):
    host: str
    then: Then
    until: float  # monotonic seconds: how long it waits while names cannot be looked up


class Admission:
    """The addresses, entered into `view.admitted`; `changed()` is called when they are others."""

    def __init__(self, config: Any, view: View, tree: Tree, sources: Sources, changed: Callable[[], None]) -> None:
        self._listener = joining.between_brokers(config)
        self._allowed = admitted.parse_allowed(config[ALLOWED])
        self._view = view
        self._tree = tree
        self._sources = sources
        self._changed = changed
        self._resolver = Resolver()
        self._addresses: dict[str, frozenset[str]] = {}  # by host
        self._unknown: set[str] = set()  # hosts that are being looked up
        self._registered: set[str] = set()  # hosts of brokers in the tree, told of by the controller or not
        self._asking: list[_Asking] = []
        self._looking = False  # the tree was read for them, and its names are being looked up
        self._failed = False  # a name could not be
        self._looked_at = -math.inf
        self._resolved_at = -math.inf
        sources.watch(self._resolver.fileno(), select.EPOLLIN, lambda _: self._resolved())
        self.follow()

    def ask(self, listener: str, host: str, then: Then) -> None:
        """Call `then` with whether a connection to `listener` from `host` is a broker's, now or when that is known."""
        if listener != self._listener or self._view.admitted.takes(listener, host):
            then(listener == self._listener)
        else:
            self._asking.append(_Asking(host, then, time.monotonic() + _PATIENCE_S))

    def follow(self) -> None:
        """The controller may have told of other brokers."""
        hosts = self._hosts()
        stale = time.monotonic() >= self._resolved_at + _STALE_S
        self._resolve(hosts if stale else hosts - self._addresses.keys())

    def due(self) -> float:
        """When `tick` has something to do (monotonic seconds)."""
        return self._looked_at + _PAUSE_S if self._asking and not self._looking else math.inf

    def tick(self, now: float) -> None:
        """Look who is registered, if somebody waits for that. While ZooKeeper is away they wait."""
        if now < self.due():
            return
        self._looked_at = now
        try:
            self._registered = _registered(self._tree, self._listener)
        except TreeUnavailable as error:
            log.warning("registered brokers are not known: %s", error)
            return
        self._looking, self._failed = True, False
        self._resolve(self._hosts())

    def close(self) -> None:
        """Look no names up any more."""
        self._sources.unwatch(self._resolver.fileno())
        self._resolver.close()

    # -- addresses

    def _hosts(self) -> set[str]:
        told = (_host(broker["endpoints"], self._listener) for broker in self._view.brokers.values())
        return {host for host in told if host is not None} | self._registered

    def _resolve(self, hosts: Iterable[str]) -> None:
        self._unknown.update(hosts)
        if self._unknown:
            self._resolved_at = time.monotonic()
        self._go_on()

    def _resolved(self) -> None:
        self._resolver.drain()
        self._go_on()

    def _go_on(self) -> None:
        """Take over what is known by now; the resolver tells when there is more."""
        for host in list(self._unknown):
            try:
                found = self._resolver.ask(host, 0)
            except OSError as error:
                log.warning("the address of the broker at %s cannot be looked up: %s", host, error)
                self._unknown.discard(host)  # a former address stays
                self._failed = True
                continue
            if found is not None:
                self._addresses[host] = frozenset(entry[4][0].partition("%")[0] for entry in found)
                self._unknown.discard(host)
        self._enter()
        if self._looking and not self._unknown:
            self._looking = False
            self._answer()

    def _enter(self) -> None:
        hosts = self._hosts()
        self._addresses = {host: found for host, found in self._addresses.items() if host in hosts}
        now = Admitted(self._listener, frozenset().union(*self._addresses.values()), self._allowed)
        if now.raw != self._view.admitted.raw:
            self._view.admitted = now
            self._changed()

    def _answer(self) -> None:
        asking, self._asking = self._asking, []
        now = time.monotonic()
        for one in asking:
            takes = self._view.admitted.takes(self._listener, one.host)
            if not takes and self._failed and now < one.until:
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
