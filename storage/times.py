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
        largest, before = _time_index(partition, values, base, timestamp)
        if largest < timestamp:
            continue
        start = max(base + before, values[slots.F_LOG_START])
        found = _search(partition, values, start, limit, lambda t: t >= timestamp)
        if found is not None:
            return found
    return None


def newest(partition: Partition, values: Values, limit: int) -> Found | None:
    """The first record with the largest timestamp in the log's files (KIP-734); None when they are empty.

    As with Kafka that may be one below the log start, of a segment that DeleteRecords has left: no index knows the
    largest timestamp of what is behind it.
    """
    bases = partition.bases(values[slots.F_ACTIVE_BASE], values[slots.F_GENERATION])
    best, best_base, best_before = -1, bases[0], 0  # where no record has a timestamp, the first is as new as any
    for base in bases:
        largest, _ = _time_index(partition, values, base, 0)
        if largest > best:
            best, best_base = largest, base
            best_before = _time_index(partition, values, base, largest)[1]
    return _search(partition, values, best_base + best_before, limit, lambda t: t >= best)


def _time_index(partition: Partition, values: Values, base: int, timestamp: int) -> tuple[int, int]:
    """(largest timestamp of the segment, relative offset before which every record is older than `timestamp`)."""
    if base == values[slots.F_ACTIVE_BASE]:
        if not values[slots.F_ACTIVE_SIZE]:
            return -1, 0  # perhaps without files yet
        files = partition.active(base, values[slots.F_GENERATION])
        return values[slots.F_MAX_TIMESTAMP], files.time.offset_before(timestamp, values[slots.F_TIME_ENTRIES])
    index = partition.sealed(base).time_index
    return index.last(index.entries)[0], index.offset_before(timestamp, index.entries)


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
