"""Reference-counted open files, and slices of them to send to a socket.

A segment may be deleted, or leave the cache of open files, while a slice of it waits for a slow reader. So the
descriptor belongs to an object that closes it when the last slice is gone.
"""

from __future__ import annotations

import os


class OpenFile:
    """A file descriptor that closes with its last reference."""

    __slots__ = ("__weakref__", "fd")

    def __init__(self, path: str, flags: int = os.O_RDONLY) -> None:
        self.fd = -1
        self.fd = os.open(path, flags | os.O_CLOEXEC, 0o600)

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class FileSlice:
    """`size` bytes of `file` from `position`; whole record batches. The connection advances it as it sends.

    `following` is the offset after the last record; `far` means that the slice lies so far before the log's end that
    it may have left the page cache.
    """

    __slots__ = ("far", "file", "following", "position", "size")

    def __init__(self, file: OpenFile, position: int, size: int, following: int = -1, far: bool = False) -> None:
        self.file = file
        self.position = position
        self.size = size
        self.following = following
        self.far = far

    def read(self) -> bytes:
        """The bytes, for paths that parse them; OSError when the disk fails, EOFError when the file was cut."""
        pieces = []
        position, left = self.position, self.size
        while left:
            piece = os.pread(self.file.fd, left, position)
            if not piece:
                raise EOFError(f"segment ends at {position}, {left} bytes early")
            pieces.append(piece)
            position += len(piece)
            left -= len(piece)
        return b"".join(pieces) if len(pieces) != 1 else pieces[0]
