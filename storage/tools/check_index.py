"""Verifies a segment's index files against its batches, in the one pass that reads them.

An entry of the offset index must point to the start of a batch and have that batch's last offset; an
entry of the time index must have a batch's last offset and its largest timestamp. Both
rise strictly, and a sealed segment's time index ends with the segment's largest timestamp.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from struct import Struct
from typing import TypeVar

from odradek.storage.files import names
from odradek.storage.files.faults import Fault
from odradek.storage.segment import index_files
from odradek.storage.segment.index_files import OFFSET_ENTRY, TIME_ENTRY, OffsetPosition, TimestampOffset
from odradek.storage.segment.scan import Batch

Entry = TypeVar("Entry", OffsetPosition, TimestampOffset)


class IndexCheck:
    """Both indexes of the segment at `base`: first `files`, then `batch` for each in order, then `end`."""

    def __init__(self, directory: Path, base: int) -> None:
        self.base = base
        self.offset_path = names.segment_path(directory, base, names.INDEX)
        self.time_path = names.segment_path(directory, base, names.TIME_INDEX)
        self.offsets: list[OffsetPosition] = []
        self.times: list[TimestampOffset] = []
        self._next_offset_entry = self._next_time_entry = 0

    def files(self) -> Iterator[Fault]:
        """Faults of the index files alone."""
        yield from self._read(self.offset_path, OFFSET_ENTRY, index_files.read_offset_index, self.offsets)
        yield from self._read(self.time_path, TIME_ENTRY, index_files.read_time_index, self.times)

    def _read(
        self, path: Path, entry: Struct, read: Callable[[Path, int], list[Entry]], into: list[Entry]
    ) -> Iterator[Fault]:
        try:
            size = os.stat(path).st_size
            into += read(path, self.base)
        except FileNotFoundError:
            yield Fault(path, "is missing")
            return
        if size % entry.size:
            yield Fault(path, f"{size} bytes are not whole entries of {entry.size}")
        yield from _not_rising(path, into)

    def batch(self, batch: Batch) -> Iterator[Fault]:
        """Faults of the entries that should point to this batch or before it."""
        offsets, times = self.offsets, self.times
        while self._next_offset_entry < len(offsets) and offsets[self._next_offset_entry].position <= batch.position:
            yield from self._offset_entry(offsets[self._next_offset_entry], batch)
            self._next_offset_entry += 1
        while self._next_time_entry < len(times) and times[self._next_time_entry].offset <= batch.last_offset:
            yield from self._time_entry(times[self._next_time_entry], batch)
            self._next_time_entry += 1

    def _offset_entry(self, entry: OffsetPosition, batch: Batch) -> Iterator[Fault]:
        if entry.position < batch.position:
            yield Fault(self.offset_path, f"{_words(entry)}: no batch begins there")
        elif entry.offset != batch.last_offset:
            yield Fault(self.offset_path, f"{_words(entry)}: the batch there ends at offset {batch.last_offset}")

    def _time_entry(self, entry: TimestampOffset, batch: Batch) -> Iterator[Fault]:
        # Kafka before 3.8 may name the record with the timestamp instead of the batch's last.
        if entry.offset < batch.base_offset and batch.magic == 2:
            yield Fault(self.time_path, f"{_words(entry)}: there is no such offset")
        elif entry.timestamp != batch.max_timestamp:
            yield Fault(self.time_path, f"{_words(entry)}: the batch's largest timestamp is {batch.max_timestamp}")

    def end(self, sealed: bool, max_timestamp: int) -> Iterator[Fault]:
        """Faults that show only after the last batch; `max_timestamp` is the segment's."""
        for entry in self.offsets[self._next_offset_entry :]:
            yield Fault(self.offset_path, f"{_words(entry)}: past the end of the log")
        for time in self.times[self._next_time_entry :]:
            yield Fault(self.time_path, f"{_words(time)}: past the end of the log")
        last = self.times[-1].timestamp if self.times else -1
        if sealed and self.time_path.exists() and last < max_timestamp:
            yield Fault(self.time_path, f"ends with timestamp {last}, but the segment's largest is {max_timestamp}")


def _not_rising(path: Path, entries: Sequence[tuple[int, int]]) -> Iterator[Fault]:
    for before, entry in pairwise(entries):
        if not (entry[0] > before[0] and entry[1] > before[1]):
            yield Fault(path, f"{_words(entry)} comes after {_words(before)}")


def _words(entry: tuple[int, int]) -> str:
    if isinstance(entry, OffsetPosition):
        return f"entry of offset {entry.offset} at byte {entry.position}"
    return f"entry of timestamp {entry[0]} at offset {entry[1]}"
