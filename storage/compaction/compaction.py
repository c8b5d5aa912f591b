"""Compaction of one log (KIP-58, KIP-98, KIP-280's default): only the last record of each key stays, offsets stay.

Two passes: over the dirty sealed segments into the offset map, until it is full; then over all segments from the first
on, in groups that become one segment each. The active segment, and everything at or after the first open transaction,
stays untouched. It runs from the oldest segment on, so that no older value ever becomes visible.

Layout    : storage.log.swap has the files.
Owner     : the janitor, one log at a time, in small steps between its other tasks: `steps` is a generator.
Lock      : held at the start (which also repairs), to read the producers, and for the swap of each group; else free.
Crash rule: each group's swap is independent. A death loses the round, which restarts from the checkpoint.
            All data that a round relies on, markers included, is below the high watermark (`cleanable.settled`), and on
            the disk before it begins. Else a failover or a power failure could lose the reason for a removal: the newer
            value of the key, or the abort marker; then that transaction is open again and some of it is missing.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from odradek.ipc import renewal, slots
from odradek.storage.compaction import cleanable
from odradek.storage.compaction.cleanable import CleanableRange, CleaningRules, DecidedOffsets, Segment
from odradek.storage.compaction.cleaned_segment import CleanedSegment
from odradek.storage.compaction.cleaned_transactions import CleanedTransactions
from odradek.storage.compaction.unreadable_batches import UnreadableBatches
from odradek.storage.files import checkpoints, names
from odradek.storage.files.durable import FILES, remove
from odradek.storage.log import swap, transactions
from odradek.storage.log.flush import Flush
from odradek.storage.log.partition import TRUNCATING
from odradek.storage.producers.producer_state import AbortedTxn
from odradek.storage.segment import index_files
from odradek.storage.segment.scan import Scan

if TYPE_CHECKING:
    from odradek.ipc.slots import SlotState
    from odradek.storage.compaction.clean_batches import BatchCleaner
    from odradek.storage.compaction.clean_chunks import ChunkCleaner
    from odradek.storage.log.partition import Partition
    from odradek.storage.segment.batch_chunks import Chunk, OldBatch

log = logging.getLogger(__name__)

_NEVER = 1 << 62  # a lag beyond this means no lag
BUSY = -1  # yielded when the partition's lock is taken: retry soon


class UncleanableLog(Exception):
    """A log that cannot be compacted: it is damaged. The message says where."""


class CleaningAborted(Exception):
    """The log was truncated or its segments deleted meanwhile: this round is void, the next may succeed."""


class DedupeBuffer(NamedTuple):
    """log.cleaner.dedupe.buffer.size in bytes and log.cleaner.io.buffer.load.factor."""

    buffer_bytes: int = 128 << 20
    load_factor: float = 0.9
    chunk_bytes: int = 4 << 20  # read between two yields


def rules(partition: Partition) -> CleaningRules:
    """The partition's configs for compaction."""
    config = partition.config
    lag = (config.min_compaction_lag_ms, config.max_compaction_lag_ms)
    return CleaningRules(*lag, config.segment_bytes, config.segment_index_bytes)


def find_range(
    partition: Partition, checkpoint: int | None, now_ms: int, before: DecidedOffsets | None = None
) -> CleanableRange:
    """The cleanable range of a log, given `before` from the last check. Takes no lock.

    FileNotFoundError when the log changes meanwhile.
    """
    state = partition.state()
    dirty_from = cleanable.first_dirty(checkpoint, state.log_start, state.leo)
    if state.active_base <= dirty_from:
        return CleanableRange(dirty_from, dirty_from, 0, 0, False, state.truncations)
    bases = partition.bases(state.active_base, state.generation)[:-1]
    found = [_facts(partition.directory, base, rules(partition)) for base in bases]
    now = DecidedOffsets(state.leo, slots.last_stable(state), state.truncations)
    stable, undecided = cleanable.settled(now, state.hw, before)
    what = cleanable.cleanable(found, state.active_base, dirty_from, stable, rules(partition), now_ms)
    return what._replace(truncations=state.truncations, undecided=undecided)


def _facts(directory: str, base: int, rules: CleaningRules) -> Segment:
    """The segment's data for the decision; opens files only if a lag is set."""
    size = os.stat(names.segment_path(directory, base)).st_size
    largest = index_files.largest_timestamp(directory, base) if rules.min_lag_ms > 0 else -1
    first = _first_timestamp(directory, base) if rules.max_lag_ms < _NEVER else -1
    return Segment(base, size, largest_timestamp=largest, first_timestamp=first)


