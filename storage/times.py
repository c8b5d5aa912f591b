"""Offsets by timestamp (ListOffsets): which record is the first that is not older, and which is the newest.

Indexes narrow it down to one batch; only that batch is opened. Record timestamps of a compressed batch are inside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from odradek.ipc import slots
from odradek.protocol.batch import LOG_OVERHEAD
from odradek.storage import read
from odradek.storage.openfile import FileSlice

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.storage.partition import Partition
    from odradek.storage.read import Values


class Found(NamedTuple):
    """A record's timestamp (ms), offset, and the leader epoch it was written in."""

    timestamp: int
    offset: int
    leader_epoch: int


def first_not_before(partition: Partition, values: Values, timestamp: int, limit: int) -> Found | None:
    """The first record below offset `limit` whose timestamp is at least `timestamp`; None when there is none."""
    for base in partition.bases(values[slots.F_ACTIVE_BASE], values[slots.F_GENERATION]):
        if base >= limit:
            break
        if _largest(partition, values, base) < timestamp:
            continue
        start = max(_start(partition, values, base, timestamp), values[slots.F_LOG_START])
        found = _search(partition, values, start, limit, lambda t: t >= timestamp)
        if found is not None:
            return found
    return None


def newest(partition: Partition, values: Values, limit: int) -> Found | None:
    """The first record with the largest timestamp in the log's files (KIP-734); None when there is no record.

    As with Kafka that may be one below the log start, of a segment that DeleteRecords has left: no index knows the
    largest timestamp of what is behind it. None too when it is not below `limit`.
    """
    bases = partition.bases(values[slots.F_ACTIVE_BASE], values[slots.F_GENERATION])
    best, below = max((_largest(partition, values, base), -base) for base in bases)
    # Where no record has a timestamp, the first is as new as any.
    start = _start(partition, values, -below, best) if best >= 0 else bases[0]
    found = _search(partition, values, start, values[slots.F_LEO], lambda t: t >= best)
    if found is None:  # compaction has emptied that batch, whose header still says so
        found = _newest_by_headers(partition, values)
    return found if found is not None and found.offset < limit else None


def _newest_by_headers(partition: Partition, values: Values) -> Found | None:
    """As `newest`, without the help of indexes: they count batches that have no records left."""
    first = partition.bases(values[slots.F_ACTIVE_BASE], values[slots.F_GENERATION])[0]
    heads = read.batches_from(partition, values, first, values[slots.F_LEO])
    best, below = max(((head[8], -head[0]) for head in heads if head[12]), default=(-1, -first))
    return _search(partition, values, -below, values[slots.F_LEO], lambda t: t >= best)


def _largest(partition: Partition, values: Values, base: int) -> int:
    """The largest timestamp of the segment, -1 when no record has one."""
    if base == values[slots.F_ACTIVE_BASE]:
        return values[slots.F_MAX_TIMESTAMP] if values[slots.F_ACTIVE_SIZE] else -1
    index = partition.sealed(base).time_index
    return index.last(index.entries)[0]


def _start(partition: Partition, values: Values, base: int, timestamp: int) -> int:
    """An offset in the segment before which every record is older than `timestamp`."""
    if base == values[slots.F_ACTIVE_BASE]:
        files = partition.active(base, values[slots.F_GENERATION])
        time, before = files.time.before(timestamp, values[slots.F_TIME_ENTRIES])
    else:
        index = partition.sealed(base).time_index
        time, before = index.before(timestamp, index.entries)
    if before and base + before >= values[slots.F_LOG_START]:
        _check_entry(partition, values, base, base + before, time)
    return base + before


def _check_entry(partition: Partition, values: Values, base: int, offset: int, time: int) -> None:
    """DamagedIndex unless `time` is the largest timestamp of the batch at `offset`, as the time index says."""
    head = None
    if offset < values[slots.F_LEO] and partition.segment_of(offset, values) == base:
        _, position = read.locate(partition, values, offset)
        file, end, _ = read.extent(partition, values, base, values[slots.F_LEO])
        head = next((head for _, head in read.batch_headers(file, position, end)), None)
    if head is None or head[0] > offset or (head[3] == 2 and head[8] != time):
        raise partition.damaged(base, f"the time index of segment {base} is wrong about offset {offset}")


def _search(
    partition: Partition, values: Values, start: int, limit: int, wanted: Callable[[int], bool]
) -> Found | None:
    """The first record in [start, limit) whose timestamp is `wanted`."""
    offset = start
    while offset < limit:
        base, position = read.locate(partition, values, offset)
        file, end, following = read.extent(partition, values, base, limit)
        for at, header in read.batch_headers(file, position, end):
            if wanted(header[8]):
                size = header[1] + LOG_OVERHEAD
                found = _in_batch(FileSlice(file, at, size).read(), header, start, limit, wanted)
                if found is not None:
                    return found
        if following <= offset:
            break
        offset = following
    return None


def _in_batch(
    batch: bytes, header: tuple[int, ...], start: int, limit: int, wanted: Callable[[int], bool]
) -> Found | None:
    from odradek.protocol.records import batch_v2, codecs
    from odradek.protocol.records.errors import RecordError

    try:
        for offset, timestamp, *_ in batch_v2.iterate(batch, codecs.WORKER_LIMIT):
            if start <= offset < limit and wanted(timestamp):
                return Found(timestamp, offset, header[2])
    except RecordError:  # its producer's fault: nothing is skipped when all of it is read
        return Found(header[8], max(start, header[0]), header[2])
    return None
