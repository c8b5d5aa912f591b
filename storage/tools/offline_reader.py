"""Reading a partition's segments from a process outside the broker: it has neither slots nor locks.

Layout    : storage.files.names.
Owner     : the broker. A reader only reads, and only records below an offset from the leader (the high watermark, or
            the last stable offset): they are never cut off, and their bytes never change.
Lock      : none. A reader may rely on these facts:
            - The bytes of a sealed segment never change: compaction and truncation replace its files (storage.log.swap,
              storage.log.truncate). The active one only grows behind the leader's offset; a process that dies in an
              append leaves garbage behind it, never before. So an open file stays valid, also when its name is gone.
            - Names change under the partition's lock, several one after the other, at times unknown to a reader. But
              a rename sets the directory's modification time. If that has not changed for longer than the kernel's
              clock tick, before the read and during it, all files found by name belong together: the list of segments,
              the log, its index, the rows of aborted transactions.
            - A process that dies, or is held up, between two renames leaves a directory that does not change, and is
              wrong. Both cases are visible. While compaction moves in there is a `.swap` from its first rename to its
              last. A segment that retention deletes loses its `.index` first, and its log start was published before.
            - A directory loses its name once: it becomes -delete or -stray. A reader keeps the directory open and
              rejects all data unless the name still leads to it; otherwise half of a topic being deleted, or another
              topic of the same name, could pass for the log.
Crash rule: a directory that keeps changing (or whose broker died in a swap) is `DirectoryChanging` after two seconds.

Records that DeleteRecords removed from the log's first segment are still in the file: only the leader knows.
Nothing is mapped: if the disk fails, or a file is cut, a read raises OSError or is short, but a map raises SIGBUS.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from odradek.storage.files import names
from odradek.storage.files.names import SegmentFile
from odradek.storage.files.openfile import OpenFile
from odradek.storage.producers.producer_state import AbortedTxn, read_txn_index
from odradek.storage.segment.index import OFFSET_ENTRY, OffsetIndex

_QUIET_NS = 25_000_000  # a change gets the time of the last tick: 10 ms ago at most (HZ=100)
_PAUSE = 0.005  # s between checks
_TIMEOUT = 2.0  # s; renames take milliseconds


class DirectoryChanging(OSError):
    """The directory is not, or not yet, in a readable state."""


class OffsetBelowLogStart(Exception):
    """The log begins at `first`, after the requested offset."""

    def __init__(self, first: int) -> None:
        super().__init__(first)
        self.first = first


class Segment(NamedTuple):
    """An open segment. `following`: the base of the next one, None in the last; `position`: of a batch at or before
    the requested offset; `aborted`: the log's known aborted transactions, by their first offsets."""

    base: int
    following: int | None
    file: OpenFile
    position: int
    aborted: list[AbortedTxn]


class DirectoryContents(NamedTuple):
    """A directory's contents after its last change at `changed`, in ns: segment bases, rising, and `aborted`."""

    changed: int
    bases: list[int]
    aborted: list[AbortedTxn]


class OfflineReader:
    """The partition directory at `path`; OSError if it cannot be opened. Closes with its last reference.

    `committed`: read aborted transactions too, at least those that were decided when this object was made.
    """

    def __init__(self, path: str, committed: bool = False) -> None:
        self._path = path
        self._committed = committed
        self._directory = OpenFile(path, os.O_RDONLY | os.O_DIRECTORY)
        self._listing = DirectoryContents(-1, [], [])

    def segment(self, offset: int) -> Segment:
        """The segment that holds `offset`, or would if compaction had not removed it.

        Raises OffsetBelowLogStart; DirectoryChanging or another OSError if the directory is no longer usable.
        """
        end = time.monotonic() + _TIMEOUT
        while True:
            changed = os.fstat(self._directory.fd).st_mtime_ns
            if time.time_ns() - changed > _QUIET_NS:
                found = self._find(offset, changed)
                if self._is_unchanged(changed) and found is not None:
                    return _segment_or_begins(found)
            if time.monotonic() > end:
                raise DirectoryChanging(f"{self._path} keeps changing")
            time.sleep(_PAUSE)

    def _is_unchanged(self, changed: int) -> bool:
        """Whether no file was renamed since `changed`; DirectoryChanging when the directory itself was."""
        now = os.fstat(self._directory.fd)
        if not os.path.samestat(now, os.stat(self._path)):
            raise DirectoryChanging(f"{self._path} was replaced by another directory")
        return now.st_mtime_ns == changed

    def _find(self, offset: int, changed: int) -> Segment | int | None:
        """The segment at the moment; the log's beginning if that is after `offset`; None to try again."""
        if self._listing.changed != changed:
            self._listing = self._list(changed)
        bases = self._listing.bases
        if not bases or offset < bases[0]:
            return bases[0] if bases else None
        at = bisect_right(bases, offset)
        base, following = bases[at - 1], bases[at] if at < len(bases) else None
        try:
            file, position = OpenFile(self._file(base, names.LOG)), self._position(base, offset)
        except FileNotFoundError:
            return None
        return Segment(base, following, file, position, self._listing.aborted)

    def _list(self, changed: int) -> DirectoryContents:
        """List the directory, once until the next rename: there may be thousands of segments to look up."""
        files = set(names.all_segment_files(self._path))
        indexes = [one.offset for one in files if one.kind == names.TXN_INDEX and not one.mark and self._committed]
        rows = [row for base in indexes for row in read_txn_index(self._file(base, names.TXN_INDEX))]
        return DirectoryContents(changed, _bases(files), sorted(rows, key=lambda row: row.first_offset))

    def _file(self, base: int, kind: str) -> str:
        return os.path.join(self._path, names.offset_name(base) + kind)

    def _position(self, base: int, offset: int) -> int:
        """The position by the index. It is read, not mapped: the active segment's may be cut. Its last entries may be
        garbage, or of unpublished batches: all behind the leader's offset."""
        if offset == base:
            return 0
        index = OpenFile(self._file(base, names.INDEX))
        entries = os.fstat(index.fd).st_size // OFFSET_ENTRY.size
        return OffsetIndex("", index.fd).position_before(offset - base, entries)


def _segment_or_begins(found: Segment | int) -> Segment:
    if isinstance(found, int):
        raise OffsetBelowLogStart(found)
    return found


def _bases(files: Iterable[SegmentFile]) -> list[int]:
    """Base offsets of the segments, rising; [] while compaction moves in."""
    known = set(files)
    if any(file.mark == names.SWAP for file in known):
        return []
    logs = (file.offset for file in known if file.kind == names.LOG and not file.mark)
    return sorted(base for base in logs if not _is_being_deleted(known, base))


def _is_being_deleted(files: set[SegmentFile], base: int) -> bool:
    """Whether retention has begun to delete the segment."""
    return SegmentFile(base, names.INDEX, names.DELETED) in files and SegmentFile(base, names.INDEX) not in files
