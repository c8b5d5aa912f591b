"""The leader replication throttle, as a worker applies it when it serves followers (cluster.replication.throttles).

As Kafka's ReplicaManager.shouldLeaderThrottle: an out-of-sync follower gets no records of throttled partitions while
the broker's workers exceed the throttle's rate; all records of these partitions sent to followers count. A follower
that is about to join the ISR is exempt too, since the high watermark waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.cluster.replication import throttles
from odradek.ipc import replicas
from odradek.protocol import fetch

if TYPE_CHECKING:
    from odradek.cluster.metadata.snapshot import SnapshotIdentity
    from odradek.cluster.replication.throttles import Throttle
    from odradek.protocol.fetch import Payload
    from odradek.storage.log.partition import Partition
    from odradek.workers.dispatch.services import Services


class Throttling:
    """A worker's throttle by the metadata in force; `get` returns None where nothing is throttled."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._metadata: SnapshotIdentity | None = None
        self._throttle: LeaderThrottle | None = None

    def get(self) -> LeaderThrottle | None:
        """The throttle to check before records are sent."""
        services = self._services
        if self._metadata is not services.snapshot.identity:
            self._metadata = services.snapshot.identity
            found = throttles.in_force(
                throttles.LEADER, services.snapshot, services.config, services.shared.traffic, services.role
            )
            self._throttle = None if found is None else LeaderThrottle(found)
        return self._throttle


class LeaderThrottle:
    """A throttle that is in force."""

    def __init__(self, throttle: Throttle) -> None:
        self._throttle = throttle

    def throttles(self, partition: Partition | None, broker: int) -> bool:
        """Whether a partition's replica on `broker` gets no records now."""
        return (
            partition is not None
            and self._throttle.covers(partition.topic, partition.index)
            and self._throttle.exceeded(_now_ms())
            and replicas.isr_status(partition.slot, broker) == replicas.OUT
        )

    def sent(self, partition: Partition | None, payloads: Sequence[Payload | bytes]) -> None:
        """Count records of a partition that a follower gets."""
        if partition is not None and self._throttle.covers(partition.topic, partition.index):
            self._throttle.count(fetch.size_of(payloads), _now_ms())


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
