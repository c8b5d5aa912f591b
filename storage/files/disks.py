"""Classification of errors of a log directory's disk, and the free space there.

A full disk, or a process out of descriptors, is temporary: the request is refused and the next one may succeed.
A disk that cannot be read or written, or a failed fsync (with unknown losses), ends the use of its log
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
    """An fsync failed: the kernel may have lost unsynced data of that file."""


def is_broken(error: OSError) -> bool:
    """Whether the log directory must no longer be used."""
    return isinstance(error, SyncFailed) or error.errno in _BROKEN


def is_full(error: OSError) -> bool:
    """Whether the error ends when there is free space again."""
    return error.errno in FULL


def is_short(error: OSError) -> bool:
    """Whether the process or the machine lacks a resource, and the disk is fine."""
    return error.errno in _SHORT


class DiskSpace(NamedTuple):
    """Bytes of a file system: total, and free for this user."""

    size: int
    free: int


def disk_space(path: str) -> DiskSpace:
    """The space of the file system at `path`. OSError from the disk."""
    found = os.statvfs(path)
    return DiskSpace(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)
