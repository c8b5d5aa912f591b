"""A file seam whose next write, fsync or rename fails, as on a full or failing disk."""

from __future__ import annotations

import errno
import os

from odradek.storage.files.durable import Files, StrPath


class FaultyFiles(Files):
    """`fail_next_write`, `fail_next_sync`, `fail_next_rename`: an errno to raise once. `room`: bytes until ENOSPC."""

    def __init__(self) -> None:
        self.fail_next_write = self.fail_next_sync = self.fail_next_rename = 0
        self.room: int | None = None
        self.calls: list[str] = []

    def _pwrite_some(self, fd: int, data: memoryview, offset: int) -> int:
        self._maybe_fail("fail_next_write", "write")
        if self.room is not None:
            if self.room == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            data = data[: self.room]
            self.room -= len(data)
        return super()._pwrite_some(fd, data, offset)

    def fsync(self, fd: int) -> None:
        self._maybe_fail("fail_next_sync", "sync")
        super().fsync(fd)

    def rename(self, old: StrPath, new: StrPath) -> None:
        self._maybe_fail("fail_next_rename", "rename")
        super().rename(old, new)

    def _maybe_fail(self, which: str, call: str) -> None:
        self.calls.append(call)
        code = getattr(self, which)
        if code:
            setattr(self, which, 0)
            raise OSError(code, os.strerror(code))
