"""The partition table: one slot of shared memory for each partition that this broker serves.

Layout    : regions `slots-<k>` of CHUNK slots, STRIDE words each:
              word 0 sequence   1 dirty   2 holder's pid   3 contended since (ms, CLOCK_MONOTONIC)
              word 4 base offset + 1 of a segment whose indexes a reader found damaged, 0 for none
              word 5 of a region's first slot: how many of its slots, from the first, have ever been used; 0: unknown,
              so all (made by an older version). Readers of columns read no further: a read would make the page
              words 8..17 waiter bytes, one for each role (ipc.roles): which changes wake it, NOTHING when it does not
              wait
              words 20..59 and 60..99 two copies of FIELDS; copy (sequence & 1) is the current one
              words 100..155 the leader's rows about its followers (ipc.replicas)
Owner     : the controller hands slots out and takes them back; it grows the table by whole regions.
Writers   : fields, dirty and holder: the process that holds the partition's byte in partition.lock. Waiter bytes: each
            role sets its own, appenders clear any. `contended`: a process that waits for the lock sets it at each try,
            unless it is set; the process that gets the lock clears it, and clears it again while it works
            (ipc.renewal).
            The damaged segment: any reader sets it, the janitor clears it.
            Slots used: a process that first uses a slot raises it. In effect this is the controller, before it
            publishes the slot, as others learn of a slot from it: the word is there before the slot's state is. After
            the way back to an older version its controller does not raise it, but uses the lowest free slot: a slot
            behind the mark that was ever published says that the mark is not to be trusted.
Lock      : partition.lock, byte = slot number (ipc.locks). Readers take none.
Crash rule: a writer fills the copy that is not current, then stores sequence + 1 as one aligned 8-byte store
            (why other processes see this order: ipc.memory_order). A death before that store changes nothing; a reader
            that sees the same sequence before and after its read has a whole copy. struct.pack_into zeroes before it
            writes, so writers never write the current copy in place, except single words that readers do not read
            (`set_unpublished`). `dirty` stays set when a writer dies: the next holder repairs.
Contention: a holder is stuck when two checks of the supervisor (broker.supervisor.stuck_lock_holders) find the lock
            held by the same pid, and the `contended` note the same and older than odradek.lock.stall.ms. This needs no
            lock: an event between a waiter's read of the word and its store, or between the sweep's reads, is harmless.
              The lock changes hands, or the waiter dies or gives up: the note outlives the wait. The next holder clears
              it; a holder that keeps the lock that long without a renewal is stuck whether a process waits or not.
              A renewal: the wait counts from just before it, and the next renewal comes in time or does not.
              Another waiter's store in about the same millisecond: either value is right.
              A holder has the lock but has not yet written its pid: the sweep reads the former holder's pid. The
              supervisor kills a process that is stopped there before the second check
              (broker.supervisor.stopped_processes).
              The note is cleared while a process waits: that process writes it again at its next try.
Slots are reused, incarnations never: a caller compares its incarnation with the slot's under the lock.
"""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from odradek.ipc import memory_order
from odradek.ipc.region import SHM, Region, RegionError
from odradek.ipc.roles import ROLES

CHUNK = 1024
STRIDE = 160
_WAITERS = 8
COPIES = (20, 60)
_KIND = "slots"

SEQUENCE, DIRTY, HOLDER, CONTENDED, DAMAGED, USED_ROWS = range(6)

FREE, RECOVERING, LEADER, FOLLOWER, OFFLINE, DELETING = range(6)


