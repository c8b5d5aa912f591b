"""A follower's side of a fetch session (KIP-227): what its leader knows of what is wanted, and what it is to be told.

Pure. The leader keeps what it was asked for; the first request names everything, a later one what has changed since.
Facts are from Kafka's FetchSessionHandler and FetchMetadata.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.protocol import errors
from odradek.protocol.fetch import FetchPart
from odradek.protocol.wire import INT32_MAX

Key = tuple[bytes, int]  # topic id, partition

NO_SESSION, INITIAL, _LAST = 0, 0, INT32_MAX


class Session:
    """`id` and `epoch` of the next request; `told` is what the last one left the leader knowing."""

    def __init__(self) -> None:
        self.id = NO_SESSION
        self.epoch = INITIAL
        self.told: dict[Key, FetchPart] = {}
        self._changed: dict[Key, FetchPart | None] = {}

    def change(self, key: Key, part: FetchPart | None) -> None:
        """A partition is wanted like this from now on; None: not at all."""
        self._changed[key] = part

    def name(self, wanted: Iterable[tuple[Key, FetchPart]]) -> tuple[list[FetchPart], list[Key]]:
        """What the next request names and forgets, where all that is `wanted` is looked at only when it must be."""
        changed, self._changed = self._changed, {}
        if self.epoch == INITIAL:
            self.told = dict(wanted)
            return list(self.told.values()), []
        parts, forgotten = [], []
        for key, part in changed.items():
            if part is None:
                if self.told.pop(key, None) is not None:
                    forgotten.append(key)
            elif self.told.get(key) != part:
                self.told[key] = part
                parts.append(part)
        return parts, forgotten

    def answered(self, session_id: int) -> None:
        """The request was answered; with NO_SESSION the leader has forgotten all."""
        self.id = session_id
        if session_id == NO_SESSION:
            self.epoch = INITIAL
        else:
            self.epoch = self.epoch + 1 if self.epoch < _LAST else 1

    def refused(self, error: int) -> None:
        """The session was: go on with a full request. One of which the epoch is wrong is still there, to be closed."""
        self.id = self.id if error == errors.INVALID_FETCH_SESSION_EPOCH else NO_SESSION
        self.epoch = INITIAL
