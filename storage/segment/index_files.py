"""The sparse index files of a segment: offset → position, and timestamp → offset.

    .index       8 bytes per entry:  last offset of a batch − base offset i, position of that batch i
    .timeindex   12 bytes per entry: largest timestamp so far q, last offset of its batch − base i

Big-endian, both rising. A batch gets an entry when more than `index.interval.bytes` were written
since the last entry's batch began; the time index gets one along with it if the timestamp grew, and
a last one with the segment's maximum when the segment is closed. `.txnindex` is in `producers`.

Owner: the process that holds the partition's lock. Apache Kafka preallocates the active segment's indexes
(10 MB) and trims them when it closes, so after its crash they end in zeros. Crash rule: indexes are
disposable; an implausible one is rebuilt from the log.
"""

from __future__ import annotations

import os
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from odradek.storage.files import names
from odradek.storage.files.durable import FILES, Files, StrPath, pread_exact, read_file, replace

OFFSET_ENTRY = Struct(">ii")
TIME_ENTRY = Struct(">qi")
NO_TIMESTAMP = -1


class IndexBuilder:
    """Builds both indexes from the batches in order, by Kafka's rules. `interval` in bytes."""

    __slots__ = ("_time", "base", "interval", "last_indexed", "max_offset", "max_timestamp", "offsets", "times")

    def __init__(self, base: int, interval: int) -> None:
        self.base = base
        self.interval = interval
        self.offsets = bytearray()
        self.times = bytearray()
        self.last_indexed = 0
        self.max_timestamp = NO_TIMESTAMP
        self.max_offset = base
        self._time = NO_TIMESTAMP

    def add(self, last_offset: int, position: int, max_timestamp: int) -> None:
        """Adds the next batch: its last offset, its position, its largest timestamp (ms)."""
        if max_timestamp > self.max_timestamp:  # note_timestamp, inlined
            self.max_timestamp, self.max_offset = max_timestamp, last_offset
        if position - self.last_indexed > self.interval:
            self.offsets += OFFSET_ENTRY.pack(last_offset - self.base, position)
            self.last_indexed = position
            self.close()

    def close(self) -> None:
        """Makes the time index end with the largest timestamp; the last step for a sealed segment."""
        if self.max_timestamp > self._time:
            self.times += TIME_ENTRY.pack(self.max_timestamp, self.max_offset - self.base)
            self._time = self.max_timestamp

    def record_timestamp(self, timestamp: int, offset: int) -> None:
        """Adds a batch's largest timestamp without making an entry."""
        if timestamp > self.max_timestamp:
            self.max_timestamp, self.max_offset = timestamp, offset

    def adopt(self, offsets: bytes, times: bytes, last: OffsetPosition | None, newest: TimestampOffset | None) -> None:
        """Continues from trusted index files: their contents and their last entries."""
        self.offsets, self.times = bytearray(offsets), bytearray(times)
        if last is not None:
            self.last_indexed = last.position
        if newest is not None:
            self.max_timestamp, self.max_offset = newest
            self._time = newest.timestamp

    def write(self, directory: StrPath, *, files: Files = FILES) -> None:
        """Replaces each of the two index files that differs; not synced, as recovery would rebuild them."""
        for kind, data in ((names.INDEX, self.offsets), (names.TIME_INDEX, self.times)):
            path = names.segment_path(directory, self.base, kind)
            if not _holds(path, data):
                replace(path, data, sync=False, files=files)


def _holds(path: Path, data: bytearray) -> bool:
    try:
        return os.stat(path).st_size == len(data) and read_file(path) == data
    except FileNotFoundError:
        return False


class OffsetPosition(NamedTuple):
    offset: int
    position: int


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int


def read_offset_index(path: StrPath, base: int) -> list[OffsetPosition]:
    """All entries, without a crashed Kafka's trailing zeros and without a partial last entry."""
    data = trim_zeros(read_file(path), OFFSET_ENTRY)
    return [OffsetPosition(base + offset, position) for offset, position in OFFSET_ENTRY.iter_unpack(data)]


