"""Which of the partitions that one connection copies wait because this broker has copied too much (KIP-73).

As Kafka's ReplicaFetcherThread: those that are throttled and behind. Who keeps up is left alone, or it would fall out
of the ISR. Whether one is behind the leader's high watermark tells; before its first answer, whether it is in the ISR.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping

from odradek.cluster.replication.fetch_session import Key
from odradek.cluster.replication.throttles import Throttle

Throttled = tuple[Throttle, Mapping[Key, bool]]  # the throttled replicas of this broker: whether in the ISR


class ThrottledPartitions:
    """Those of `partitions` that are throttled. `former`: what was known before the metadata changed."""

    def __init__(self, throttled: Throttled, partitions: Container[Key], former: ThrottledPartitions | None) -> None:
        self._throttle, isr = throttled
        self._behind = {key: not in_sync for key, in_sync in isr.items() if key in partitions}
        for key, behind in {} if former is None else former._behind.items():
            if key in self._behind:
                self._behind[key] = self._behind[key] and behind

    def __contains__(self, key: Key) -> bool:
        return key in self._behind

    def copied(self, key: Key, size: int, behind: bool, now_ms: int) -> None:
        """So many bytes have come of a throttled partition, which is `behind` its leader's high watermark, or not."""
        self._throttle.count(size, now_ms)
        self._behind[key] = behind

    def now(self, now_ms: int) -> Collection[Key]:
        """Who has to wait."""
        if not self._throttle.exceeded(now_ms):
            return ()
        return [key for key, behind in self._behind.items() if behind]
