"""Lookups in a segment's sparse indexes.

Layout    : Kafka's. .index: 8-byte entries, u32 offset relative to the segment's base, u32 position of the batch whose
            last offset that is. .timeindex: 12-byte entries, i64 largest timestamp so far, u32 relative offset.
            Big-endian, rising.
Owner     : the partition (storage.log.partition).
Writers   : the process that holds the partition's lock, at the end of the active segment's indexes; sealed indexes
            never change.
Lock      : none to read: the slot's counters say how many entries are whole.
Crash rule: entries past the published count are garbage and are overwritten; indexes can be rebuilt from the log.

Bisection reads only the elements it compares: numpy's searchsorted would copy a whole big-endian column at each call,
and importing numpy costs a worker 0.18 CPU s during its clients' requests. Nothing is mapped: when a file is truncated,
or its disk fails, access to a map raises SIGBUS, which ends the process. A reader caches the entries it has read of the
active segment's offset index, 8 bytes each, since published entries never change.
"""

from __future__ import annotations

import os
import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Any

from odradek.protocol.wire import INT32_MAX
from odradek.storage.files.openfile import OpenFile

OFFSET_ENTRY = struct.Struct(">II")
TIME_ENTRY = struct.Struct(">qI")
MAX_RELATIVE = INT32_MAX  # the largest distance of an offset from its segment's base
Fail = Callable[[str], Exception]
"""Makes the error for a file that ends before a published entry, from the reason."""


_U32 = struct.Struct(">I")
_I64 = struct.Struct(">q")


class _Column:
    """One field of an index as a sequence for bisect."""

    __slots__ = ("_at", "_fail", "_fd", "_field", "_size")

    def __init__(self, fd: int, field: struct.Struct, size: int, at: int, fail: Fail) -> None:
        self._fd, self._field, self._size, self._at, self._fail = fd, field, size, at, fail

    def __getitem__(self, row: int) -> int:
        data = os.pread(self._fd, self._field.size, row * self._size + self._at)
        if len(data) < self._field.size:
            raise self._fail(f"the index ends before entry {row}")
        fields: tuple[int] = self._field.unpack(data)
        return fields[0]


def _opened(path: str, entry: struct.Struct, fail: Fail) -> tuple[OpenFile | None, int]:
    """A sealed index (None if it is empty) and its number of entries."""
    file = OpenFile(path)
    entries, left = divmod(os.fstat(file.fd).st_size, entry.size)
    if left:
        raise fail(f"the index ends amid entry {entries}")
    return file if entries else None, entries


class OffsetIndex:
    """Positions by offset. `entries` of the active segment comes from the slot; a sealed one knows its own."""

    def __init__(self, path: str, fd: int = -1, fail: Fail = EOFError) -> None:
        self.entries = 0
        self._keys: Any = array("I")
        self._positions: Any = array("I")
        self._fd = fd
        self._fail = fail
        if fd < 0:
            self._file, self.entries = _opened(path, OFFSET_ENTRY, fail)
            fd = self._file.fd if self._file is not None else -1
            self._keys = _Column(fd, _U32, OFFSET_ENTRY.size, 0, fail)
            self._positions = _Column(fd, _U32, OFFSET_ENTRY.size, _U32.size, fail)

    def _read_on(self, entries: int) -> None:
        """Read the entries added to the active segment's index since the last read."""
        known = len(self._keys)
        while known < entries:
            data = array("I", os.pread(self._fd, (entries - known) * OFFSET_ENTRY.size, known * OFFSET_ENTRY.size))
            data.byteswap()
            self._keys.extend(data[0::2])
            self._positions.extend(data[1::2])
            if len(data) < 2:
                raise self._fail(f"the index ends after {known} of {entries} entries")
            known = len(self._keys)

    def position_before(self, relative: int, entries: int) -> int:
        """The position to scan from for `relative`: the last indexed batch that ends at or before it, else 0."""
        if self._fd >= 0:
            self._read_on(entries)
        row = bisect_right(self._keys, relative, 0, entries) - 1
        return int(self._positions[row]) if row >= 0 else 0

    def ending_before(self, relative: int, entries: int) -> tuple[int, int, int]:
        """The number of indexed batches that end before `relative`, and the last one's position and last offset.

        (0, 0, -1) when there is none.
        """
        if self._fd >= 0:
            self._read_on(entries)
        row = bisect_left(self._keys, relative, 0, entries)
        return (row, int(self._positions[row - 1]), int(self._keys[row - 1])) if row else (0, 0, -1)

    def boundary_before(self, position: int, entries: int) -> int:
        """The last indexed batch start at or before `position`, else 0."""
        if self._fd >= 0:
            self._read_on(entries)
        row = bisect_right(self._positions, position, 0, entries) - 1
        return int(self._positions[row]) if row >= 0 else 0


class TimeIndex:
    """Offsets by timestamp."""

    def __init__(self, path: str, fd: int = -1, fail: Fail = EOFError) -> None:
        self.entries = 0
        if fd < 0:
            self._file, self.entries = _opened(path, TIME_ENTRY, fail)
            fd = self._file.fd if self._file is not None else -1
        self._times: Any = _Column(fd, _I64, TIME_ENTRY.size, 0, fail)
        self._offsets: Any = _Column(fd, _U32, TIME_ENTRY.size, _I64.size, fail)

    def before(self, timestamp: int, entries: int) -> tuple[int, int]:
        """The last entry older than `timestamp` (ms): its time, and a relative offset before which all are older.

        (-1, 0) when there is none.
        """
        row = bisect_left(self._times, timestamp, 0, entries) - 1
        return (int(self._times[row]), int(self._offsets[row])) if row >= 0 else (-1, 0)

    def upto(self, relative: int, entries: int) -> int:
        """The number of entries with an offset up to `relative`."""
        return bisect_right(self._offsets, relative, 0, entries)

    def last(self, entries: int) -> tuple[int, int]:
        """(largest timestamp, relative offset) of the last entry, (-1, 0) when there is none."""
        if not entries:
            return -1, 0
        return int(self._times[entries - 1]), int(self._offsets[entries - 1])
