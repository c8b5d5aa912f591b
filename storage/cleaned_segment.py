"""Writing the segment that a group of segments is compacted into: `.cleaned` files with their indexes.

Owner and permitted writer: the janitor; nobody reads them before storage.swap renames them. Crash rule: worthless until
then. All is on the disk before `finish` returns, as the segments it will replace may have been synced long ago.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from odradek.storage import names
from odradek.storage.durable import FILES
from odradek.storage.index_files import IndexBuilder
from odradek.storage.producers import AbortedTxn

_BUFFER = 1 << 20


class CleanedSegment:
    """The new segment at `base`; `interval` is index.interval.bytes."""

    def __init__(self, directory: str, base: int, interval: int) -> None:
        self._directory = directory
        self._indexes = IndexBuilder(base, interval)
        self.base = base
        self.size = 0
        self._buffer = bytearray()
        self._fd = FILES.open(self._path(names.LOG), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)

    def _path(self, kind: str) -> str:
        return str(names.segment_path(self._directory, self.base, kind, names.CLEANED))

    def append(self, data: bytes | memoryview, rows: Iterable[tuple[int, int, int]]) -> None:
        """Add batches; `rows` are their last offsets, sizes and largest timestamps. OSError as the disk has it."""
        position, add = self.size + len(self._buffer), self._indexes.add
        for last_offset, size, max_timestamp in rows:
            add(last_offset, position, max_timestamp)
            position += size
        self._buffer += data
        if len(self._buffer) >= _BUFFER:
            self._write()

    def _write(self) -> None:
        FILES.pwrite(self._fd, self._buffer, self.size)
        self.size += len(self._buffer)
        self._buffer = bytearray()

    def finish(self, aborted: Sequence[AbortedTxn] | None, modified_ns: int) -> None:
        """Complete all files and sync them. `aborted`: rows of the `.txnindex`, None for no such file."""
        self._write()
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
        """Let go of the log file; the files stay."""
        if self._fd >= 0:
            FILES.close(self._fd)
            self._fd = -1
