"""Reserved space on a log directory's disk, so that a broker can start, and delete topics, when the disk is full.

Layout    : `odradek-reserve`, blocks without contents, in each log directory (`odradek.disk.reserve.bytes`).
Owner     : the janitor fills it when there is spare room; the supervisor frees it to start, the controller for a
            change of the metadata.
Writers   : the same. Lock: none; two processes that free or fill it at once end with one file.
Crash rule: a file that is too small is filled up, a missing one is recreated.

Allocated blocks are safe from all programs; one second of producing could exceed a limit that is only checked
periodically.
"""

from __future__ import annotations

import os
from pathlib import Path

from odradek.storage.files import disks
from odradek.storage.files.durable import FILES, remove

FILE_NAME = "odradek-reserve"
_SHARE = 10  # at most a tenth of a small disk
_BLOCK = 4096
_LEAST = 16 * _BLOCK  # less than this is not worth a call


class Reserve:
    """The reserve of the log directory at `log_dir`; `size` in bytes, 0 for none."""

    def __init__(self, log_dir: str, size: int) -> None:
        self._log_dir = log_dir
        self._path = Path(log_dir, FILE_NAME)
        self._size = size

    @property
    def allocated(self) -> int:
        """Bytes reserved now."""
        try:
            return os.stat(self._path).st_blocks * 512
        except FileNotFoundError:
            return 0

    def free_if_needed(self) -> int:
        """Free the reserve when less than its size is left on the disk; returns the bytes freed. OSError."""
        held = self.allocated
        if not held or disks.disk_space(self._log_dir).free >= self._size:
            return 0
        self.free()
        return held

    def free(self) -> bool:
        """Free the reserve; False when there was none."""
        return remove(self._path)

    def fill(self) -> int:
        """Reserve the missing bytes, or as many as are free: the reserve goes before records. Returns the bytes held.

        OSError from the disk, except for lack of space.
        """
        held, room = self.allocated, disks.disk_space(self._log_dir)
        goal = _whole(min(self._size, room.size // _SHARE))
        if held >= goal or room.free < min(goal - held, _LEAST):
            return held
        with FILES.opened(self._path, os.O_WRONLY | os.O_CREAT) as fd:
            return _allocate(fd, held, min(goal, _whole(held + room.free)))


def _allocate(fd: int, held: int, size: int) -> int:
    """Allocate up to `size` bytes; the file system's metadata may need a part of the last free space."""
    while size > held:
        try:
            os.posix_fallocate(fd, 0, size)
            return size
        except OSError as error:
            if not disks.is_full(error):
                raise
        size = _whole(size - max(_LEAST, size // 8))
    return held


def _whole(size: int) -> int:
    return size // _BLOCK * _BLOCK
