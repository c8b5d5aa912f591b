"""Replication throttles (KIP-73): the throttled replicas, and whether a broker exceeds its rate.

A broker has two throttles, one as leader and one as follower: topic configs name the replicas, a dynamic broker config
sets their total bytes per second. An in-sync replica is never throttled, but its bytes count. No clock: all times are
ms of CLOCK_MONOTONIC, which is the same in every process of the broker.

Facts are from Kafka's ReplicationQuotaManager and SimpleRate. Unlike in Kafka, samples are aligned to the clock, so
that the samples of several processes can be added.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, NamedTuple

from odradek.cluster.metadata.snapshot import Snapshot
from odradek.ipc import roles
from odradek.ipc.traffic import SAMPLES, Traffic
from odradek.protocol.wire import INT32_MAX, INT64_MAX

UNLIMITED = INT64_MAX  # bytes per second
PAUSE_MS = 100  # time until a throttled replica is checked again
ALL: range = range(INT32_MAX + 1)  # partitions


class ThrottleType(NamedTuple):
    """One of the two throttles: its configs, and the processes that move the bytes."""

    replicas: str
    rate: str
    roles: range


LEADER = ThrottleType(
    "leader.replication.throttled.replicas", "leader.replication.throttled.rate",
    range(roles.FIRST_WORKER, roles.ROLES),
)  # fmt: skip
FOLLOWER = ThrottleType(
    "follower.replication.throttled.replicas", "follower.replication.throttled.rate",
    range(roles.REPLICATOR, roles.REPLICATOR + 1),
)  # fmt: skip


class QuotaWindow(NamedTuple):
    """The time over which the rate is measured: the number of samples, with the current one, and their ms each."""

    samples: int
    width_ms: int


def window(config: Mapping[str, Any]) -> QuotaWindow:
    """The window of replication.quota.window.*; more samples than fit in memory become fewer and longer ones."""
    samples, seconds = config["replication.quota.window.num"], config["replication.quota.window.size.seconds"]
    count = min(samples, SAMPLES)
    return QuotaWindow(count, -(-samples * seconds * 1000 // count))


def partitions(text: str, broker: int) -> Container[int]:
    """The partitions whose replica on `broker` is listed in a topic's config; ignores malformed pairs."""
    if text.strip() == "*":
        return ALL
    pairs = (pair.strip().partition(":") for pair in text.split(","))
    return frozenset(int(index) for index, _, owner in pairs if index.isdecimal() and owner == str(broker))


class Throttle:
    """A broker's throttle of one type, in the process `own`. `replicas`: partitions by topic; `rate`: bytes/s."""

    def __init__(
        self,
        replicas: Mapping[str, Container[int]],
        rate: int,
        over: QuotaWindow,
        traffic: Traffic,
        of: range,
        own: int,
    ) -> None:
        self._replicas, self._rate, self._window = replicas, rate, over
        self._traffic, self._roles, self._own = traffic, of, own
        self._asked_ms = -1
        self._exceeded = False

    @property
    def topics(self) -> list[str]:
        """The topics that have throttled replicas."""
        return list(self._replicas)

    def covers(self, topic: str, index: int) -> bool:
        """Whether this broker's replica of a partition is throttled."""
        return index in self._replicas.get(topic, ())

    def count(self, size: int, now_ms: int) -> None:
        """Count `size` bytes of throttled replicas, within the rate or not."""
        self._traffic.add(self._own, now_ms // self._window.width_ms, size)
        self._asked_ms = -1

    def exceeded(self, now_ms: int) -> bool:
        """Whether the broker exceeds its rate; computed once per ms, because it is called for each partition."""
        if now_ms != self._asked_ms:
            self._asked_ms, self._exceeded = now_ms, self._moved(now_ms)
        return self._exceeded

    def _moved(self, now_ms: int) -> bool:
        """Whether the bytes of the window exceed the rate over the time since its first non-empty sample."""
        samples, width_ms = self._window
        last = now_ms // width_ms
        sizes = {number: self._traffic.total(self._roles, number) for number in range(last - samples + 1, last + 1)}
        first = min((number for number, size in sizes.items() if size), default=last)
        return sum(sizes.values()) * 1000 > self._rate * max(width_ms, now_ms - first * width_ms)


def in_force(
    kind: ThrottleType, snapshot: Snapshot, config: Mapping[str, Any], traffic: Traffic, own: int
) -> Throttle | None:
    """The throttle in metadata and configuration; None when no replica here is throttled or no rate is set."""
    broker = config["broker.id"]
    texts = snapshot.overrides(kind.replicas)
    replicas = {topic: found for topic, text in texts.items() if (found := partitions(text, broker))}
    rate = snapshot.broker_config(kind.rate, broker) if replicas else UNLIMITED
    return None if rate == UNLIMITED else Throttle(replicas, rate, window(config), traffic, kind.roles, own)
