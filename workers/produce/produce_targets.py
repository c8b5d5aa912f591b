"""Where records of Produce requests go: the decoded meaning of the bytes with which a client's requests begin.

All requests of a client begin with the same bytes (client id, acks, topic, partition). So the worker remembers these
prefixes decoded, and a request with the same target as the last one costs one comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from odradek.protocol import produce

if TYPE_CHECKING:
    from odradek.cluster.metadata.snapshot import SnapshotIdentity
    from odradek.storage.log.partition import Partition
    from odradek.workers.dispatch.authorization import Rights

_REMEMBERED = 16 << 20  # bytes of prefixes that a worker remembers; clients with the same client id share them
_TARGET = 400  # bytes remembered in addition to each prefix


class ProduceTarget:
    """The decoded meaning of a prefix: where records go and how to answer; valid for the metadata of `metadata`."""

    __slots__ = (
        "acks", "acks_all", "follower", "index", "metadata", "partition", "prefix", "reply", "size", "timeout_ms",
        "topic", "transactional_id", "version",
    )  # fmt: skip

    def __init__(
        self, partition: Partition | None, topic: bytes, index: int, acks: int, timeout_ms: int, version: int,
        transactional_id: bytes | None,
    ) -> None:  # fmt: skip
        self.partition: Any = partition  # None only for a part that is refused
        self.topic = topic
        self.index = index
        self.acks = acks
        self.acks_all = acks not in (0, 1)
        self.timeout_ms = timeout_ms  # how long to wait for followers
        self.version = version
        self.transactional_id = transactional_id
        self.prefix = b""
        self.size = 0
        self.follower: ProduceTarget | None = None  # the target that a client used after this one
        self.metadata: SnapshotIdentity | None = None
        # Encodes an answer without an error; not for acks=0, nor for parts of a larger request.
        self.reply: Callable[[Any], bytes] | None = None

    def remember(self, prefix: bytes, metadata: SnapshotIdentity) -> None:
        """Requests that begin with `prefix` have this target."""
        self.prefix, self.size, self.metadata = prefix, len(prefix), metadata
        self.reply = produce.single_reply(self.version, self.topic, self.index) if self.acks else None


class ProduceTargets:
    """The prefixes that a worker remembers until the metadata changes."""

    def __init__(self) -> None:
        self._metadata: SnapshotIdentity | None = None
        self._known: dict[tuple[Rights, int, bytes], ProduceTarget] = {}
        self._bytes = 0

    def get(self, rights: Rights, version: int, prefix: bytes, metadata: SnapshotIdentity) -> ProduceTarget | None:
        """The target of requests of `version` that begin with `prefix`, from clients with these rights."""
        return self._known.get((rights, version, prefix)) if metadata is self._metadata else None

    def keep(self, rights: Rights, target: ProduceTarget, metadata: SnapshotIdentity) -> None:
        """Remember `target`; the cache is cleared when it becomes too large, and when the metadata changes."""
        if metadata is not self._metadata or self._bytes > _REMEMBERED:
            self._metadata, self._bytes = metadata, 0
            self._known.clear()
        self._known[rights, target.version, target.prefix] = target
        self._bytes += target.size + _TARGET
