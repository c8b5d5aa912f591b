"""Which places of the partition table are free, and which incarnations are still unused.

An incarnation is given once, ever: its upper half is the number of this controller's start (durable in the tree
before the first is given), its lower half counts within the start. So no two partitions that ever had the same slot
can be taken for each other, not even after the shared memory was made anew.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

_PER_START = 32  # bits


class SlotsExhausted(Exception):
    """No slot is free."""


class SlotAllocator:
    """Hands out the lowest free slot, each time with a new incarnation."""

    def __init__(self, capacity: int, start: int, used: Iterable[int] = ()) -> None:
        taken = set(used)
        self._free = [slot for slot in range(capacity) if slot not in taken]
        self._capacity = capacity
        self._next = start << _PER_START

    @property
    def free(self) -> int:
        """How many slots are free."""
        return len(self._free)

    def take(self) -> int:
        """A free slot; SlotsExhausted."""
        if not self._free:
            raise SlotsExhausted(f"all {self._capacity} partition slots are in use")
        return heapq.heappop(self._free)

    def grow(self, capacity: int) -> None:
        """The table has room for `capacity` slots now."""
        for slot in range(self._capacity, capacity):
            heapq.heappush(self._free, slot)
        self._capacity = capacity

    def incarnation(self) -> int:
        """A number never given before."""
        self._next += 1
        return self._next

    def give_back(self, slot: int) -> None:
        """Free a slot that no process refers to any more."""
        heapq.heappush(self._free, slot)
