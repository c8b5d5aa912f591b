"""A partition as one process sees it: its slot, its lock, its files.

Layout    : Kafka's partition directory (storage.files.names); the slot says how much of it is valid.
Owner     : the broker; the partition lock decides, for each call, which process acts.
Writers   : the process that holds the lock (`locked`). Methods that need it say "caller holds the lock".
Lock      : partition.lock byte of the slot, try-lock only. A process holds at most one.
Crash rule: bytes past the published size and entries past the published counts are garbage. A process that takes the
            lock and finds `dirty` repairs first (storage.log.repair), whatever its purpose, so no process ever builds
            on a half-done change.
"""

from __future__ import annotations

import logging
import os
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from odradek.ipc import renewal, roles, slots
from odradek.ipc.locks import TAKEN
from odradek.ipc.partition_counts import NOWHERE
from odradek.ipc.slots import DELETING, DIRTY, F_INCARNATION, F_STATE, GROWTH, NOBODY, Fields, Slot, SlotState
from odradek.storage.config import LogConfig
from odradek.storage.files import names
from odradek.storage.files.faults import DamagedIndex
from odradek.storage.files.openfile import OpenFile
from odradek.storage.log.sequences import Producers
from odradek.storage.producers.lowest_sequences import LowestSequences
from odradek.storage.segment.index import OffsetIndex, TimeIndex

if TYPE_CHECKING:
    from odradek.ipc.locks import PartitionLocks
    from odradek.ipc.shm import Shared
    from odradek.storage.producers.producer_state import AbortedTxn

log = logging.getLogger(__name__)


# Values of the slot's dirty word: what the holder of the lock is changing, and so what repair has to do.
APPENDING = 1  # any change of the active segment
ROLLING = 2
TRIMMING = 3  # segments are deleted (storage.log.trim)
SWAPPING = 4  # compacted segments replace others (storage.log.swap)
TRUNCATING = 5  # a sealed segment (storage.log.truncate)


class LockNotAvailable(Exception):
    """Another process holds the partition's lock: retry in a millisecond."""


QUICK_TRIES = 8  # with sched_yield between them: an append holds the lock for some 20 µs


class PartitionRemoved(Exception):
    """The slot no longer serves this partition (deleted, or recreated under the same name)."""


class Unrepaired(OSError):
    """The partition cannot be repaired at the moment (no memory, damaged files): a storage error."""


_Index = TypeVar("_Index", OffsetIndex, TimeIndex)
_REPLACING = (SWAPPING, TRUNCATING)
_SEALED_KEPT = 4  # a reader reads one segment after the other; each costs three descriptors


class SealedSegment:
    """A segment that no longer changes: its files open on first use and stay open while referenced."""

    __slots__ = ("_index", "_log", "_of", "_path", "_time", "base", "size")

    def __init__(self, of: Partition, base: int) -> None:
        self.base = base
        self._of = of
        self._path = os.path.join(of.directory, names.offset_name(base))
        self.size = os.stat(self._path + names.LOG).st_size
        self._log: OpenFile | None = None
        self._index: OffsetIndex | None = None
        self._time: TimeIndex | None = None
        of.confirm()

    @property
    def file(self) -> OpenFile:
        if self._log is None:
            opened = OpenFile(self._path + names.LOG)
            self._of.confirm()
            self._log = opened
        return self._log

    @property
    def index(self) -> OffsetIndex:
        if self._index is None:
            opened = self._opened(OffsetIndex, names.INDEX)
            self._of.confirm()
            self._index = opened
        return self._index

    @property
    def time_index(self) -> TimeIndex:
        if self._time is None:
            opened = self._opened(TimeIndex, names.TIME_INDEX)
            self._of.confirm()
            self._time = opened
        return self._time

    def _opened(self, make: type[_Index], kind: str) -> _Index:
        try:
            return make(self._path + kind, fail=partial(self._of.cut_short, self.base))
        except FileNotFoundError:
            self._of.lost(self.base, kind)
            raise


class ActiveFiles:
    """The three files that appends write to."""

    __slots__ = ("base", "generation", "index", "index_file", "log", "time", "time_file")

    def __init__(self, of: Partition, base: int, generation: int, make: bool) -> None:
        path, fail = os.path.join(of.directory, names.offset_name(base)), partial(of.cut_short, base)
        flags = os.O_RDWR | (os.O_CREAT if make else 0)
        self.base = base
        self.generation = generation
        self.log = OpenFile(path + names.LOG, flags)
        self.index_file = OpenFile(path + names.INDEX, flags)
        self.time_file = OpenFile(path + names.TIME_INDEX, flags)
        self.index = OffsetIndex("", self.index_file.fd, fail)
        self.time = TimeIndex("", self.time_file.fd, fail)


