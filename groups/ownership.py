"""Which groups or transactional ids are served: those of the partitions that were read, less those that have a fault.

A fault is an exception where none belongs: what is known of that one key may be half changed, or differ from the log.
So it is forgotten (`_reset`), its clients are told COORDINATOR_LOAD_IN_PROGRESS, and after `RELOAD_PAUSE_MS` the log is
read for it (the effect `Reload`). Everything else goes on. A key that cannot be taken over from the log is answered
UNKNOWN_SERVER_ERROR until its partition is loaded the next time.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

from odradek.groups.events import Answer, Now, Reload
from odradek.groups.records import partition_for
from odradek.groups.timers import Deadlines
from odradek.protocol.errors import Error

log = logging.getLogger(__name__)

FAULT = Error.UNKNOWN_SERVER_ERROR
"""What the request that came upon a fault is told; it is not sent again, as those are that are told to wait."""

RELOAD_PAUSE_MS = 1_000
"""So that a fault that comes back with every request costs a reading of the log a second, not the process."""


class Ownership:
    """The partitions of the topic that holds the keys; `partitions` is their number, 0 while there is no topic."""

    def __init__(self, effects: list[Any]) -> None:
        self.partitions = 0
        self.faults = 0
        self.effects = effects
        self._loading: set[int] = set()
        self._loaded: set[int] = set()
        self._unreadable_partitions: set[int] = set()
        self._unreadable: set[str] = set()
        self._resetting: set[str] = set()
        self._reload_at: Deadlines[str] = Deadlines()

    def partition_of(self, key: str) -> int:
        """The partition that holds this key."""
        return partition_for(key, self.partitions)

    @property
    def is_loading(self) -> bool:
        """Whether partitions are being read; a key that is read again is missing in lists meanwhile."""
        return bool(self._loading)

    def _served(self, key: str) -> Error:
        """Why requests for this key cannot be served now; NONE when they can."""
        if not self.partitions:
            return Error.NOT_COORDINATOR
        partition = self.partition_of(key)
        if partition in self._unreadable_partitions:
            return Error.COORDINATOR_NOT_AVAILABLE
        if partition in self._loading or key in self._resetting:
            return Error.COORDINATOR_LOAD_IN_PROGRESS
        if partition not in self._loaded:
            return Error.NOT_COORDINATOR
        return Error.UNKNOWN_SERVER_ERROR if key in self._unreadable else Error.NONE

    # -- partitions

    def will_load(self, partition: int) -> None:
        """The partition is ours; until `loaded` its keys are answered COORDINATOR_LOAD_IN_PROGRESS."""
        self._loading.add(partition)
        self._unreadable_partitions.discard(partition)

    def unreadable(self, partition: int, keys: Collection[str] | None) -> None:
        """The log cannot be read for these keys, None: for all of the partition."""
        if keys is None:
            self.unload(partition)
            self._unreadable_partitions.add(partition)
        else:
            lost = self._awaited(keys)
            self._resetting -= lost
            self._unreadable |= lost

    def unload(self, partition: int) -> None:
        """The partition is not ours any more."""
        raise NotImplementedError

    def _awaited(self, keys: Collection[str]) -> set[str]:
        """Those of the keys that were read for being reset: one that was reset twice may have been read before."""
        return self._resetting.intersection(keys)

    def _was_loaded(self, partition: int, keys: Collection[str] | None) -> None:
        if keys is None:
            self._loading.discard(partition)
            self._loaded.add(partition)
        else:
            self._resetting.difference_update(keys)

    def _let_go(self, partition: int) -> None:
        for known in (self._loading, self._loaded, self._unreadable_partitions):
            known.discard(partition)
        for keys in (self._resetting, self._unreadable):
            keys.difference_update([key for key in keys if self.partition_of(key) == partition])

    # -- faults

    def _answer_fault(self, token: Any, result: Any, key: str, now: Now) -> None:
        """`_fault`, and the answer to the request that has it, before all others of this key are told to ask again."""
        self.effects.append(Answer(token, result))
        self._fault(key, now)

    def _fault(self, key: str, now: Now) -> None:
        """Called where an exception was caught: forget this key and have it read again."""
        log.exception("unexpected error for %.100r: reloading its state from the log", key)
        self.reset(key, now)

    def reset(self, key: str, now: Now) -> None:
        """What is known of this key may be wrong: read it from the log again."""
        self.faults += 1
        if not self._served(key) or key in self._resetting:  # in the second case its reading could not begin
            self._resetting.add(key)
            self._reload_at.set(key, now.steady_ms + RELOAD_PAUSE_MS)
        self._forget(key)

    def undone(self, effect: Any, now: Now) -> None:
        """An effect could not be carried out: what it was for is read from its log again."""
        key = getattr(effect, "key", None)
        if key is not None:
            self.reset(key, now)

    def _forget(self, key: str) -> None:
        """Drop what is known of this key, whatever state that is in."""
        raise NotImplementedError

    def _reload_due(self, now: Now) -> None:
        for key in self._reload_at.expired(now.steady_ms):
            if key in self._resetting:
                self.effects.append(Reload(key))

    def _unloadable(self, key: str) -> None:
        """Called where an exception was caught: what the log says of this key cannot be taken over."""
        self.faults += 1
        log.exception("cannot load %.100r from the log: its requests get UNKNOWN_SERVER_ERROR", key)
        self._unreadable.add(key)
        self._forget(key)
