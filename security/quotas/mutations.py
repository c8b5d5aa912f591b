"""The controller mutation quota of one request (KIP-599): CreateTopics, CreatePartitions, DeleteTopics.

A token is a partition that is created or deleted. From the API version on that the client handles
THROTTLING_QUOTA_EXCEEDED (`STRICT_SINCE`), the quota is strict: while the bucket is overdrawn, no mutation is accepted.
For older versions it is permissive: all are accepted, and the client is throttled.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.security.quotas.rates import TokenBucket

STRICT_SINCE = {19: 6, 20: 5, 37: 3}
"""API key (CreateTopics, DeleteTopics, CreatePartitions) → the first version for which the quota is strict."""


class MutationQuota:
    """The quota of one request. Without a bucket, everything is accepted. `clock`: ms."""

    def __init__(self, bucket: TokenBucket | None, clock: Callable[[], int], *, strict: bool) -> None:
        self._bucket, self._clock, self._strict = bucket, clock, strict
        self._until_ms = 0

    def accept(self, partitions: int) -> bool:
        """Whether a mutation of so many partitions is accepted; if not, answer it with THROTTLING_QUOTA_EXCEEDED."""
        if self._bucket is None:
            return True
        now_ms = self._clock()
        refused = self._strict and self._bucket.tokens(now_ms) < 0
        if not refused:
            self._bucket.take(partitions, now_ms)
        if refused or not self._strict:
            self._until_ms = now_ms + self._bucket.throttle_ms(now_ms)
        return not refused

    def throttle_ms(self) -> int:
        """The throttle time of the response. It counts from the last mutation: the topics may have taken a while."""
        return max(0, self._until_ms - self._clock())
