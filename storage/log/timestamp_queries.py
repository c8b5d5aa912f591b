"""Offsets by timestamp (ListOffsets): the first record at or after a timestamp, and the newest record.

Indexes narrow the search to one batch; only that one is opened. Record timestamps of a compressed batch are inside it.

A log may have ten thousand segments, a segment a million batches whose times do not rise, a batch a hundred thousand
records. So a query runs in steps of bounded work, each on the slot's current fields, and the caller does other work
between them. Meanwhile segments are rolled, deleted and compacted. Between steps a query keeps an offset below which
nothing is left to check, and that stays valid: deletion and compaction remove records, appends go behind it. After a
truncation it may be invalid; a truncation follows a change of the leader epoch, or lowers the log end, and then the
query restarts. A step that raises keeps nothing and can be repeated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from odradek.ipc import slots
from odradek.protocol.batch import LOG_OVERHEAD
from odradek.protocol.wire import INT64_MAX
from odradek.storage.files.openfile import FileSlice, OpenFile
from odradek.storage.log import read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from odradek.protocol.records.batch_v2 import Record
    from odradek.storage.log.partition import Partition
    from odradek.storage.log.read import Values

SEGMENTS, BATCHES, RECORDS = 32, 2048, 4096  # checked in one step: a few milliseconds each
_WALKED = 1 << 16  # bytes at a segment's end that may hold a larger timestamp than its time index
_LAST_OFFSET = INT64_MAX


class TimestampAndOffset(NamedTuple):
    """A record's timestamp (ms), offset, and the leader epoch it was written in."""

    timestamp: int
    offset: int
    leader_epoch: int


class TimestampQuery(ABC):
    """One query by timestamp. `found` is the answer once `step` returns True; None if there is no such record."""

    def __init__(self) -> None:
        self.found: TimestampAndOffset | None = None
        self._epoch: int | None = None  # None before the first step: LeaderAndIsr may contain any number
        self._end = 0

    def step(self, partition: Partition, values: Values, limit: int) -> bool:
        """Run one step; returns whether it was the last. `values`: the slot's fields, read just now.

        Only a record below offset `limit` is an answer. FileNotFoundError: read the slot again and repeat the step.
        """
        if values[slots.F_LEADER_EPOCH] != self._epoch or values[slots.F_LEO] < self._end:
            self._start()
        self._epoch, self._end = values[slots.F_LEADER_EPOCH], values[slots.F_LEO]
        return self._search_some(partition, values, limit)

    @abstractmethod
    def _start(self) -> None:
        """Reset the state kept between steps."""

    @abstractmethod
    def _search_some(self, partition: Partition, values: Values, limit: int) -> bool:
        """Run one `step`."""


class OffsetForTimestamp(TimestampQuery):
    """The first record whose timestamp is at least `timestamp`."""

    def __init__(self, timestamp: int) -> None:
        super().__init__()
        self._timestamp = timestamp

    def _start(self) -> None:
        self._next = 0  # every record below this offset is older
        self._last = False  # nothing is left to check behind it
        self._search: _Search | None = None  # in the segment that ends there

    def _search_some(self, partition: Partition, values: Values, limit: int) -> bool:
        if self._search is None:
            self._pass_segments(partition, values, limit)
        elif self._search.step(partition, values, values[slots.F_LOG_START]):
            self.found, self._search = self._search.found, None
        return self.found is not None or (self._last and self._search is None)

    def _pass_segments(self, partition: Partition, values: Values, limit: int) -> None:
        """Skip segments whose records are all older, up to the first other segment."""
        for base, end in _segments(partition, values, self._next):
            upto, search = min(end, limit), None
            if base < limit and _largest(partition, values, base) >= self._timestamp:
                start = max(self._next, _start(partition, values, base, self._timestamp))
                search = _Search(self._timestamp, start, upto)
            self._next, self._last, self._search = upto, end >= min(limit, values[slots.F_LEO]), search
            if search is not None or self._last:
                break


