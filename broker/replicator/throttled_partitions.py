"""Which partitions of one connection must wait because this broker has exceeded its replication quota (KIP-73).

As in Kafka's ReplicaFetcherThread: those that are throttled and behind. A replica that keeps up is not delayed, or it
would fall out of the ISR. The leader's high watermark shows whether a replica is behind; before its first response, the
ISR does.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping

from odradek.cluster.replication.fetch_session import Key
from odradek.cluster.replication.throttles import Throttle

Throttled = tuple[Throttle, Mapping[Key, bool]]  # the throttled replicas of this broker: whether in the ISR


class ThrottledPartitions:
    """The throttled ones of `partitions`. `former`: the state before the metadata changed."""

    def __init__(self, throttled: Throttled, partitions: Container[Key], former: ThrottledPartitions | None) -> None:
        self._throttle, isr = throttled
        self._behind = {key: not in_sync for key, in_sync in isr.items() if key in partitions}
        for key, behind in {} if former is None else former._behind.items():
            if key in self._behind:
                self._behind[key] = self._behind[key] and behind

    def __contains__(self, key: Key) -> bool:
        return key in self._behind

    def copied(self, key: Key, size: int, behind: bool, now_ms: int) -> None:
        """Count bytes of a throttled partition; `behind`: whether it is behind its leader's high watermark."""
        self._throttle.count(size, now_ms)
        self._behind[key] = behind

    def paused(self, now_ms: int) -> Collection[Key]:
        """The partitions that must wait."""
        if not self._throttle.exceeded(now_ms):
            return ()
        return [key for key, behind in self._behind.items() if behind]
