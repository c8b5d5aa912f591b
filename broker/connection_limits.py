"""Connection limits: `max.connections`, `max.connections.per.ip` and its overrides, `max.connection.creation.rate`,
and the first and the last of them for single listeners. Pure: no sockets, no clock.

As in Kafka, a connection above the limit of its address is refused (accepted and closed at once). The other limits
make clients wait in the backlog: of that listener, or of all listeners but the inter-broker listener.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from odradek.cluster.configs.broker_configs import connection_overrides
from odradek.protocol.wire import INT32_MAX
from odradek.security.addresses import canonical

UNLIMITED = INT32_MAX
TOTAL, RATE = "max.connections", "max.connection.creation.rate"
NAMES = (TOTAL, "max.connections.per.ip", "max.connections.per.ip.overrides", RATE)


@dataclass(frozen=True)
class ListenerLimits:
    """The most connections at a time, and the most new ones a second."""

    total: int = UNLIMITED
    rate: int = UNLIMITED


@dataclass
class ConnectionLimits:
    """The limits in force. `spared`: the listener to which only its own limits apply."""

    total: int = UNLIMITED
    per_host: int = UNLIMITED
    overrides: Mapping[str, int] = field(default_factory=dict)
    rate: int = UNLIMITED
    listeners: Mapping[str, ListenerLimits] = field(default_factory=dict)
    spared: str | None = None

    @classmethod
    def of(
        cls, setting: Callable[[str], Any], listeners: Iterable[str] = (), spared: str | None = None
    ) -> ConnectionLimits:
        """The limits from `setting(name)`: the value in force, or None when there is none."""
        bounds = {name: _bound(setting, f"listener.name.{name.lower()}.") for name in listeners}
        total, per_host, overrides, rate = (setting(name) for name in NAMES)
        named = {canonical(host): number for host, number in connection_overrides(overrides or "").items()}
        return cls(total, per_host, named, rate, bounds, spared if len(bounds) > 1 else None)


def _bound(setting: Callable[[str], Any], prefix: str) -> ListenerLimits:
    total, rate = setting(prefix + TOTAL), setting(prefix + RATE)
    return ListenerLimits(UNLIMITED if total is None else total, UNLIMITED if rate is None else rate)


class _TokenBucket:
    """A token bucket that holds the connections of one second."""

    def __init__(self, rate: int, now: float) -> None:
        self._tokens = float(rate)
        self._filled = now

    def wait(self, rate: int, now: float) -> float:
        """Seconds until there is a token."""
        self._tokens = min(float(rate), self._tokens + (now - self._filled) * rate)
        self._filled = now
        return 0 if self._tokens >= 1 else (1 - self._tokens) / max(1, rate)

    def take(self) -> None:
        """Take a token for a new connection."""
        self._tokens -= 1


class ConnectionCounts:
    """Open connections by host and listener, and whether more may come now."""

    def __init__(self, limits: ConnectionLimits, now: float) -> None:
        self.limits = limits
        self.hosts: Counter[str] = Counter()
        self.listeners: Counter[str] = Counter()
        self.total = 0
        self._all = _TokenBucket(limits.rate, now)
        self._buckets = {name: _TokenBucket(bound.rate, now) for name, bound in limits.listeners.items()}

    def opened(self, host: str, listener: str = "") -> None:
        """Count a new connection."""
        self.hosts[host] += 1
        self.listeners[listener] += 1
        self.total += 1

    def closed(self, host: str, listener: str = "", count: int = 1) -> None:
        """Count closed connections; remove hosts without any, or the counter would keep every host ever seen."""
        self.total -= count
        self.listeners[listener] -= count
        self.hosts[host] -= count
        if self.hosts[host] <= 0:
            del self.hosts[host]

    def refuses(self, host: str) -> bool:
        """Whether one more connection of `host` exceeds its limit."""
        return self.hosts[host] >= self.limits.overrides.get(host, self.limits.per_host)

    def wait(self, now: float, listener: str = "") -> float:
        """Seconds until a connection may be accepted: 0 for now, -1 for not before another one closes."""
        limits, bound = self.limits, self.limits.listeners.get(listener, ListenerLimits())
        spared = listener == limits.spared
        if self.listeners[listener] >= bound.total or (self.total >= limits.total and not spared):
            return -1
        own = self._bucket(listener, now).wait(bound.rate, now) if listener in limits.listeners else 0
        return own if spared else max(own, self._all.wait(limits.rate, now))

    def _bucket(self, listener: str, now: float) -> _TokenBucket:
        """That of a listener, which may be a new one."""
        if listener not in self._buckets:
            self._buckets[listener] = _TokenBucket(self.limits.listeners[listener].rate, now)
        return self._buckets[listener]

    def accepted(self, listener: str = "") -> None:
        """Count an accepted connection, refused ones included, against the rate."""
        if listener != self.limits.spared:
            self._all.take()
        if listener in self._buckets:
            self._buckets[listener].take()