class MaxTimestamp(TimestampQuery):
    """The first record with the largest timestamp in the log's files (KIP-734).

    As in Kafka it may lie below the log start, in a segment that DeleteRecords has left: no index has the largest
    timestamp of the records above the log start alone. None also when it is not below the limit.
    """

    def _start(self) -> None:
        self._phase: Callable[[Partition, Values], bool] = self._compare_segments
        self._search: _Search | None = None
        self._next, self._best = 0, (-1, 0)  # the largest timestamp below that offset, and minus its segment's base
        self._batches: _Batches | None = None
        self._generation = -1  # of the files that it searches

    def _search_some(self, partition: Partition, values: Values, limit: int) -> bool:
        if self._search is None:
            return self._phase(partition, values)
        if not self._search.step(partition, values, _first(partition, values)):
            return False
        found, self._search = self._search.found, None
        if found is not None:
            self.found = found if found.offset < limit else None
            return True
        if self._batches is not None and self._generation != values[slots.F_GENERATION]:
            self._start()  # the record was deleted meanwhile
            return False
        return self._batches is not None

    def _compare_segments(self, partition: Partition, values: Values) -> bool:
        some = list(_segments(partition, values, self._next))
        self._best = max([self._best, *((_largest(partition, values, base), -base) for base, _ in some)])
        self._next = some[-1][1]
        if self._next >= values[slots.F_LEO]:
            self._search_segment(partition, values)
        return False

    def _search_segment(self, partition: Partition, values: Values) -> None:
        """Search the best segment; if no record has a timestamp, the first record is the newest."""
        (best, below), first = self._best, _first(partition, values)
        base, end = next(_segments(partition, values, -below)) if best >= 0 else (first, values[slots.F_LEO])
        start = _start(partition, values, base, best) if base == -below and best >= 0 else base
        self._search = _Search(best, start, end)
        self._phase = self._compare_batches
        self._next, self._best, self._generation = values[slots.F_LEO], (-1, -first), values[slots.F_GENERATION]

    def _compare_batches(self, partition: Partition, values: Values) -> bool:
        """Search without indexes: compaction has emptied the batch that they, and its header, still refer to."""
        if self._batches is None:
            self._batches = _Batches(_first(partition, values), self._next)
        heads = [head for _, _, head in self._batches.some(partition, values, _first(partition, values))]
        self._best = max([self._best, *((head[8], -head[0]) for head in heads if head[12])])
        if self._batches.over:
            best, below = self._best
            self._search = _Search(best, -below, self._next)
        return False


class _Batches:
    """The headers of the batches with records in [start, end), BATCHES at a time."""

    def __init__(self, start: int, end: int) -> None:
        self._at = start
        self._end = end
        self._segment = (-1, 0)  # the generation of the files and the segment read last
        self._position = -1  # position of `_at` in that segment; -1: unknown

    @property
    def over(self) -> bool:
        """Whether none is left."""
        return self._at >= self._end

    def some(
        self, partition: Partition, values: Values, lowest: int
    ) -> list[tuple[OpenFile, int, tuple[int, ...]]]:  # fmt: skip
        """The next batches, as file, position and header; those below offset `lowest` are deleted."""
        at = max(self._at, lowest)
        if at >= self._end:
            self._at = at
            return []
        base, start = self._located(partition, values, at)
        file, stop, following = read.extent(partition, values, base, self._end)
        found = [(file, position, head) for position, head in islice(read.batch_headers(file, start, stop), BATCHES)]
        self._segment, self._position = (values[slots.F_GENERATION], base), -1
        if len(found) == BATCHES:
            self.skip_past(*found[-1][1:])
        else:
            self._at = following if following > at else self._end
        return found

    def _located(self, partition: Partition, values: Values, at: int) -> tuple[int, int]:
        generation, base = self._segment
        known = self._position >= 0 and at == self._at and generation == values[slots.F_GENERATION]
        if known and partition.segment_of(at, values) == base:
            return base, self._position
        return read.locate(partition, values, at)

    def skip_past(self, position: int, head: tuple[int, ...]) -> None:
        """Continue after the batch at `position`, one of the last `some`."""
        self._at, self._position = head[0] + head[6] + 1, position + head[1] + LOG_OVERHEAD