class SlotState(NamedTuple):
    """The state of a partition's log that all processes share. Offsets in records, sizes in bytes, times in ms.

    `active_*` describe the segment being written (`active_since`: its first timestamp, -1 while empty); `flushed`
    is the recovery point; `unstable` is the first offset of an open transaction or -1; `pstate_leo` is the offset up
    to which producer state has been applied; `latest_epoch` is the last leader epoch in the epoch checkpoint;
    `aborted` counts the aborted transactions in the `.txnindex` files. Replication: `isr_count` is the size of the ISR
    in the metadata (compared with min.insync.replicas); `hw_quorum` is the number of replicas, including the leader,
    that the high watermark waits for; it is larger while a replica is about to join. `epoch_start` is the log end at
    which this broker became leader, in the epoch `led_since` (-1 as a follower). `recovers_to` is the state of a
    RECOVERING partition after recovery, OFFLINE once recovery has found its log damaged; `used`: this run may have used
    its log, so a clean stop before this run does not vouch for it.
    """

    incarnation: int = 0
    generation: int = 0
    state: int = FREE
    leader_epoch: int = 0
    log_start: int = 0
    active_base: int = 0
    index_entries: int = 0
    flushed: int = 0
    latest_epoch: int = -1
    pstate_gen: int = 0
    # The fields that every append changes are contiguous: storage.log.append stores them with one slice.
    leo: int = 0
    hw: int = 0
    active_size: int = 0
    index_pending: int = 0
    max_timestamp: int = -1
    max_timestamp_offset: int = -1
    active_since: int = -1
    unflushed_since: int = 0
    pstate_leo: int = 0
    unstable: int = -1
    time_entries: int = 0
    time_last: int = -1
    min_isr: int = 1
    isr_count: int = 1
    log_dir: int = 0
    truncations: int = 0
    aborted: int = 0
    hw_quorum: int = 1
    epoch_start: int = 0
    led_since: int = 0
    recovers_to: int = LEADER
    used: int = 0

    def serves(self, incarnation: int) -> bool:
        """Whether the slot still belongs to that partition and the partition is not being deleted."""
        return self.incarnation == incarnation and self.state not in (FREE, DELETING)


FIELDS = SlotState._fields
(
    F_INCARNATION,
    F_GENERATION,
    F_STATE,
    F_LEADER_EPOCH,
    F_LOG_START,
    F_ACTIVE_BASE,
    F_INDEX_ENTRIES,
    F_FLUSHED,
    F_LATEST_EPOCH,
    F_PSTATE_GEN,
    F_LEO,
    F_HW,
    F_ACTIVE_SIZE,
    F_INDEX_PENDING,
    F_MAX_TIMESTAMP,
    F_MAX_TIMESTAMP_OFFSET,
    F_ACTIVE_SINCE,
    F_UNFLUSHED_SINCE,
    F_PSTATE_LEO,
    F_UNSTABLE,
    F_TIME_ENTRIES,
    F_TIME_LAST,
    F_MIN_ISR,
    F_ISR_COUNT,
    F_LOG_DIR,
    F_TRUNCATIONS,
    F_ABORTED,
    F_HW_QUORUM,
    F_EPOCH_START,
    F_LED_SINCE,
    F_RECOVERS_TO,
    F_USED,
) = range(len(FIELDS))
HOT = slice(0, F_PSTATE_LEO + 1)  # the fields that an append reads
CHANGED = slice(F_LEO, F_PSTATE_LEO + 1)  # the fields that a plain append changes


def last_stable(values: Sequence[int]) -> int:
    """The last stable offset: the transactions of all records below it are complete, or their records are deleted.

    It is never below the log start: retention and DeleteRecords can pass open transactions (Kafka's
    UnifiedLog.maybeIncrementFirstUnstableOffset), and a consumer that starts below it would get OFFSET_OUT_OF_RANGE.
    """
    hw, unstable = values[F_HW], values[F_UNSTABLE]
    return hw if unstable < 0 else max(values[F_LOG_START], min(hw, unstable))


# A lock holder's own copy of the fields, in the order of FIELDS, to change and publish.
Fields: TypeAlias = "array[int]"

_COPY_STRUCT = struct.Struct(f"={len(FIELDS)}q")
NOTHING, ANYTHING, GROWTH = range(3)  # changes that wake a role: none, all, or all but those of the high watermark
NOBODY = bytes(ROLES)


