"""Which groups or transactional ids are served: those of loaded partitions, except keys with a fault.

A fault is an unexpected exception: the state of that one key may be half changed, or differ from the log. So the state
is dropped (`reset`), the key's clients get COORDINATOR_LOAD_IN_PROGRESS, and after `RELOAD_PAUSE_MS` the key is loaded
from the log again (the effect `Reload`). Other keys are not affected. Requests for a key that cannot be loaded get
UNKNOWN_SERVER_ERROR until the next load of its partition.
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
"""The error for the request that caused a fault; clients do not retry it, unlike COORDINATOR_LOAD_IN_PROGRESS."""

RELOAD_PAUSE_MS = 1_000
"""Pause before a reload: a fault that recurs with every request costs one read of the log per second at most."""


class Ownership:
    """The partitions of the topic with the keys; `partitions` is their number, 0 while there is no topic."""

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
        """Whether partitions are loading. A key under reload does not count; it is missing in lists meanwhile."""
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
        """Take a partition; until `loaded`, requests for its keys get COORDINATOR_LOAD_IN_PROGRESS."""
        self._loading.add(partition)
        self._unreadable_partitions.discard(partition)

    def unreadable(self, partition: int, keys: Collection[str] | None) -> None:
        """Record that the log cannot be read for these keys, or (None) for the whole partition."""
        if keys is None:
            self.unload(partition)
            self._unreadable_partitions.add(partition)
        else:
            lost = self._awaited(keys)
            self._resetting -= lost
            self._unreadable |= lost

    def unload(self, partition: int) -> None:
        """Drop a partition that this broker no longer leads."""
        raise NotImplementedError

    def _awaited(self, keys: Collection[str]) -> set[str]:
        """The keys that still wait for a reload: a key that was reset twice may be loaded already."""
        return self._resetting.intersection(keys)

    def _mark_loaded(self, partition: int, keys: Collection[str] | None) -> None:
        if keys is None:
            self._loading.discard(partition)
            self._loaded.add(partition)
        else:
            self._resetting.difference_update(keys)

    def _drop(self, partition: int) -> None:
        for known in (self._loading, self._loaded, self._unreadable_partitions):
            known.discard(partition)
        for keys in (self._resetting, self._unreadable):
            keys.difference_update([key for key in keys if self.partition_of(key) == partition])

    # -- faults

    def _answer_fault(self, token: Any, result: Any, key: str, now: Now) -> None:
        """Answer the request that caused the fault, before `_fault` makes all other requests of the key retry."""
        self.effects.append(Answer(token, result))
        self._fault(key, now)

    def _fault(self, key: str, now: Now) -> None:
        """Drop and reload this key; called in an exception handler."""
        log.exception("unexpected error for %.100r: reloading its state from the log", key)
        self.reset(key, now)

    def reset(self, key: str, now: Now) -> None:
        """Drop a key whose state may be wrong and reload it from the log."""
        self.faults += 1
        if not self._served(key) or key in self._resetting:  # in the second case its reload could not start
            self._resetting.add(key)
            self._reload_at.set(key, now.steady_ms + RELOAD_PAUSE_MS)
        self._forget(key)

    def undone(self, effect: Any, now: Now) -> None:
        """Reload the key of an effect that could not be carried out."""
        key = getattr(effect, "key", None)
        if key is not None:
            self.reset(key, now)

    def _forget(self, key: str) -> None:
        """Drop the state of this key, even if it is inconsistent."""
        raise NotImplementedError

    def _reload_due(self, now: Now) -> None:
        for key in self._reload_at.expired(now.steady_ms):
            if key in self._resetting:
                self.effects.append(Reload(key))

    def _unloadable(self, key: str) -> None:
        """Mark a key whose log state cannot be loaded; called in an exception handler."""
        self.faults += 1
        log.exception("cannot load %.100r from the log: its requests get UNKNOWN_SERVER_ERROR", key)
        self._unreadable.add(key)
        self._forget(key)