class _Search:
    """Search for the first record in [start, end) that is not older than `timestamp`; `found` once `step` is True."""

    def __init__(self, timestamp: int, start: int, end: int) -> None:
        self.found: TimestampAndOffset | None = None
        self._timestamp = timestamp
        self._end = end
        self._batches = _Batches(start, end)
        self._records: Iterator[Record] | None = None  # the remaining records of the open batch
        self._head: tuple[int, ...] = ()

    def step(self, partition: Partition, values: Values, lowest: int) -> bool:
        """Run one step; returns whether the search is over. Records below offset `lowest` are deleted."""
        from odradek.protocol.records.errors import RecordError

        try:
            if self._records is None:
                self._open_next(partition, values, lowest)
            elif self._look_inside(lowest):
                self._records = None
        except RecordError:  # the producer's fault: a consumer that reads the whole batch skips nothing
            self.found = TimestampAndOffset(self._head[8], max(lowest, self._head[0]), self._head[2])
        return self.found is not None or (self._records is None and self._batches.over)

    def _open_next(self, partition: Partition, values: Values, lowest: int) -> None:
        """Open the next batch whose header promises such a record."""
        from odradek.protocol.records import batch_v2, codecs

        for file, position, head in self._batches.some(partition, values, lowest):
            if head[8] >= self._timestamp:
                self._batches.skip_past(position, head)
                self._head = head
                data = FileSlice(file, position, head[1] + LOG_OVERHEAD).read()
                self._records = batch_v2.iterate(data, codecs.WORKER_LIMIT)
                break

    def _look_inside(self, lowest: int) -> bool:
        """Check some records of the batch; returns whether those were the last."""
        assert self._records is not None
        looked_at = 0
        for offset, timestamp, *_ in islice(self._records, RECORDS):
            looked_at += 1
            if lowest <= offset < self._end and timestamp >= self._timestamp:
                self.found = TimestampAndOffset(timestamp, offset, self._head[2])
                break
        return looked_at < RECORDS


def _segments(partition: Partition, values: Values, at: int) -> Iterator[tuple[int, int]]:
    """Base and end offset of some segments, starting with the one that holds offset `at`."""
    bases = partition.bases(values[slots.F_ACTIVE_BASE], values[slots.F_GENERATION])
    first = max(0, bisect_right(bases, at) - 1)
    some = bases[first : first + SEGMENTS + 1]
    return islice(zip(some, [*some[1:], values[slots.F_LEO]], strict=True), SEGMENTS)


def _first(partition: Partition, values: Values) -> int:
    """The offset at which the files begin."""
    return partition.bases(values[slots.F_ACTIVE_BASE], values[slots.F_GENERATION])[0]


def _largest(partition: Partition, values: Values, base: int) -> int:
    """The largest timestamp of the segment, -1 when no record has one."""
    if base == values[slots.F_ACTIVE_BASE]:
        return values[slots.F_MAX_TIMESTAMP] if values[slots.F_ACTIVE_SIZE] else -1
    known = partition.largest.get(base)
    if known is None:
        known = partition.largest[base] = _checked_largest(partition, base)
    return known


def _checked_largest(partition: Partition, base: int) -> int:
    """The largest timestamp by a sealed segment's time index; DamagedIndex if batches at the end have a larger one."""
    segment = partition.sealed(base)
    newest, relative = segment.time_index.last(segment.time_index.entries)
    index, entries = segment.index, segment.index.entries
    start = index.position_before(relative, entries)
    start = max(start, index.boundary_before(max(segment.size - _WALKED, 0), entries))
    if start:
        read.check_entry(partition, base, segment.file, start, segment.size, _LAST_OFFSET)
    heads = read.batch_headers(segment.file, start, segment.size)
    if any(head[3] == 2 and head[8] > newest for _, head in heads):
        raise partition.damaged(base, f"the time index of segment {base} lacks its largest timestamp")
    return newest


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