class Owner(Protocol):
    """What a partition needs of the log that it belongs to (storage.log.log)."""

    pid: int
    locks: PartitionLocks
    shared: Shared
    run_dir: str | os.PathLike[str]
    ring: Callable[[int], None]  # wakes the process of a role

    def repair(self, partition: Partition, values: Fields, dirty: int) -> Fields:
        """Repair what the last holder of the lock left half done; returns the fields. Caller holds the lock."""

    def opened(self, partition: Partition) -> None:
        """Record that `partition` has opened files."""

    def disk_failed(self, log_dir: int) -> None:
        """Have the janitor take all partitions of log directory number `log_dir` offline."""


class Partition:
    """One partition. Cheap to make; opens files on first use and again after each change of generation."""

    def __init__(
        self, owner: Owner, topic: str, index: int, topic_id: bytes, slot: Slot, incarnation: int, directory: str,
        config: LogConfig,
    ) -> None:  # fmt: skip
        self.owner = owner
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.slot = slot
        self.incarnation = incarnation
        self.directory = directory
        self.config = config
        self.counts = NOWHERE  # what clients do with it: see ipc.partition_counts
        self._pid = owner.pid
        self._lock, self._unlock = owner.locks.calls(slot.number)
        self.producers = Producers(owner.shared.prefix, slot.number, incarnation, owner.shared.incarnation)
        # Any: a worker's PendingBatch (workers.produce.batching), of which storage knows what append's Batch says.
        self.pending: list[Any] = []  # a worker's batches to append in this pass
        self.deferred = False  # they wait for the lock
        self.unverified: list[Any] = []  # those that the last append left out: see storage.log.transactions.may_open
        self.lowest_sequences = LowestSequences()  # of batches refused as unverified
        self.positions: dict[int, tuple[int, int]] = {}  # offset → (segment base, position), where readers stopped
        self.aborted: dict[int, tuple[int, list[AbortedTxn]]] = {}  # see storage.log.transactions
        self.largest: dict[
            int, int
        ] = {}  # segment base → its largest timestamp, of sealed ones; see storage.log.timestamp_queries
        self._generation = -1
        self.active_files: ActiveFiles | None = None  # see `active`
        self._bases: list[int] | None = None
        self._sealed: dict[int, SealedSegment] = {}

    def __repr__(self) -> str:
        return f"{self.topic}-{self.index}"

    def state(self) -> SlotState:
        """The published state; check `incarnation` before using the rest."""
        return self.slot.state()

    # -- the lock

    @contextmanager
    def locked(self) -> Iterator[Fields]:
        """Hold the lock during the block, after a repair if needed; yields the slot's fields.

        Raises LockNotAvailable, after it has recorded the wait for the supervisor's sweep (a caller that retries counts
        as waiting), or PartitionRemoved. After the release it rings the waiters.
        """
        try:
            values = self.acquire()
        except LockNotAvailable:
            self.record_wait()
            raise
        try:
            with renewal.of(self.slot):
                yield values
        finally:
            self.release()

    def acquire(self) -> Fields:
        """Take the lock, repair if needed, and return the fields; LockNotAvailable or PartitionRemoved.

        The lock covers the log, the slot's fields and the followers' rows (ipc.replicas).
        """
        slot = self.slot
        try:
            self._lock()
        except TAKEN:
            raise LockNotAvailable from None
        try:
            values = slot.record_holder(self._pid)
            if values[F_INCARNATION] != self.incarnation or values[F_STATE] == DELETING:
                raise PartitionRemoved
            if slot.words[slot.at + DIRTY]:
                values = self._repaired(values)
                slot.dirty = 0
        except BaseException:
            self._unlock()
            raise
        return values

    def record_wait(self) -> None:
        """Note that this process waits for the lock: the supervisor checks for a stuck holder. Call at each try."""
        self.slot.mark_contended(time.monotonic_ns() // 1_000_000)

    def _repaired(self, values: Fields) -> Fields:
        try:
            with renewal.of(self.slot):
                return self.owner.repair(self, values, self.slot.dirty)
        except OSError:
            self.producers.forget()
            raise
        except Exception as error:
            self.producers.forget()
            log.exception("%r: repair failed", self)
            raise Unrepaired(f"{self!r}: {error}") from error

    def release(self, changed: int = GROWTH) -> None:
        """Release the lock and ring the roles that wait for such a change of this slot (ipc.slots: GROWTH, …)."""
        self._unlock()
        slot = self.slot
        if changed and slot.map[slot.row_at] != NOBODY:
            for role in slot.waiters(changed):
                self.owner.ring(role)

    # -- files

    def follow(self, generation: int) -> None:
        """Drop all cached data about the files when their set has changed."""
        if generation != self._generation:
            self._generation = generation
            self.active_files = None
            self._bases = None
            self._sealed = {}
            self.positions.clear()
            self.aborted.clear()
            self.largest.clear()

    def active(self, base: int, generation: int, make: bool = False) -> ActiveFiles:
        """The active segment's files, opened on first use; `make` creates them (caller holds the lock).

        A reader never creates them: its copy of the slot may be old, and the files deleted or another topic's.
        """
        self.follow(generation)
        files = self.active_files
        if files is None or files.base != base:
            files = self._open_active(base, generation, make)
            self._opened()
            self.active_files = files
        return files

    def _open_active(self, base: int, generation: int, make: bool) -> ActiveFiles:
        try:
            return ActiveFiles(self, base, generation, make)
        except FileNotFoundError as error:
            kind = os.path.splitext(error.filename)[1]
            if kind in names.INDEXES:
                self.lost(base, kind)
            raise

    def cut_active(self, base: int, size: int) -> None:
        """Truncate the active segment to the published size (caller holds the lock)."""
        if self.active_files is not None and self.active_files.base == base:
            os.ftruncate(self.active_files.log.fd, size)

    def _opened(self) -> None:
        """Check files after opening them by name: FileNotFoundError if they may belong to another topic by now."""
        if self.slot.read()[slots.F_INCARNATION] != self.incarnation:
            raise FileNotFoundError(f"{self!r} is deleted")
        self.owner.opened(self)

    def bases(self, active_base: int, generation: int) -> list[int]:
        """Base offsets of the segments, ascending; the active one is the last."""
        self.follow(generation)
        if self._bases is None:
            found = [base for base in names.segment_bases(self.directory) if base < active_base]
            self.confirm()
            self._bases = [*found, active_base]
        return self._bases

    def confirm(self) -> None:
        """Check that files just looked up by name belong to the current generation.

        FileNotFoundError when the set of files has changed meanwhile, or a compaction or truncation is replacing some:
        read the slot again. An old index with a new log would point anywhere, a list half old would skip records.
        """
        if self.slot.dirty in _REPLACING:
            self._await_swap()
        elif self._generation in (-1, self.slot.read()[slots.F_GENERATION]):
            return
        raise FileNotFoundError(f"{self!r}: the set of segments has changed")

    def damaged(self, base: int, why: str) -> DamagedIndex:
        """The error for a wrong index of the segment at `base`; the janitor will rebuild the index."""
        self.slot.damaged = base
        self.owner.ring(roles.JANITOR)
        return DamagedIndex(f"{self!r}: {why}; it will be rebuilt from the log")

    def lost(self, base: int, kind: str) -> None:
        """Report a missing index of a segment: DamagedIndex, unless the segment is just deleted or replaced."""
        self.confirm()
        if self.slot.read()[slots.F_LOG_START] <= base:
            raise self.damaged(base, f"the {kind} of segment {base} is missing")

    def cut_short(self, base: int, why: str) -> DamagedIndex:
        """The error for an index of the segment at `base` that ends before a published entry."""
        self.confirm()
        return self.damaged(base, f"segment {base}: {why}")

    def _await_swap(self) -> None:
        """Wait for a short swap; if its process is dead, taking the lock finishes it."""
        try:
            self.acquire()
            self.release()
        except LockNotAvailable:
            self.record_wait()
            time.sleep(0.001)
        except PartitionRemoved:
            pass

    def segment_of(self, offset: int, values: Sequence[int]) -> int:
        """The base of the segment that holds `offset`, which is at or above the log start.

        FileNotFoundError when the segment was deleted since the slot was read: read it again.
        """
        bases = self.bases(values[slots.F_ACTIVE_BASE], values[slots.F_GENERATION])
        if offset < bases[0]:
            raise FileNotFoundError(f"{self!r}: the segment of offset {offset} is gone")
        return bases[bisect_right(bases, offset) - 1]

    def sealed(self, base: int) -> SealedSegment:
        """The sealed segment at `base`; FileNotFoundError when it was deleted meanwhile (read the slot again)."""
        segment = self._sealed.get(base)
        if segment is None:
            segment = SealedSegment(self, base)
            self._opened()
            if len(self._sealed) >= _SEALED_KEPT:
                del self._sealed[next(iter(self._sealed))]
            self._sealed[base] = segment
        return segment

    @property
    def outdated(self) -> bool:
        """Whether the open files are no longer the partition's: deleted segments among them keep their disk space."""
        values = self.slot.read()
        return values[slots.F_GENERATION] != self._generation or values[slots.F_INCARNATION] != self.incarnation

    def close_files(self) -> None:
        """Release all open files; slices in flight keep theirs."""
        self.active_files = None
        self._sealed = {}
        self._generation = -1
