"""Retention of segments and producer ids. Pure decisions over facts and a clock passed in.

The rules are Kafka's. Segments are deleted from the oldest on, in three passes: those wholly below the
log start offset (DeleteRecords), then those beyond `retention.bytes`, then those whose largest timestamp
is older than `retention.ms`. The first segment that stays ends a pass. A segment whose end is above
the high watermark stays. The active segment may be deleted too, and then the caller rolls first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from odradek.ipc import renewal
from odradek.ipc.producers import TIMESTAMP, ProducerTable

Key = TypeVar("Key")

FOREVER = -1
PRODUCER_EXPIRATION_MS = 86_400_000  # producer.id.expiration.ms


class SegmentFacts(NamedTuple):
    """A segment's first offset, size in bytes and largest timestamp in ms (`index_files.largest_timestamp`)."""

    base_offset: int
    size: int
    largest_timestamp: int


class DeletableSegment(NamedTuple):
    """A segment to delete, and why: "log start offset", "retention.bytes" or "retention.ms"."""

    base_offset: int
    reason: str


class RetentionLimits(NamedTuple):
    """A topic's retention; -1 means for ever. `delete`: whether cleanup.policy has delete."""

    retention_ms: int = FOREVER
    retention_bytes: int = FOREVER
    delete: bool = True


def segments_to_delete(
    segments: Sequence[SegmentFacts],
    limits: RetentionLimits,
    *,
    log_start: int,
    high_watermark: int,
    leo: int,
    now_ms: int,
) -> list[DeletableSegment]:
    """The segments to delete, oldest first. `segments` rises and ends with the active one.

    When the active segment is among them (never when it is empty) the caller rolls before it deletes.
    """
    free = _unneeded(segments, high_watermark, leo)
    start = _below_start(segments[:free], segments, log_start)
    if not limits.delete:
        return _deletable(segments[:start], "log start offset")
    size = start + _too_big(segments[start:free], segments[start:], limits.retention_bytes)
    age = size + _too_old(segments[size:free], limits.retention_ms, now_ms)
    return [
        *_deletable(segments[:start], "log start offset"),
        *_deletable(segments[start:size], "retention.bytes"),
        *_deletable(segments[size:age], "retention.ms"),
    ]


def _deletable(segments: Sequence[SegmentFacts], reason: str) -> list[DeletableSegment]:
    return [DeletableSegment(segment.base_offset, reason) for segment in segments]


def _unneeded(segments: Sequence[SegmentFacts], high_watermark: int, leo: int) -> int:
    """How many of the oldest segments end at or below the high watermark; an empty active one stays."""
    ends = [segment.base_offset for segment in segments[1:]] + [leo]
    count = next((i for i, end in enumerate(ends) if end > high_watermark), len(segments))
    return count - 1 if count and count == len(segments) and not segments[-1].size else count


def _below_start(candidates: Sequence[SegmentFacts], segments: Sequence[SegmentFacts], log_start: int) -> int:
    following = [segment.base_offset for segment in segments[1:]]
    ends = zip(candidates, following, strict=False)  # the active one has no end yet
    return next((i for i, (_, end) in enumerate(ends) if end > log_start), min(len(candidates), len(following)))


def _too_big(candidates: Sequence[SegmentFacts], log: Sequence[SegmentFacts], retention_bytes: int) -> int:
    """How many can be deleted with the log still at least `retention_bytes` long."""
    if retention_bytes < 0:
        return 0
    over = sum(segment.size for segment in log) - retention_bytes
    for index, segment in enumerate(candidates):
        over -= segment.size
        if over < 0:
            return index
    return len(candidates)


def _too_old(candidates: Sequence[SegmentFacts], retention_ms: int, now_ms: int) -> int:
    if retention_ms < 0:
        return 0
    ages = (now_ms - segment.largest_timestamp for segment in candidates)
    return next((i for i, age in enumerate(ages) if age <= retention_ms), len(candidates))


class LogFacts(NamedTuple):
    """One log for `for_space`: its segments, rising, the active one last; high watermark; log end."""

    segments: Sequence[SegmentFacts]
    high_watermark: int
    leo: int


def for_space(logs: Mapping[Key, LogFacts], bytes_to_free: int) -> dict[Key, list[DeletableSegment]]:
    """The sealed segments to delete so that `bytes_to_free` become free, the oldest of all logs first.

    All of them if they are smaller together; active segments and segments above the high watermark stay.
    """
    deletable: dict[Key, list[DeletableSegment]] = {}
    for _, number, base, size in sorted(_by_age(list(logs.values()))):
        if bytes_to_free <= 0:
            break
        key = list(logs)[number]
        deletable.setdefault(key, []).append(DeletableSegment(base, "odradek.retention.free.bytes"))
        bytes_to_free -= size
    return deletable


def _by_age(logs: Sequence[LogFacts]) -> Iterator[tuple[int, int, int, int]]:
    """(timestamp, log, base offset, size) of deletable segments; within a log the timestamps never fall."""
    for number, (segments, high_watermark, leo) in enumerate(logs):
        newest = -1
        for segment in segments[: min(_unneeded(segments, high_watermark, leo), len(segments) - 1)]:
            newest = max(newest, segment.largest_timestamp)
            yield newest, number, segment.base_offset, segment.size


def kept_producers(table: ProducerTable, now_ms: int, expiration_ms: int = PRODUCER_EXPIRATION_MS) -> list[int]:
    """The places of producers that wrote within `expiration_ms`, or have an open transaction."""
    words, oldest = table.words, now_ms - expiration_ms
    return [at for at in renewal.along(table.places()) if words[at + TIMESTAMP] > oldest or table.txn_first(at) >= 0]
