"""Retention: deletes old segments and expires idle producer ids (storage.retention has the rules)."""

from __future__ import annotations

import logging
import os

from odradek.broker.process import flush
from odradek.ipc import slots
from odradek.ipc.slots import Fields, SlotState
from odradek.storage import retention
from odradek.storage.files import names
from odradek.storage.log import roll, trim
from odradek.storage.log.partition import Partition
from odradek.storage.retention import DeletableSegment, LogFacts, RetentionLimits, SegmentFacts
from odradek.storage.segment.index_files import largest_timestamp

log = logging.getLogger(__name__)


class Retention:
    """Caches facts about sealed segments, which change only when compaction replaces them."""

    def __init__(self) -> None:
        self._facts: dict[tuple[int, ...], SegmentFacts] = {}  # (incarnation, base offset, which file)

    def forget(self) -> None:
        """Clear the cache; call it now and then, or deleted segments add up."""
        self._facts.clear()

    def trim(self, partition: Partition, now_ms: int) -> int:
        """Delete one partition's segments that are due; returns how many.

        Raises OSError, LockNotAvailable, PartitionRemoved. Also on a follower, as in Kafka, up to its high
        watermark: it need not wait for its leader to do the same.
        """
        state = partition.state()
        if state.state not in (slots.LEADER, slots.FOLLOWER) or not self._deletable(partition, state, now_ms):
            return 0
        with flush.patiently(partition) as values:
            deletable = self._deletable(partition, SlotState._make(values), now_ms)  # it may have grown meanwhile
            if not deletable:
                return 0
            if deletable[-1].base_offset == values[slots.F_ACTIVE_BASE]:
                roll.roll(partition, values)
            return _delete(partition, values, deletable)

    def _deletable(self, partition: Partition, state: SlotState, now_ms: int) -> list[DeletableSegment]:
        config = partition.config
        limits = RetentionLimits(config.retention_ms, config.retention_bytes, "delete" in config.cleanup_policy)
        return retention.segments_to_delete(
            self._segments(partition, state),
            limits,
            log_start=state.log_start,
            high_watermark=state.hw,
            leo=state.leo,
            now_ms=now_ms,
        )

    def facts(self, partition: Partition) -> LogFacts:
        """A log's facts for `retention.for_space`. Raises FileNotFoundError when its files are just changing."""
        state = partition.state()
        return LogFacts(self._segments(partition, state), state.hw, state.leo)

    def make_space(self, partition: Partition, deletable: list[DeletableSegment]) -> int:
        """Delete the oldest sealed segments of one partition; returns how many.

        Raises OSError, LockNotAvailable, PartitionRemoved.
        """
        with flush.patiently(partition) as values:
            bases = partition.bases(values[slots.F_ACTIVE_BASE], values[slots.F_GENERATION])
            there = [one for one in deletable if one.base_offset in bases[:-1]]
            return _delete(partition, values, there) if there else 0

    def _segments(self, partition: Partition, state: SlotState) -> list[SegmentFacts]:
        bases = partition.bases(state.active_base, state.generation)
        sealed = [self._sealed(partition, base) for base in bases[:-1]]
        newest = state.max_timestamp if state.max_timestamp >= 0 else _modified(partition, state.active_base)
        return [*sealed, SegmentFacts(state.active_base, state.active_size, newest)]

    def _sealed(self, partition: Partition, base: int) -> SegmentFacts:
        found = os.stat(names.segment_path(partition.directory, base))
        key = (partition.incarnation, base, found.st_ino, found.st_size, found.st_mtime_ns)
        facts = self._facts.get(key)
        if facts is None:
            facts = SegmentFacts(base, found.st_size, largest_timestamp(partition.directory, base))
            self._facts[key] = facts
        return facts


def _modified(partition: Partition, base: int) -> int:
    """When the log file was written last, in ms: the age of records without a timestamp."""
    return os.stat(names.segment_path(partition.directory, base)).st_mtime_ns // 1_000_000


def _delete(partition: Partition, values: Fields, deletable: list[DeletableSegment]) -> int:
    """Caller holds the lock; the active segment is no longer among `deletable`."""
    bases = partition.bases(values[slots.F_ACTIVE_BASE], values[slots.F_GENERATION])
    start = next(base for base in bases if base > deletable[-1].base_offset)
    for segment in deletable:
        log.info("%r: deleting the segment at offset %d (%s)", partition, *segment)
    if start > values[slots.F_LOG_START]:
        return trim.advance(partition, values, start)
    return trim.delete_below_start(partition, values)


def expire_producers(partition: Partition, now_ms: int, expiration_ms: int) -> int:
    """Expire one partition's producer ids that are idle for too long; returns how many.

    Raises LockNotAvailable, PartitionRemoved.
    """
    if not partition.state().pstate_gen:
        return 0
    with flush.patiently(partition) as values:
        generation = values[slots.F_PSTATE_GEN]
        table = partition.producers.table(generation)
        if table is None:
            return 0
        kept = retention.kept_producers(table, now_ms, expiration_ms)
        idle = table.used - len(kept)
        if idle:
            most = partition.config.producers_max
            values[slots.F_PSTATE_GEN] = partition.producers.keep(kept, generation, 1, most)
            partition.slot.publish(values)
            partition.producers.retire(generation)
        return idle