class Slot:
    """One partition's slot in this process's mapping."""

    __slots__ = ("_copies", "at", "map", "number", "row_at", "words")

    def __init__(self, number: int, region: Region) -> None:
        self.number = number
        self.at = number % CHUNK * STRIDE
        self.words = region.words
        self.map = region.map  # a slice of the map costs a third of a memoryview slice; thousands of slots keep one
        first = region.at + self.at * 8
        self._copies = tuple(slice(first + copy * 8, first + (copy + len(FIELDS)) * 8) for copy in COPIES)
        self.row_at = slice(first + _WAITERS * 8, first + _WAITERS * 8 + ROLES)

    def read(self) -> tuple[int, ...]:
        """A consistent snapshot of the fields, in the order of FIELDS."""
        words, at = self.words, self.at
        while True:
            sequence = words[at]
            values = _COPY_STRUCT.unpack(self.map[self._copies[sequence & 1]])
            if words[at] == sequence:
                return values

    def record_holder(self, pid: int) -> Fields:
        """`fields` for the lock's new holder; records its pid for the supervisor's sweep."""
        words, at = self.words, self.at
        words[at + HOLDER] = pid
        if words[at + CONTENDED]:
            words[at + CONTENDED] = 0
        return array("q", self.map[self._copies[words[at] & 1]])

    def fields(self) -> Fields:
        """A copy of the fields to change and publish. Caller holds the partition lock."""
        return array("q", self.map[self._copies[self.words[self.at] & 1]])

    def state(self) -> SlotState:
        """`read` with names, for paths where a microsecond does not matter."""
        return SlotState._make(self.read())

    def publish(self, values: Sequence[int]) -> None:
        """Make `values` (in the order of FIELDS) the current fields. Caller holds the partition lock."""
        if type(values) is not array:
            values = array("q", values)
        words, at = self.words, self.at
        sequence = words[at] + 1
        self.map[self._copies[sequence & 1]] = values  # 0.1 µs; packing takes 0.8
        words[at] = sequence

    def set_unpublished(self, field: int, value: int) -> None:
        """Change one field that only lock holders read: it need not be consistent with the others for readers."""
        self.words[self.at + COPIES[self.words[self.at] & 1] + field] = value

    def update(self, **changes: int) -> None:
        """Publish the current fields with `changes`. Caller holds the partition lock."""
        self.publish(self.state()._replace(**changes))

    @property
    def sequence(self) -> int:
        """Grows with every publish."""
        return self.words[self.at]

    @property
    def dirty(self) -> int:
        """Nonzero: a holder of the lock has not finished; the value names what it was doing."""
        return self.words[self.at + DIRTY]

    @dirty.setter
    def dirty(self, what: int) -> None:
        self.words[self.at + DIRTY] = what

    @property
    def damaged(self) -> int:
        """Base offset of a segment whose indexes a reader has found damaged, -1 for none. Holds one at a time."""
        return self.words[self.at + DAMAGED] - 1

    @damaged.setter
    def damaged(self, base: int) -> None:
        self.words[self.at + DAMAGED] = base + 1

    def mark_contended(self, now_ms: int) -> None:
        """Note that a process has waited for the lock since `now_ms`, unless a note is there already."""
        words, at = self.words, self.at
        if not words[at + CONTENDED]:
            words[at + CONTENDED] = now_ms

    def renew(self) -> None:
        """Record that the lock's holder makes progress: the stall time of its waiters restarts."""
        words, at = self.words, self.at
        if words[at + CONTENDED]:
            words[at + CONTENDED] = 0

    def wait(self, role: int, what: int = ANYTHING) -> bool:
        """Request a ring of `role`'s bell at the next change of that kind; False when that was requested already.

        If True: fence, then check again before sleeping.
        """
        at = self.row_at.start + role
        if NOTHING < self.map[at] <= what:
            return False
        self.map[at] = what
        return True

    def waiters(self, what: int = GROWTH) -> list[int]:
        """Roles that requested a ring for a change of that kind; clears their requests. GROWTH includes all roles.

        Call after the publish and after releasing the lock.
        """
        at, waiters, roles = self.row_at.start, self.map[self.row_at], []
        for kind in range(ANYTHING, what + 1):
            role = waiters.find(kind)
            while role >= 0:
                self.map[at + role] = NOTHING
                roles.append(role)
                role = waiters.find(kind, role + 1)
        return roles


class FencedSlot(Slot):
    """A slot on a machine that may reorder stores (ipc.memory_order): barriers keep the order that others see."""

    __slots__ = ()

    def publish(self, values: Sequence[int]) -> None:
        """See `Slot.publish`."""
        if type(values) is not array:
            values = array("q", values)
        words, at = self.words, self.at
        sequence = words[at] + 1
        self.map[self._copies[sequence & 1]] = values
        memory_order.barrier()  # the copy before the sequence that makes it current
        words[at] = sequence
        memory_order.barrier()  # the sequence before the next copy, and before reading the waiters

    @property
    def dirty(self) -> int:
        """See `Slot.dirty`."""
        return self.words[self.at + DIRTY]

    @dirty.setter
    def dirty(self, what: int) -> None:
        self.words[self.at + DIRTY] = what
        memory_order.barrier()  # before files are replaced: readers that find new files check `dirty`


