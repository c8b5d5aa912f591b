"""The token buckets of controller mutation quotas (KIP-599), in the one process that carries out mutations.

A broker's bucket is lost with this process, and full again in the next one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from odradek.cluster.metadata.snapshot import Snapshot
from odradek.security.quotas.keys import CONTROLLER_MUTATION_RATE
from odradek.security.quotas.mutations import STRICT_SINCE, MutationQuota
from odradek.security.quotas.rates import TokenBucket, Window
from odradek.security.quotas.resolution import ClientQuotas, Tags

_MOST_BUCKETS = 10_000  # client ids are the clients' choice


class MutationQuotas:
    """The buckets of clients with a quota."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._buckets: dict[Tags, TokenBucket] = {}
        self._paths: Mapping[str, Mapping[str, float]] = {}
        self._quotas: ClientQuotas | None = None

    def of(self, snapshot: Snapshot, api_key: int, version: int, user: str, client_id: str) -> MutationQuota:
        """The quota of one request, by the quotas of `snapshot`."""
        if snapshot.quota_paths != self._paths or self._quotas is None:
            self._paths = dict(snapshot.quota_paths)
            self._quotas = ClientQuotas(snapshot.quotas, CONTROLLER_MUTATION_RATE)
        strict = version >= STRICT_SINCE[api_key]
        return MutationQuota(self._bucket(self._quotas, user, client_id), _now_ms, strict=strict)

    def _bucket(self, quotas: ClientQuotas, user: str, client_id: str) -> TokenBucket | None:
        found = quotas.find(user, client_id)
        if found is None:
            return None
        if found.tags not in self._buckets:
            self._forget_full()
            self._buckets[found.tags] = TokenBucket(self._window, found.bound)
        bucket = self._buckets[found.tags]
        bucket.bound = found.bound
        return bucket

    def _forget_full(self) -> None:
        """A full bucket is as a new one."""
        if len(self._buckets) >= _MOST_BUCKETS:
            now_ms = _now_ms()
            self._buckets = {tags: bucket for tags, bucket in self._buckets.items() if not bucket.is_full(now_ms)}


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
