"""Looking things up in a segment's sparse indexes.

Layout    : Kafka's. .index: 8-byte entries, u32 offset relative to the segment's base, u32 position of the batch whose
            last offset that is. .timeindex: 12-byte entries, i64 largest timestamp so far, u32 relative offset.
            Big-endian, rising.
Owner     : the partition (storage.partition).
Writers   : who holds the partition's lock, at the end of the active segment's indexes; sealed ones never change.
Lock      : none to read: the slot's counters say how many entries are whole.
Crash rule: entries past the published count are garbage and are overwritten; indexes can be rebuilt from the log.

A sealed index is mapped, and bisection reads the elements it looks at: numpy's searchsorted would copy a big-endian
column whole at each call, and importing numpy costs a worker 0.18 CPU s, in the midst of its clients' requests. The
active one grows. Of its offset index a reader keeps what it has read,
8 bytes an entry, since entries once published never change; of its time index it reads single elements.
"""

from __future__ import annotations

import mmap
import os
import struct
from array import array
from bisect import bisect_left, bisect_right
from typing import Any

OFFSET_ENTRY = struct.Struct(">II")
TIME_ENTRY = struct.Struct(">qI")


class _GrowingColumn:
    """One field of a growing index as a sequence for bisect."""

    __slots__ = ("_at", "_fd", "_field", "_size")

    def __init__(self, fd: int, field: struct.Struct, size: int, at: int) -> None:
        self._fd, self._field, self._size, self._at = fd, field, size, at

    def __getitem__(self, row: int) -> int:
        data = os.pread(self._fd, self._field.size, row * self._size + self._at)
        return self._field.unpack(data)[0]


_U32 = struct.Struct(">I")
_I64 = struct.Struct(">q")


class _MappedColumn:
    """One field of a sealed index as a sequence for bisect."""

    __slots__ = ("_at", "_data", "_field", "_size")

    def __init__(self, data: mmap.mmap, field: struct.Struct, size: int, at: int) -> None:
        self._data, self._field, self._size, self._at = data, field, size, at

    def __getitem__(self, row: int) -> int:
        return self._field.unpack_from(self._data, row * self._size + self._at)[0]


def _mapped(path: str, entry: struct.Struct, key: struct.Struct) -> tuple[Any, Any, int]:
    """The two columns of a sealed index, a `key` and an u32 each entry, and its number of entries."""
    with open(path, "rb") as file:
        entries = os.fstat(file.fileno()).st_size // entry.size
        if not entries:
            return (), (), 0
        data = mmap.mmap(file.fileno(), entries * entry.size, access=mmap.ACCESS_READ)
    return _MappedColumn(data, key, entry.size, 0), _MappedColumn(data, _U32, entry.size, key.size), entries


class OffsetIndex:
    """Positions by offset. `entries` of the active segment comes from the slot; a sealed one knows its own."""

    def __init__(self, path: str, fd: int = -1) -> None:
        self.entries = 0
        self._keys: Any = array("I")
        self._positions: Any = array("I")
        self._fd = fd
        if fd < 0:
            self._keys, self._positions, self.entries = _mapped(path, OFFSET_ENTRY, _U32)

    def _read_on(self, entries: int) -> None:
        """Take in the entries that the active segment's index has got since the last look."""
        known = len(self._keys)
        while known < entries:
            data = array("I", os.pread(self._fd, (entries - known) * OFFSET_ENTRY.size, known * OFFSET_ENTRY.size))
            data.byteswap()
            self._keys.extend(data[0::2])
            self._positions.extend(data[1::2])
            if len(data) < 2:
                raise EOFError(f"the index ends after {known} of {entries} entries")
            known = len(self._keys)

    def position_before(self, relative: int, entries: int) -> int:
        """Where to start scanning for `relative`: the last indexed batch that ends at or before it, else 0."""
        if self._fd >= 0:
            self._read_on(entries)
        row = bisect_right(self._keys, relative, 0, entries) - 1
        return int(self._positions[row]) if row >= 0 else 0

    def ending_before(self, relative: int, entries: int) -> tuple[int, int, int]:
        """Of the indexed batches that end before `relative`: how many, position and last offset of the last of them.

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

    def __init__(self, path: str, fd: int = -1) -> None:
        self.entries = 0
        self._times: Any
        self._offsets: Any
        if fd < 0:
            self._times, self._offsets, self.entries = _mapped(path, TIME_ENTRY, _I64)
        else:
            self._times = _GrowingColumn(fd, _I64, TIME_ENTRY.size, 0)
            self._offsets = _GrowingColumn(fd, _U32, TIME_ENTRY.size, 8)

    def before(self, timestamp: int, entries: int) -> tuple[int, int]:
        """The last entry that is older than `timestamp` (ms): its time, and a relative offset before which all are.

        (-1, 0) when there is none.
        """
        row = bisect_left(self._times, timestamp, 0, entries) - 1
        return (int(self._times[row]), int(self._offsets[row])) if row >= 0 else (-1, 0)

    def upto(self, relative: int, entries: int) -> int:
        """How many entries name an offset up to `relative`."""
        return bisect_right(self._offsets, relative, 0, entries)

    def last(self, entries: int) -> tuple[int, int]:
        """(largest timestamp, relative offset) of the last entry, (-1, 0) when there is none."""
        if not entries:
            return -1, 0
        return int(self._times[entries - 1]), int(self._offsets[entries - 1])