def read_time_index(path: StrPath, base: int) -> list[TimestampOffset]:
    """All entries, without a crashed Kafka's trailing zeros and without a partial last entry."""
    data = trim_zeros(read_file(path), TIME_ENTRY)
    return [TimestampOffset(timestamp, base + offset) for timestamp, offset in TIME_ENTRY.iter_unpack(data)]


def trim_zeros(data: bytes, entry: Struct) -> bytes:
    """`data` up to its last non-zero entry, cut to whole entries."""
    used = len(data.rstrip(b"\0"))
    whole = -(-used // entry.size) * entry.size
    return data[: min(whole, len(data) // entry.size * entry.size)]


def last_offset_entry(path: StrPath, base: int) -> OffsetPosition | None:
    """The last entry of an `.index`, None when it has none; FileNotFoundError without the file."""
    data = _last_entry(path, OFFSET_ENTRY)
    if data is None:
        return None
    offset, position = OFFSET_ENTRY.unpack(data)
    return OffsetPosition(base + offset, position)


def last_time_entry(path: StrPath, base: int) -> TimestampOffset | None:
    """The last entry of a `.timeindex`: a sealed segment's largest timestamp. None when empty."""
    data = _last_entry(path, TIME_ENTRY)
    if data is None:
        return None
    timestamp, offset = TIME_ENTRY.unpack(data)
    return TimestampOffset(timestamp, base + offset)


def _last_entry(path: StrPath, entry: Struct) -> bytes | None:
    with FILES.opened(path, os.O_RDONLY) as fd:
        size = os.fstat(fd).st_size // entry.size * entry.size
        return pread_exact(fd, entry.size, size - entry.size) if size else None


def largest_timestamp(directory: StrPath, base: int) -> int:
    """A sealed segment's largest timestamp in ms, for retention.

    From its time index; as in Kafka, the log file's modification time when no record has a timestamp.
    """
    try:
        entry = last_time_entry(names.segment_path(directory, base, names.TIME_INDEX), base)
    except FileNotFoundError:
        entry = None
    if entry is not None and entry.timestamp >= 0:
        return entry.timestamp
    return os.stat(names.segment_path(directory, base)).st_mtime_ns // 1_000_000


def indexes_look_right(directory: StrPath, base: int, log_size: int, next_offset: int) -> bool:
    """A cheap check of a segment's indexes: they exist, have whole entries, and rise to an end within the segment.

    `next_offset` is one past the segment's last offset.
    """
    offset_path = names.segment_path(directory, base, names.INDEX)
    time_path = names.segment_path(directory, base, names.TIME_INDEX)
    try:
        first_at, last_at = _ends(offset_path, OFFSET_ENTRY)
        first_time, last_time = _ends(time_path, TIME_ENTRY)
    except (FileNotFoundError, ValueError):
        return False
    if last_at and not (0 <= last_at[0] < next_offset - base and 0 < last_at[1] < log_size and first_at <= last_at):
        return False
    # An index with a crashed Kafka's zeros ends lower than it begins; a first entry of all zeros may be valid.
    falls = first_time > last_time or (first_time == last_time and os.stat(time_path).st_size > TIME_ENTRY.size)
    return not last_time or (0 <= last_time[1] < next_offset - base and last_time[0] >= 0 and not falls)


def _ends(path: Path, entry: Struct) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The first and the last entry, () when empty; ValueError when the last one is incomplete."""
    with FILES.opened(path, os.O_RDONLY) as fd:
        size = os.fstat(fd).st_size
        if size % entry.size:
            raise ValueError(f"{size} bytes are not whole entries of {entry.size}")
        if not size:
            return (), ()
        first, last = (entry.unpack(pread_exact(fd, entry.size, at)) for at in (0, size - entry.size))
        return first, last
