"""Writing files so that a power failure leaves the old contents or the new, never a mixture.

All writes of this package's cold path go through one `Files` object, a thin layer over the system
calls, so that a test can pass one whose next write or fsync fails (tests/storage/faulty.py).

If the caller holds a partition's lock meanwhile, each of these steps renews it (ipc.renewal).

Crash rule: `replace` leaves at most a `<name>.tmp` behind, which recovery removes.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from odradek.ipc import renewal

StrPath = str | os.PathLike[str]
_PIECE = 4 << 20  # bytes read or written in one call, between renewals of a partition's lock


class Files:
    """The system calls that change files. Every method raises OSError as the call does."""

    def open(self, path: StrPath, flags: int, mode: int = 0o644) -> int:
        return os.open(path, flags | os.O_CLOEXEC, mode)

    def close(self, fd: int) -> None:
        os.close(fd)

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Writes all of `data` at `offset`: continues a short write. OSError when a write makes no progress."""
        view = memoryview(data)
        while view:
            written = self._pwrite_some(fd, view, offset)
            if not written:
                raise OSError(errno.EIO, "the writer is closed")
            view, offset = view[written:], offset + written

    def _pwrite_some(self, fd: int, data: memoryview, offset: int) -> int:
        return os.pwrite(fd, data, offset)

    def fsync(self, fd: int) -> None:
        os.fsync(fd)
        renewal.renew()

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def rename(self, old: StrPath, new: StrPath) -> None:
        os.replace(old, new)
        renewal.renew()

    def unlink(self, path: StrPath) -> None:
        os.unlink(path)
        renewal.renew()

    def sync_dir(self, directory: StrPath) -> None:
        """Makes creations, renames and removals in `directory` survive a power failure."""
        with self.opened(directory, os.O_RDONLY | os.O_DIRECTORY) as fd:
            self.fsync(fd)

    @contextmanager
    def opened(self, path: StrPath, flags: int, mode: int = 0o644) -> Iterator[int]:
        """Opens the file for the block and closes it after."""
        fd = self.open(path, flags, mode)
        try:
            yield fd
        finally:
            self.close(fd)


FILES = Files()


def replace(path: StrPath, data: bytes | bytearray, *, sync: bool = True, files: Files = FILES) -> None:
    """Gives `path` the contents `data` atomically: writes a temporary file, syncs it, renames it over `path`.

    `sync=False` omits both fsyncs: for files that are rebuilt when found broken. The old
    contents stay when any step raises OSError, and the temporary file is removed if possible.
    """
    path = Path(path)
    temporary = path.with_name(path.name + ".tmp")
    try:
        with files.opened(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as fd:
            for at in range(0, len(data), _PIECE):
                files.pwrite(fd, memoryview(data)[at : at + _PIECE], at)
                renewal.renew()
            if sync:
                files.fsync(fd)
        files.rename(temporary, path)
    except OSError:
        remove(temporary, files=files)
        raise
    if sync:
        files.sync_dir(path.parent)


def remove(path: StrPath, *, files: Files = FILES) -> bool:
    """Unlinks `path`; False when the file or its directory did not exist."""
    try:
        files.unlink(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def truncate(path: StrPath, size: int, *, sync: bool = True, files: Files = FILES) -> None:
    """Cuts (or zero-fills) the file at `path` to `size` bytes."""
    with files.opened(path, os.O_WRONLY) as fd:
        files.truncate(fd, size)
        if sync:
            files.fsync(fd)


def read_file(path: StrPath) -> bytes:
    """The contents of `path`. A start reads thousands of small files; pathlib takes three times as long for one."""
    with FILES.opened(path, os.O_RDONLY) as fd:
        return pread_exact(fd, os.fstat(fd).st_size, 0)


def pread_exact(fd: int, size: int, offset: int) -> bytes:
    """Up to `size` bytes at `offset`; fewer only when the file ends before."""
    parts = []
    while size:
        part = os.pread(fd, min(size, _PIECE), offset)
        if not part:
            break
        renewal.renew()
        parts.append(part)
        size, offset = size - len(part), offset + len(part)
    return b"".join(parts)
