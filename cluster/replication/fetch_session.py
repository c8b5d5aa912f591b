"""A follower's side of a fetch session (KIP-227): the partitions that its leader knows, and the changes to send.

Pure. The leader remembers the requested partitions; the first request names all of them, later requests name only
changes. Facts are from Kafka's FetchSessionHandler and FetchMetadata.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.protocol import errors
from odradek.protocol.fetch import FetchPartition
from odradek.protocol.wire import INT32_MAX

Key = tuple[bytes, int]  # topic id, partition

NO_SESSION, INITIAL, _LAST = 0, 0, INT32_MAX


class FetchSessionHandler:
    """`id` and `epoch` of the next request; `sent` is what the leader knows after the last request."""

    def __init__(self) -> None:
        self.id = NO_SESSION
        self.epoch = INITIAL
        self.sent: dict[Key, FetchPartition] = {}
        self._changed: dict[Key, FetchPartition | None] = {}

    def change(self, key: Key, part: FetchPartition | None) -> None:
        """Fetch a partition as in `part` from now on; None: no longer."""
        self._changed[key] = part

    def build(self, partitions: Iterable[tuple[Key, FetchPartition]]) -> tuple[list[FetchPartition], list[Key]]:
        """The partitions that the next request names and forgets; only a full request iterates over `partitions`."""
        changed, self._changed = self._changed, {}
        if self.epoch == INITIAL:
            self.sent = dict(partitions)
            return list(self.sent.values()), []
        parts, forgotten = [], []
        for key, part in changed.items():
            if part is None:
                if self.sent.pop(key, None) is not None:
                    forgotten.append(key)
            elif self.sent.get(key) != part:
                self.sent[key] = part
                parts.append(part)
        return parts, forgotten

    def answered(self, session_id: int) -> None:
        """Record a response; NO_SESSION means that the leader has dropped the session."""
        self.id = session_id
        if session_id == NO_SESSION:
            self.epoch = INITIAL
        else:
            self.epoch = self.epoch + 1 if self.epoch < _LAST else 1

    def refused(self, error: int) -> None:
        """Continue with a full request after a session error. After a wrong epoch it also closes the old session."""
        self.id = self.id if error == errors.INVALID_FETCH_SESSION_EPOCH else NO_SESSION
        self.epoch = INITIAL
