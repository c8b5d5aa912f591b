"""The controller's side of the partition table: allocates slots, marks them deleted, frees them.

Owner     : the controller. Lock: each change holds the slot's partition lock, which is only tried, never waited for.
Crash rule: the last published snapshot assigns slots to partitions; a respawned controller takes it from there. Before
            the first snapshot all slots are free, whatever a controller that died has done with them.
"""

from __future__ import annotations

import os
import time

from odradek.cluster.free_slots import FreeSlots, SlotsExhausted
from odradek.ipc import region, slots
from odradek.ipc.locks import PartitionLocks
from odradek.ipc.producers import ProducerTable
from odradek.ipc.region import RegionError
from odradek.ipc.shm import Shared
from odradek.ipc.slots import SlotState

_USED = (slots.RECOVERING, slots.LEADER, slots.FOLLOWER, slots.OFFLINE, slots.DELETING)


class SlotAllocator:
    """Slots of one broker's shared memory."""

    def __init__(self, shared: Shared, locks: PartitionLocks, start: int) -> None:
        """`start` is this controller's start number (see free_slots)."""
        self._table = shared.slots
        self._prefix = shared.prefix
        self._locks = locks
        if not shared.metadata.version:
            self._forget()
        self._free = FreeSlots(self._table.capacity, start, self._table.numbers(*_USED))

    def _forget(self) -> None:
        """Free all slots: no snapshot has any; a dead controller's would never be recovered."""
        for slot in self._table.numbers(*_USED):
            self._table[slot].update(state=slots.FREE)

    def open(self, first: SlotState) -> tuple[int, int]:
        """Publish a slot for a partition; returns (slot, incarnation), which `first` need not contain.

        Its state is RECOVERING, or a new log's initial state. SlotsExhausted when no slot is free and shared memory has
        no room for more.
        """
        busy = []
        slot = self._allocate()
        while not self._locks.try_lock(slot):  # a late process reads the former partition: leave it the slot
            busy.append(slot)
            slot = self._allocate()
        for other in busy:
            self._free.release(other)
        incarnation = self._free.incarnation()
        entry = self._table[slot]
        entry.record_holder(os.getpid())
        entry.dirty = 0
        entry.publish(first._replace(incarnation=incarnation, generation=1))
        self._locks.unlock(slot)
        return slot, incarnation

    def _allocate(self) -> int:
        """A free slot; enlarges the table when all are in use (other processes map the new part on first use)."""
        if not self._free.free:
            try:
                self._table.create(self._table.capacity + 1)
            except (RegionError, OSError) as error:
                raise SlotsExhausted(f"no memory for more partitions: {error}: enlarge /dev/shm") from error
            self._free.grow(self._table.capacity)
        return self._free.allocate()

    def matches(self, slot: int, incarnation: int) -> bool:
        """Whether a slot still has the incarnation named by a snapshot."""
        return self._table[slot].state().serves(incarnation)

    def try_lock(self, slot: int) -> bool:
        """Try the partition's lock; if it is taken, mark the slot as contended for the supervisor's sweep."""
        if self._locks.try_lock(slot):
            self._table[slot].record_holder(os.getpid())
            return True
        self._table[slot].mark_contended(time.monotonic_ns() // 1_000_000)
        return False

    def unlock(self, slot: int) -> set[int]:
        """Release the lock; returns the roles that wait for a change of this slot."""
        self._locks.unlock(slot)
        return set(self._table[slot].waiters())

    def mark_deleting(self, slot: int) -> None:
        """Refuse every operation on the slot's partition from now on. Caller holds the lock."""
        former = self._table[slot].state()
        self._table[slot].update(state=slots.DELETING, incarnation=self._free.incarnation())
        if former.pstate_gen:  # else deleted partitions' producers stay in /dev/shm until the broker stops
            region.unlink(ProducerTable.name(self._prefix, slot, former.incarnation, former.pstate_gen))

    def set_min_isr(self, slot: int, min_isr: int) -> None:
        """Publish a new min.insync.replicas. Caller holds the lock."""
        self._table[slot].update(min_isr=min_isr)

    def min_isr(self, slot: int) -> int:
        """The published min.insync.replicas."""
        return self._table[slot].state().min_isr

    def free(self, slot: int) -> bool:
        """Free a deleted partition's slot, once no live process refers to it; False: its lock is taken."""
        if not self._locks.try_lock(slot):
            return False
        self._table[slot].update(state=slots.FREE)
        self._locks.unlock(slot)
        self._free.release(slot)
        return True

    def leftovers(self, used: set[int]) -> list[int]:
        """Slots in use that no partition has: a former controller died between two steps."""
        return [slot for slot in self._table.numbers(*_USED) if slot not in used]
