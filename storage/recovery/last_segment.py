"""The last segment of a trusted log after a clean stop: its indexes, and the batches past their end.

This reads only that end, however large the segment is. Caller owns the directory alone; nothing is written.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from odradek.storage.files import names
from odradek.storage.files.durable import FILES, read_file
from odradek.storage.recovery import sealed_segment
from odradek.storage.recovery.rebuild import Scanned
from odradek.storage.segment import index_files
from odradek.storage.segment.index import MAX_RELATIVE
from odradek.storage.segment.index_files import NO_TIMESTAMP, OffsetPosition
from odradek.storage.segment.scan import Scan


def looks_right(directory: Path, bases: Sequence[int], size: int, gaps_upto: int) -> bool:
    """Whether the indexes end at batches that lead to the log's end, and have the largest timestamp.

    The rows of the transaction index must be right as well. `bases` are the log's; this checks the last one.
    """
    base, end = bases[-1], bases[-1] + MAX_RELATIVE + 1
    if not index_files.indexes_look_right(directory, base, size, end):
        return False
    ends = sealed_segment.ends_right(directory, base, size, end, sealed=False)
    return ends and sealed_segment.rows_right(directory, bases, base, end, gaps_upto)


def as_it_is(directory: Path, base: int, size: int, interval: int) -> Scanned:
    """The result that a scan of the whole segment would give."""
    view = Scanned(base, index_files.IndexBuilder(base, interval), size, base)
    view.first_timestamp = _first_timestamp(directory, base)
    offset_path = names.segment_path(directory, base, names.INDEX)
    time_path = names.segment_path(directory, base, names.TIME_INDEX)
    last = index_files.last_time_entry(time_path, base)
    view.indexes.adopt(read_file(offset_path), read_file(time_path), _last_entry(directory, base), last)
    _walk_tail(directory, view)
    return view


def _last_entry(directory: Path, base: int) -> OffsetPosition | None:
    return index_files.last_offset_entry(names.segment_path(directory, base, names.INDEX), base)


def _first_timestamp(directory: Path, base: int) -> int:
    with FILES.opened(names.segment_path(directory, base), os.O_RDONLY) as fd:
        first = next(iter(Scan(fd, check=False)), None)
    return NO_TIMESTAMP if first is None else first.max_timestamp


def _walk_tail(directory: Path, view: Scanned) -> None:
    """Adds to `view` the batches from its last index entry, whose timestamps may not be in an index yet."""
    with FILES.opened(names.segment_path(directory, view.base), os.O_RDONLY) as fd:
        for batch in Scan(fd, view.indexes.last_indexed, check=False):
            view.indexes.record_timestamp(batch.max_timestamp, batch.last_offset)
            view.next_offset = batch.last_offset + 1
