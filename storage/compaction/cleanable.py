"""The cleanable range of a compacted log, its dirty ratio, and the grouping of its segments. Pure decisions.

Kafka's rules. A log is clean below its cleaner checkpoint; cleanable from there up to the segment that holds the last
stable offset, or the active one, or the first with a record younger than min.compaction.lag.ms, whichever is first.
It is due when its cleanable bytes exceed min.cleanable.dirty.ratio of both, or when its first dirty batch is older
than max.compaction.lag.ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from odradek.protocol.wire import INT64_MAX
from odradek.storage.segment.index import MAX_RELATIVE

_MOST = 64  # segments in a group: a swap renames them while it holds the lock


class Segment(NamedTuple):
    """A sealed segment: bytes of log and indexes, largest and first timestamp in ms."""

    base: int
    size: int
    index_size: int = 0
    time_index_size: int = 0
    largest_timestamp: int = -1
    first_timestamp: int = -1


class CleaningRules(NamedTuple):
    """A topic's configs; times in ms, sizes in bytes."""

    min_lag_ms: int = 0
    max_lag_ms: int = INT64_MAX
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 << 20


class DecidedOffsets(NamedTuple):
    """A log's state at a check: the markers of all transactions that begin below `stable` lie below `log_end`."""

    log_end: int
    stable: int
    truncations: int


class CleanableRange(NamedTuple):
    """Offsets [first_dirty, upto) can be cleaned; `must`: at once, whatever the ratio.

    `truncations` is the log's number of truncations then: after another one all this may be wrong. `undecided`: input
    for the next check, None if nothing waits for the in-sync replicas.
    """

    first_dirty: int
    upto: int
    clean_bytes: int
    cleanable_bytes: int
    must: bool
    truncations: int = 0
    undecided: DecidedOffsets | None = None

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def due(self, min_dirty_ratio: float) -> bool:
        """Whether the log is due for cleaning."""
        return self.cleanable_bytes > 0 and (self.must or self.ratio > min_dirty_ratio)


def settled(now: DecidedOffsets, hw: int, before: DecidedOffsets | None) -> tuple[int, DecidedOffsets | None]:
    """The offset below which no failover can undo a marker, and the state for the next check.

    A failover removes markers from the high watermark on. If there are always records above it, with a marker or
    without, the state of the check `before` counts once the high watermark has passed its log end; until then 0.
    """
    if hw >= now.log_end:
        return now.stable, None
    if before is None or before.truncations != now.truncations:
        return 0, now
    return (before.stable, now) if before.log_end <= hw else (0, before)


def first_dirty(checkpoint: int | None, log_start: int, leo: int) -> int:
    """The start of the dirty part; a checkpoint outside the log is ignored."""
    return checkpoint if checkpoint is not None and log_start <= checkpoint <= leo else log_start


def cleanable(
    segments: Sequence[Segment], active_base: int, dirty_from: int, stable: int, rules: CleaningRules, now_ms: int
) -> CleanableRange:
    """The cleanable range of a log. `segments` are the sealed ones, rising; `stable` is the last stable offset."""
    ends = [segment.base for segment in segments[1:]] + [active_base]
    upto = max((base for base in (*(one.base for one in segments), active_base) if base <= stable), default=-1)
    dirty = [one for one, end in zip(segments, ends, strict=True) if end > dirty_from and one.base < upto]
    if rules.min_lag_ms > 0:
        upto = min([upto, *(one.base for one in dirty if one.largest_timestamp > now_ms - rules.min_lag_ms)])
    clean = sum(one.size for one in segments if one.base < dirty_from)
    must = any(0 < one.first_timestamp < now_ms - max(rules.max_lag_ms, 0) for one in dirty)
    return CleanableRange(dirty_from, upto, clean, sum(one.size for one in dirty if one.base < upto), must)


def groups(segments: Sequence[Segment], active_base: int, end: int, rules: CleaningRules) -> list[list[Segment]]:
    """The sealed segments that begin below `end`, in runs that each fit one segment with its indexes."""
    ends = [one.base for one in segments[1:]] + [active_base]
    made: list[list[Segment]] = []
    for one, following in zip(segments, ends, strict=True):
        if one.base >= end:
            break
        if made and _fits(made[-1], one, following, rules):
            made[-1].append(one)
        else:
            made.append([one])
    return made


def _fits(group: list[Segment], one: Segment, end: int, rules: CleaningRules) -> bool:
    """Whether `one`, which ends at `end`, can join the group."""
    both = [*group, one]
    return (
        len(group) < _MOST
        and sum(each.size for each in both) <= rules.segment_bytes
        and sum(each.index_size for each in both) <= rules.segment_index_bytes
        and sum(each.time_index_size for each in both) <= rules.segment_index_bytes
        and (not one.size or end - 1 - group[0].base <= MAX_RELATIVE)
    )
