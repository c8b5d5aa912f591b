"""What an error of a log directory's disk means, and how much room is left there.

A full disk, or a process out of descriptors, passes: what was asked for is refused and the next try may go through.
A disk that cannot be read or written, or a failed fsync (nobody knows what it lost), ends the use of its log
directory until the next start, as any I/O error does in Kafka.
"""

from __future__ import annotations

import errno
import os
from typing import NamedTuple

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_SHORT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_BROKEN = frozenset(
    {errno.EIO, errno.EROFS, errno.ENXIO, errno.ENODEV, errno.EUCLEAN, errno.ESTALE, errno.EREMOTEIO, errno.ENOTCONN}
)


class SyncFailed(OSError):
    """An fsync did not go through: what the kernel held for that file may be lost."""


def is_broken(error: OSError) -> bool:
    """Whether the log directory must not be used any more."""
    return isinstance(error, SyncFailed) or error.errno in _BROKEN


def is_full(error: OSError) -> bool:
    """Whether it passes when there is room again."""
    return error.errno in FULL


def is_short(error: OSError) -> bool:
    """Whether the process or the machine lacks something, and the disk nothing."""
    return error.errno in _SHORT


class Room(NamedTuple):
    """Bytes of a file system: all of it, and what this user may still write."""

    size: int
    free: int


def room(path: str) -> Room:
    """The room where `path` is. OSError as the disk does."""
    found = os.statvfs(path)
    return Room(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)
