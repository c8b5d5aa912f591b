"""Writing the compacted segment of a group of segments: `.cleaned` files with their indexes.

Owner and permitted writer: the janitor; no process reads them before storage.log.swap renames them. Crash rule:
worthless until then. `finish` syncs everything, as the segments it will replace may have been synced long ago.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from odradek.storage.files import names
from odradek.storage.files.durable import FILES, pread_exact
from odradek.storage.producers.producer_state import AbortedTxn
from odradek.storage.segment.index_files import IndexBuilder

_COPIED_AT_ONCE = 1 << 20


class Piece(NamedTuple):
    """Bytes of whole batches; `rows` are their last offsets, sizes and largest timestamps."""

    data: bytes | memoryview
    rows: list[tuple[int, int, int]]


class CleanedSegment:
    """The new segment at `base`; `interval` is index.interval.bytes.

    `source` is the log file of the only segment that it replaces, None if there are several. Nothing is written until
    a batch differs from it: most segments of a log that was compacted before stay as they are.
    """

    def __init__(self, directory: str, base: int, interval: int, source: str | None = None) -> None:
        self._directory = directory
        self._indexes = IndexBuilder(base, interval)
        self.base = base
        self.size = 0
        self._source = source  # has all bytes so far; None once they are written
        self._fd = FILES.open(self._path(names.LOG), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)

    def _path(self, kind: str) -> str:
        return str(names.segment_path(self._directory, self.base, kind, names.CLEANED))

    def append(self, pieces: Iterable[Piece], differs: bool) -> int:
        """Add batches, in one write; returns the bytes written. OSError when the disk is full or fails.

        `differs`: whether these batches differ from the source.
        """
        position, add, data = self.size, self._indexes.add, list[bytes | memoryview]()
        for piece in pieces:
            data.append(piece.data)
            for last_offset, size, max_timestamp in piece.rows:
                add(last_offset, position, max_timestamp)
                position += size
        before, self.size = self.size, position
        if self._source is not None and not differs:
            return 0
        copied = self._copy(before)
        FILES.pwrite(self._fd, b"".join(data), before)
        return copied + position - before

    def _copy(self, size: int) -> int:
        """Copy the first `size` bytes of the source; FileNotFoundError if it was removed. Returns the bytes copied."""
        source, self._source, at = self._source, None, 0
        if source is None:
            return 0
        with FILES.opened(source, os.O_RDONLY) as fd:
            while at < size:
                data = pread_exact(fd, min(_COPIED_AT_ONCE, size - at), at)
                if not data:
                    raise FileNotFoundError(f"{source} ends at byte {at}")
                FILES.pwrite(self._fd, data, at)
                at += len(data)
        return at

    def finish(self, aborted: Sequence[AbortedTxn] | None, modified_ns: int) -> None:
        """Complete all files and sync them. `aborted`: rows of the `.txnindex`, None for no such file."""
        self._indexes.close()
        self._file(names.INDEX, self._indexes.offsets)
        self._file(names.TIME_INDEX, self._indexes.times)
        if aborted is not None:
            self._file(names.TXN_INDEX, b"".join(row.pack() for row in aborted))
        FILES.fsync(self._fd)
        os.utime(self._fd, ns=(modified_ns, modified_ns))  # the age of records without a timestamp

    def _file(self, kind: str, data: bytes | bytearray) -> None:
        with FILES.opened(self._path(kind), os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as fd:
            FILES.pwrite(fd, data, 0)
            FILES.fsync(fd)

    def close(self) -> None:
        """Close the log file; the files stay."""
        if self._fd >= 0:
            FILES.close(self._fd)
            self._fd = -1