def _sizes(directory: str, base: int) -> Segment:
    """The segment's data for grouping."""
    kinds = (names.LOG, names.INDEX, names.TIME_INDEX)
    return Segment(base, *(os.stat(names.segment_path(directory, base, kind)).st_size for kind in kinds))


def _first_timestamp(directory: str, base: int) -> int:
    """The largest timestamp of the first batch, as in Kafka; -1 in an empty segment."""
    with FILES.opened(names.segment_path(directory, base), os.O_RDONLY) as fd:
        first = next(iter(Scan(fd, check=False)), None)
    return -1 if first is None else first.max_timestamp


def _deciding(state: SlotState) -> int:
    """The end of the batches that decide removals: markers in the active segment do, its records do not."""
    return state.leo if state.pstate_gen else state.active_base


class Compaction:
    """One round over one log. After the last of `steps`, `cleaned_upto` is the offset for the checkpoint.

    `bytes_read`, `bytes_written`, `segments` and `swaps` count the work done. `logged`: base offsets of unreadable
    batches that former rounds have logged.
    """

    def __init__(
        self,
        partition: Partition,
        what: CleanableRange,
        memory: DedupeBuffer,
        now_ms: int,
        logged: set[int] | None = None,
    ) -> None:
        self.partition = partition
        self.what = what
        self.now_ms = now_ms
        self.memory = memory
        self.rules = rules(partition)
        self.cleaned_upto = what.first_dirty
        self.bytes_read = self.bytes_written = self.segments = self.swaps = 0
        self._yielded = 0
        self._truncations = self._active_base = self._flushed = self._replayed_from = 0
        self._markers: dict[int, int] = {}  # producer id → its last marker in the dirty part
        self._unreadable = UnreadableBatches(partition.directory, set() if logged is None else logged)
        self._aborted: list[AbortedTxn] = []
        self._found: list[Segment] = []
        self._ends: dict[int, int] = {}  # segment's base → base of the next one
        self._writing = -1  # base of the segment that has `.cleaned` files

    def steps(self) -> Generator[int, None, None]:
        """Run the round step by step: yields the bytes read and written since the last yield, or BUSY.

        Raises PartitionRemoved when the partition was deleted, CleaningAborted, UncleanableLog, and OSError from the
        disk. Closing it early removes files not swapped in.
        """
        try:
            yield from self._sync()
            yield from self._begin()
            yield from self._build_map()
            yield from self._clean()
        except FileNotFoundError as error:
            raise CleaningAborted(str(error)) from None
        finally:
            self._discard()

    def _locked(self) -> Iterator[int]:
        """Yields BUSY until this process holds the lock."""
        from odradek.storage.log.partition import LockNotAvailable

        while True:
            try:
                self._values = self.partition.acquire()
                return
            except LockNotAvailable:
                self.partition.record_wait()
                yield BUSY

    def _sync(self) -> Iterator[int]:
        """Sync the data that this round relies on."""
        flush = Flush.begin(self.partition, _deciding)
        if flush.paths:
            flush.sync()
            yield from self._locked()
            try:
                flush.publish(self._values)
            finally:
                self.partition.release()

    def _begin(self) -> Iterator[int]:
        """Repair, remove files of a former round, record the log's state, and allocate the map."""
        from odradek.storage.compaction.key_hashes import KeyHasher
        from odradek.storage.compaction.offset_map import OffsetMap

        yield from self._locked()
        try:
            state = self.partition.state()
            if state.truncations != self.what.truncations or slots.last_stable(state) < self.what.upto:
                raise CleaningAborted("the log was truncated before the lock was taken")
            self._truncations, self._active_base = state.truncations, state.active_base
            self._flushed = state.flushed
            with renewal.of(self.partition.slot):
                swap.discard(self.partition.directory)
            bases = list(self.partition.bases(state.active_base, state.generation))
        finally:
            self.partition.release()
        if len(bases) < 2:
            raise CleaningAborted("its sealed segments are gone")
        self._replayed_from = max((base for base in bases if base <= self._recovery_point()), default=bases[0])
        self._found = [_sizes(self.partition.directory, base) for base in bases[:-1]]
        self._ends = dict(pairwise(bases))
        self._aborted = list(self._aborted_below(bases, state))
        self.hasher = KeyHasher()
        self.offsets = OffsetMap(
            self.memory.buffer_bytes, self.memory.load_factor, self.what.upto - self.what.first_dirty
        )

    def _recovery_point(self) -> int:
        """The offset from which a start after a kill reads: by the checkpoint, which may lag behind the flushes."""
        partition = self.partition
        try:
            points = checkpoints.read_offsets(os.path.dirname(partition.directory), checkpoints.RECOVERY_POINT)
        except checkpoints.CheckpointError:
            return 0
        return min(self._flushed, points.get((partition.topic, partition.index), 0))

    def _aborted_below(self, bases: list[int], state: SlotState) -> Iterator[AbortedTxn]:
        """Aborted transactions with data in the cleaned range, wherever the markers lie; without unwritten markers."""
        found = 0
        for base in bases:
            for row in transactions.rows_of(self.partition, base):
                found += 1
                if row.first_offset < self.what.upto and row.last_offset < state.leo:
                    yield row
        transactions.check_count(self.partition, state, found)

    def _discard(self) -> None:
        """Remove the segment being written; the directory may be gone by now."""
        for kind in names.SEGMENT_SUFFIXES if self._writing >= 0 else ():
            remove(names.segment_path(self.partition.directory, self._writing, kind, names.CLEANED))
        self._writing = -1

    def _path(self, segment: Segment, kind: str = names.LOG) -> str:
        return str(names.segment_path(self.partition.directory, segment.base, kind))

    def _progress(self) -> int:
        """Bytes since the last yield."""
        done = self.bytes_read + self.bytes_written
        since, self._yielded = done - self._yielded, done
        return since

    def _chunks(self, segment: Segment) -> Iterator[Chunk | OldBatch]:
        """The batches of a segment, each chunk valid until the next. UncleanableLog at a bad or foreign batch."""
        from odradek.storage.segment.batch_chunks import ChunkReader

        with FILES.opened(self._path(segment), os.O_RDONLY) as fd:
            reader = ChunkReader(fd, segment.size, segment.base, self.memory.chunk_bytes)
            for chunk in reader:
                if chunk.last_offset >= self._ends[segment.base]:  # no checksum covers a batch's offset
                    self._refuse(segment, f"offset {chunk.last_offset} is of a later segment")
                yield chunk
                self.bytes_read += chunk.size
                del chunk
        if reader.bad is not None:
            self._refuse(segment, f"byte {reader.bad.position}: {reader.bad.reason}")

    def _refuse(self, segment: Segment, why: str) -> None:
        """UncleanableLog, unless the log was truncated meanwhile."""
        self._abort_if_truncated()
        raise UncleanableLog(f"{self._path(segment)}: {why}")

    def _due(self) -> bool:
        """Whether a step's work is done."""
        return self.bytes_read + self.bytes_written - self._yielded >= self.memory.chunk_bytes

    def _abort_if_truncated(self) -> None:
        """Raise CleaningAborted after a truncation: it may make a sealed segment active, cut it and write to it."""
        slot = self.partition.slot
        if slot.dirty == TRUNCATING or slot.read()[slots.F_TRUNCATIONS] != self._truncations:
            raise CleaningAborted("the log was truncated")

    # --- the map

    def _build_map(self) -> Iterator[int]:
        """Map the keys of the dirty part until the map is full, at least one of them."""
        from odradek.storage.compaction.map_pass import MapPass

        passing = MapPass(self.offsets, self.hasher, self._transactions(), self.what.first_dirty, self._unreadable)
        for segment in self._found:
            end = self._ends[segment.base]
            if end <= self.what.first_dirty or segment.base >= self.what.upto or passing.full:
                continue
            for chunk in self._chunks(segment):
                passing.add(chunk)
                if passing.full:
                    break
                if self._due():
                    yield self._progress()
            else:
                self.offsets.latest = max(self.offsets.latest, end - 1)
        self._markers = passing.markers
        self.offsets.freeze()

    def _transactions(self) -> CleanedTransactions:
        return CleanedTransactions(self._aborted)

    # --- the segments

    def _clean(self) -> Iterator[int]:
        from odradek.storage.compaction.clean_batches import BatchCleaner, CleaningInput
        from odradek.storage.compaction.clean_chunks import ChunkCleaner

        what, retention_ms = self.what, self.partition.config.delete_retention_ms
        going = CleaningInput(
            self.offsets, self.hasher, self._transactions(), what.first_dirty, what.upto, self.now_ms, retention_ms,
        )  # fmt: skip
        cleaner, legacy_horizon = BatchCleaner(going), self._legacy_horizon()
        chunks = ChunkCleaner(cleaner, self._unreadable)
        end = self.offsets.latest + 1
        for group in cleanable.groups(self._found, self._active_base, end, self.rules):
            yield from self._read_producers(cleaner)
            joined = group[-1].base >= self._replayed_from  # with the first segment that a start replays
            cleaner.replayed_from = group[0].base if joined else self._replayed_from
            yield from self._clean_group(group, chunks, legacy_horizon)
        FILES.sync_dir(self.partition.directory)  # also for swaps of a janitor that died: the checkpoint trusts them
        self._abort_if_truncated()
        self.cleaned_upto = max(end, self.what.first_dirty)

    def _legacy_horizon(self) -> int:
        """The time (ms): tombstones of magic 0 and 1 are removed from segments last written before it."""
        clean = [one for one in self._found if one.base < self.what.first_dirty]
        return self._modified_ns(clean[-1]) // 1_000_000 - self.partition.config.delete_retention_ms if clean else 0

    def _modified_ns(self, segment: Segment) -> int:
        return os.stat(self._path(segment)).st_mtime_ns

    def _read_producers(self, cleaner: BatchCleaner) -> Iterator[int]:
        from odradek.storage.compaction.clean_batches import LastProducerBatch

        yield from self._locked()
        try:
            table = self.partition.producers.table(self._values[slots.F_PSTATE_GEN])
            with renewal.of(self.partition.slot):
                entries = list(table.entries()) if table is not None else []
        finally:
            self.partition.release()
        cleaner.producers = {
            entry.producer_id: LastProducerBatch.of(entry, self._markers.get(entry.producer_id, -1), self.what.upto)
            for entry in entries
        }

    def _clean_group(self, group: list[Segment], chunks: ChunkCleaner, legacy_horizon: int) -> Iterator[int]:
        self._writing = group[0].base
        cleaned = self._cleaned_segment(group)
        cleaner = chunks.cleaner
        cleaner.run.transactions.kept = []
        changed = len(group) > 1
        try:
            for segment in group:
                cleaner.legacy_tombstones = self._modified_ns(segment) // 1_000_000 > legacy_horizon
                for chunk in self._chunks(segment):
                    pieces, differs = chunks.clean(chunk)
                    changed |= differs
                    self.bytes_written += cleaned.append(pieces, differs)
                    if self._due():
                        yield self._progress()
            self.segments += len(group)
            if changed:
                self._finish(group, cleaner, cleaned)
        finally:
            cleaned.close()
        if changed:
            yield from self._swap(group)
        else:
            self._discard()
        yield self._progress()

    def _cleaned_segment(self, group: list[Segment]) -> CleanedSegment:
        interval, source = self.partition.config.index_interval_bytes, self._path(group[0]) if len(group) == 1 else None
        return CleanedSegment(self.partition.directory, group[0].base, interval, source)

    def _finish(self, group: list[Segment], cleaner: BatchCleaner, cleaned: CleanedSegment) -> None:
        any_index = any(os.path.exists(self._path(segment, names.TXN_INDEX)) for segment in group)
        rows = list(cleaner.run.transactions.kept)
        cleaned.finish(rows if any_index or rows else None, self._modified_ns(group[-1]))

    def _swap(self, group: list[Segment]) -> Iterator[int]:
        yield from self._locked()
        try:
            values = self._values
            state = values[slots.F_STATE] in (slots.LEADER, slots.FOLLOWER)
            bases = self.partition.bases(values[slots.F_ACTIVE_BASE], values[slots.F_GENERATION])
            replaced = [segment.base for segment in group]
            if not state or values[slots.F_TRUNCATIONS] != self._truncations or not set(replaced) <= set(bases):
                raise CleaningAborted("its segments are others now")
            if not self.partition.config.compacted:
                raise CleaningAborted("its cleanup.policy is no longer compact")
            self._writing = -1  # first: if a rename fails, `.cleaned` files make repair undo the others
            with renewal.of(self.partition.slot):
                swap.put_in_place(self.partition, values, replaced)
            self.swaps += 1
        finally:
            self.partition.release()
        FILES.sync_dir(self.partition.directory)