class SlotTable:
    """All slots; maps regions on first use."""

    def __init__(self, prefix: str, incarnation: int) -> None:
        self._prefix = prefix
        self._incarnation = incarnation
        self._regions: list[Region] = []
        self._slots: dict[int, Slot] = {}

    def _name(self, chunk: int) -> str:
        return f"{self._prefix}slots-{chunk}"

    def create(self, slots: int) -> None:
        """Make room for at least `slots` slots. The supervisor calls it at start, the controller to grow."""
        while len(self._regions) * CHUNK < slots:
            name = self._name(len(self._regions))
            self._regions.append(Region.create(name, CHUNK * STRIDE * 8, _KIND, self._incarnation))
            self._regions[-1].words[USED_ROWS] = 1

    def attach(self) -> None:
        """Map every region that exists; a region that the controller is still creating is mapped on first use."""
        while os.path.exists(SHM + self._name(len(self._regions))):
            try:
                self._regions.append(Region.attach(self._name(len(self._regions)), _KIND))
            except RegionError:
                if not self._regions:
                    raise
                return

    @property
    def capacity(self) -> int:
        """How many slots are mapped here."""
        return len(self._regions) * CHUNK

    def __getitem__(self, number: int) -> Slot:
        slot = self._slots.get(number)
        if slot is None:
            if number >= self.capacity:
                self.attach()
            kind = Slot if memory_order.TSO else FencedSlot
            slot = self._slots[number] = kind(number, self._regions[number // CHUNK])
            if 0 < slot.words[USED_ROWS] <= number % CHUNK:
                slot.words[USED_ROWS] = number % CHUNK + 1
        return slot

    def words(self, chunk: int) -> memoryview:
        """All words of a region, for readers of whole regions (broker.exporter.partition_fields)."""
        return self._regions[chunk].words

    def sequences(self, chunk: int = 0) -> bytes:
        """The sequence words of a region: while they are the same, no field of any slot has changed."""
        return self._used(chunk)[SEQUENCE::STRIDE].tobytes()

    def _used(self, chunk: int) -> memoryview:
        """The words of a region's slots up to the last one that was ever used."""
        words = self._regions[chunk].words
        rows = words[USED_ROWS] or CHUNK
        if rows < CHUNK and words[rows * STRIDE + SEQUENCE]:
            rows = CHUNK  # a controller of an older version took this one: it takes the lowest that is free
        return words[: rows * STRIDE]

    def column(self, field: int, chunk: int = 0) -> list[int]:
        """`field` of every slot of a region, 0 where unused. Each value was current at some moment of the call."""
        words = self._used(chunk)
        before = words[SEQUENCE::STRIDE].tolist()
        copies = [words[copy + field :: STRIDE].tolist() for copy in COPIES]
        after = words[SEQUENCE::STRIDE].tolist()
        values = [copies[sequence & 1][row] for row, sequence in enumerate(before)]
        if before != after:  # published meanwhile: the values of those slots may mix two states
            for row in (row for row in range(len(values)) if before[row] != after[row]):
                values[row] = self[chunk * CHUNK + row].read()[field]
        return values + [0] * (CHUNK - len(values))

    def numbers(self, *states: int) -> list[int]:
        """The slots that are in one of `states`."""
        return [
            chunk * CHUNK + row
            for chunk in range(len(self._regions))
            for row, state in enumerate(self.column(F_STATE, chunk))
            if state in states
        ]

    def contended(self) -> list[tuple[int, int, int]]:
        """(slot, holder's pid, contended since ms) of every slot with a `contended` note."""
        found: list[tuple[int, int, int]] = []
        for chunk in range(len(self._regions)):
            words = self._used(chunk)
            for row, since in enumerate(words[CONTENDED::STRIDE].tolist()):
                if since:
                    found.append((chunk * CHUNK + row, words[row * STRIDE + HOLDER], since))
        return found

    def damaged(self) -> list[int]:
        """The slots that name a segment with a damaged index."""
        found: list[int] = []
        for chunk in range(len(self._regions)):
            bases = self._used(chunk)[DAMAGED::STRIDE].tolist()
            found += [chunk * CHUNK + row for row, base in enumerate(bases) if base]
        return found
