"""Which connections may come: `max.connections`, `max.connections.per.ip` and its overrides,
`max.connection.creation.rate`. Pure: no sockets, no clock.

As in Kafka, an address above its number is refused (accepted and closed at once), while the other two make
everybody wait in the backlog.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

UNLIMITED = 0x7FFFFFFF


def parse_overrides(text: str) -> dict[str, int]:
    """`max.connections.per.ip.overrides`: `host:number,…`. Raises ValueError."""
    found: dict[str, int] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        host, colon, number = entry.rpartition(":")
        if not colon or not number.strip().isdecimal():
            raise ValueError(f"max.connections.per.ip.overrides: {entry!r} is not of the form host:number")
        found[host.strip().strip("[]")] = int(number)
    return found


@dataclass
class Limits:
    """The numbers in force."""

    total: int = UNLIMITED
    per_host: int = UNLIMITED
    overrides: Mapping[str, int] = field(default_factory=dict)
    rate: int = UNLIMITED  # new connections a second

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Limits:
        """From a broker's settings."""
        return cls(
            config["max.connections"],
            config["max.connections.per.ip"],
            parse_overrides(config["max.connections.per.ip.overrides"] or ""),
            config["max.connection.creation.rate"],
        )


class ConnectionCounts:
    """Connections there are, by host, and how many may come now."""

    def __init__(self, limits: Limits, now: float) -> None:
        self.limits = limits
        self.hosts: Counter[str] = Counter()
        self.total = 0
        self._tokens = float(min(limits.rate, UNLIMITED))
        self._filled = now

    def opened(self, host: str) -> None:
        """One more."""
        self.hosts[host] += 1
        self.total += 1

    def closed(self, host: str, count: int = 1) -> None:
        """Fewer; hosts without any are forgotten, or they would add up to all that ever came."""
        self.total -= count
        self.hosts[host] -= count
        if self.hosts[host] <= 0:
            del self.hosts[host]

    def refuses(self, host: str) -> bool:
        """Whether one more of `host` is above its number."""
        return self.hosts[host] >= self.limits.overrides.get(host, self.limits.per_host)

    def wait(self, now: float) -> float:
        """Seconds until one may be accepted: 0 now, -1 only when another has closed."""
        if self.total >= self.limits.total:
            return -1
        self._fill(now)
        return 0 if self._tokens >= 1 else (1 - self._tokens) / max(1, self.limits.rate)

    def accepted(self) -> None:
        """One was accepted, refused ones included: it takes its share of the rate."""
        self._tokens -= 1

    def _fill(self, now: float) -> None:
        """A bucket of one second's connections."""
        more = (now - self._filled) * self.limits.rate
        self._tokens = min(float(self.limits.rate), self._tokens + more)
        self._filled = now
