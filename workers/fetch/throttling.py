"""The throttle of what this broker leads, as a worker keeps to it when it serves followers
(cluster.replication.throttles).

As Kafka's ReplicaManager.shouldLeaderThrottle: a follower that is not in sync gets no records of throttled partitions
while the broker's workers have sent too many of them; all that followers get of them counts. Who is about to join the
ISR is let alone too, for the high watermark waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.cluster.replication import throttles
from odradek.ipc import replicas
from odradek.protocol import fetch

if TYPE_CHECKING:
    from odradek.cluster.metadata.snapshot import Mark
    from odradek.cluster.replication.throttles import Throttle
    from odradek.protocol.fetch import Payload
    from odradek.storage.log.partition import Partition
    from odradek.workers.worker import Worker


class Throttling:
    """A worker's throttle by the metadata in force; `get` is None where nothing is throttled."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._metadata: Mark | None = None
        self._throttle: Sending | None = None

    def get(self) -> Sending | None:
        """What to ask before records are sent."""
        worker = self._worker
        if self._metadata is not worker.snapshot.mark:
            self._metadata = worker.snapshot.mark
            found = throttles.in_force(
                throttles.LEADER, worker.snapshot, worker.config, worker.shared.traffic, worker.role
            )
            self._throttle = None if found is None else Sending(found)
        return self._throttle


class Sending:
    """A throttle that is in force."""

    def __init__(self, throttle: Throttle) -> None:
        self._throttle = throttle

    def holds_back(self, partition: Partition | None, broker: int) -> bool:
        """Whether the follower on `broker` gets nothing of a partition now."""
        return (
            partition is not None
            and self._throttle.covers(partition.topic, partition.index)
            and self._throttle.exceeded(_now_ms())
            and replicas.standing(partition.slot, broker) == replicas.OUT
        )

    def sent(self, partition: Partition | None, payloads: Sequence[Payload | bytes]) -> None:
        """A follower gets these records of a partition."""
        if partition is not None and self._throttle.covers(partition.topic, partition.index):
            self._throttle.count(fetch.size_of(payloads), _now_ms())


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
