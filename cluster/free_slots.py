"""The free slots of the partition table, and the next unused incarnation.

Each incarnation is given out only once, ever: its upper half is the number of this controller's start (durable in the
tree before the first one is given out), its lower half counts within that start. So two partitions that have the same
slot at different times cannot be confused, even after the shared memory was recreated.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

_PER_START = 32  # bits


class SlotsExhausted(Exception):
    """No slot is free."""


class FreeSlots:
    """Allocates the lowest free slot, and new incarnations."""

    def __init__(self, capacity: int, start: int, used: Iterable[int] = ()) -> None:
        taken = set(used)
        self._free = [slot for slot in range(capacity) if slot not in taken]
        self._capacity = capacity
        self._next = start << _PER_START

    @property
    def free(self) -> int:
        """The number of free slots."""
        return len(self._free)

    def allocate(self) -> int:
        """A free slot; SlotsExhausted."""
        if not self._free:
            raise SlotsExhausted(f"all {self._capacity} partition slots are in use")
        return heapq.heappop(self._free)

    def grow(self, capacity: int) -> None:
        """Extend the table to `capacity` slots."""
        for slot in range(self._capacity, capacity):
            heapq.heappush(self._free, slot)
        self._capacity = capacity

    def incarnation(self) -> int:
        """A number that was never given out before."""
        self._next += 1
        return self._next

    def release(self, slot: int) -> None:
        """Free a slot that no process refers to."""
        heapq.heappush(self._free, slot)
