"""The controller's side of the partition table: giving slots out, marking them deleted, taking them back.

Owner     : the controller. Lock: each change is made with the slot's partition lock held, only ever tried.
Crash rule: which slots are whose is in the last published snapshot; a respawned controller takes it from there. Before
            the first one all slots are nobody's, whatever a controller that died has made of them.
"""

from __future__ import annotations

import os
import time

from odradek.cluster.slotalloc import SlotAllocator, SlotsExhausted
from odradek.ipc import region, slots
from odradek.ipc.locks import PartitionLocks
from odradek.ipc.producers import ProducerTable
from odradek.ipc.region import RegionError
from odradek.ipc.shm import Shared
from odradek.ipc.slots import SlotState

_USED = (slots.RECOVERING, slots.LEADER, slots.FOLLOWER, slots.OFFLINE, slots.DELETING)


class SlotBook:
    """Slots of one broker's shared memory."""

    def __init__(self, shared: Shared, locks: PartitionLocks, start: int) -> None:
        """`start` is this controller's number of start (see slotalloc)."""
        self._table = shared.slots
        self._prefix = shared.prefix
        self._locks = locks
        if not shared.metadata.version:
            self._forget()
        self._free = SlotAllocator(self._table.capacity, start, self._table.numbers(*_USED))

    def _forget(self) -> None:
        """No snapshot tells of any slot: who gave some out died before, and nobody would ever recover those."""
        for slot in self._table.numbers(*_USED):
            self._table[slot].update(state=slots.FREE)

    def open(self, first: SlotState) -> tuple[int, int]:
        """Publish a slot for a partition; (slot, incarnation), which `first` need not know.

        Its state is RECOVERING, or what a new log begins with. SlotsExhausted when no slot is free and shared memory
        has no room for more.
        """
        busy = []
        slot = self._take()
        while not self._locks.try_lock(slot):  # a straggler looks at the partition that was there: leave it that
            busy.append(slot)
            slot = self._take()
        for other in busy:
            self._free.give_back(other)
        incarnation = self._free.incarnation()
        entry = self._table[slot]
        entry.taken(os.getpid())
        entry.dirty = 0
        entry.publish(first._replace(incarnation=incarnation, generation=1))
        self._locks.unlock(slot)
        return slot, incarnation

    def _take(self) -> int:
        """A free slot, from a larger table when all are in use (others map what is new when they meet it)."""
        if not self._free.free:
            try:
                self._table.create(self._table.capacity + 1)
            except (RegionError, OSError) as error:
                raise SlotsExhausted(f"no memory for more partitions: {error}: enlarge /dev/shm") from error
            self._free.grow(self._table.capacity)
        return self._free.take()

    def matches(self, slot: int, incarnation: int) -> bool:
        """Whether a slot still is what a snapshot says of it."""
        return self._table[slot].state().serves(incarnation)

    def try_lock(self, slot: int) -> bool:
        """Take the partition's lock; while it is taken, say so to the supervisor's sweep."""
        if self._locks.try_lock(slot):
            self._table[slot].taken(os.getpid())
            return True
        self._table[slot].contended(time.monotonic_ns() // 1_000_000)
        return False

    def unlock(self, slot: int) -> set[int]:
        """Give the lock back; roles that waited for a change of this slot."""
        self._locks.unlock(slot)
        return set(self._table[slot].waiters())

    def mark_deleting(self, slot: int) -> None:
        """From now on every operation on the slot's partition is refused. Caller holds the lock."""
        former = self._table[slot].state()
        self._table[slot].update(state=slots.DELETING, incarnation=self._free.incarnation())
        if former.pstate_gen:  # or the producers of every deleted partition stay in /dev/shm until the broker stops
            region.unlink(ProducerTable.name(self._prefix, slot, former.incarnation, former.pstate_gen))

    def set_min_isr(self, slot: int, min_isr: int) -> None:
        """Publish a new min.insync.replicas. Caller holds the lock."""
        self._table[slot].update(min_isr=min_isr)

    def min_isr(self, slot: int) -> int:
        """The published min.insync.replicas."""
        return self._table[slot].state().min_isr

    def free(self, slot: int) -> bool:
        """Take a deleted partition's slot back, once no live process refers to it; False: its lock is taken."""
        if not self._locks.try_lock(slot):
            return False
        self._table[slot].update(state=slots.FREE)
        self._locks.unlock(slot)
        self._free.give_back(slot)
        return True

    def leftovers(self, used: set[int]) -> list[int]:
        """Slots that are not free though no partition has them: a former controller died between two steps."""
        return [slot for slot in self._table.numbers(*_USED) if slot not in used]
