"""Deadlines by key, without a clock.

Moving a deadline later, as each heartbeat does, is one dict write: the heap keeps the earlier entry and pushes the key
again when that entry expires. Moving it earlier pushes a second entry. Stale entries are removed at the top of the
heap; when they are most of the heap it is rebuilt, because members that join and leave at once would keep theirs in it
until their session timeouts.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

MOST_STALE = 1_000  # stale entries, in addition to one per deadline


class Deadlines(Generic[K]):
    """At most one deadline per key, in milliseconds of the caller's clock."""

    def __init__(self) -> None:
        self._due: dict[K, int] = {}
        self._queued: dict[K, int] = {}  # the earliest heap entry of each key
        self._heap: list[tuple[int, int, K]] = []
        self._count = 0  # breaks ties, so that keys need no order

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, key: K) -> bool:
        return key in self._due

    def at(self, key: K) -> int | None:
        """The deadline of `key`, or None."""
        return self._due.get(key)

    def set(self, key: K, at_ms: int) -> None:
        """Set the deadline of `key`; replaces an earlier one."""
        self._due[key] = at_ms
        queued = self._queued.get(key)
        if queued is None or at_ms < queued:
            self._push(key, at_ms)

    def cancel(self, key: K) -> None:
        """Remove the deadline of `key`, if it has one."""
        self._due.pop(key, None)

    def next_ms(self) -> int | None:
        """The earliest deadline, or None when there is none."""
        self._settle()
        return self._heap[0][0] if self._heap else None

    def expired(self, now_ms: int) -> list[K]:
        """Remove and return all keys with a deadline at or before `now_ms`, earliest first."""
        keys: list[K] = []
        while True:
            self._settle()
            if not self._heap or self._heap[0][0] > now_ms:
                return keys
            keys.append(self._pop())
            del self._due[keys[-1]]

    def _settle(self) -> None:
        """Remove stale entries from the top of the heap."""
        while self._heap:
            at_ms, _, key = self._heap[0]
            due = self._due.get(key)
            if due == at_ms:
                return
            self._pop()
            if due is not None and self._queued.get(key) is None:
                self._push(key, due)

    def _push(self, key: K, at_ms: int) -> None:
        self._count += 1
        self._queued[key] = at_ms
        heapq.heappush(self._heap, (at_ms, self._count, key))
        if len(self._heap) > 2 * len(self._due) + MOST_STALE:
            self._queued = dict(self._due)
            self._heap = [(due, number, key) for number, (key, due) in enumerate(self._due.items())]
            heapq.heapify(self._heap)

    def _pop(self) -> K:
        at_ms, _, key = heapq.heappop(self._heap)
        if self._queued.get(key) == at_ms:
            del self._queued[key]
        return key
