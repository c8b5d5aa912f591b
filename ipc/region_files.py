"""The regions of all brokers as files in /dev/shm: whose they are, what they take, and the removal of dead ones.

Lock      : flock of the directory /dev/shm, which every process that shares it sees, in any container. A start holds it
            shared while it replaces the regions of its key; what removes a region of a dead broker holds it exclusively
            from the look at the header to the unlink. So a region that a start has just created under the same name
            is never removed, even if the two have other run directories and see neither's locks. It is only tried, for
            WAIT_S: any user may hold it, so a start goes on without it; a removal does not.
Crash rule: the lock ends with its process. Each removal is one unlink.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from odradek.ipc.region import HEADER, LAYOUT, MAGIC, SHM

WAIT_S = 1.0
_PAUSE_S = 0.005
_NAME = re.compile(r"odradek-([0-9a-f]{12})-.")
_WORDS = struct.Struct("4q")  # of the header: magic, kind, layout, incarnation


class RegionFile(NamedTuple):
    """A region. `size`: bytes of memory that it takes; `incarnation`: 0 when it is unfinished or cannot be read."""

    name: str
    key: str
    uid: int
    size: int
    incarnation: int


def found(key: str = "") -> list[RegionFile]:
    """The regions of the broker with `key`, or of all brokers; empty where there is no /dev/shm."""
    try:
        names = sorted(os.listdir(SHM))
    except OSError:
        return []
    looked = (_look(name) for name in names if _NAME.match(name) and name.startswith(f"odradek-{key}"))
    return [one for one in looked if one is not None]


def remove(wanted: RegionFile) -> bool:
    """Remove a region of this user if it still is the one that `found` has returned; False otherwise."""
    with _locked(fcntl.LOCK_EX) as locked:
        if not locked or _look(wanted.name) != wanted or wanted.uid != os.getuid() or not wanted.incarnation:
            return False
        try:
            os.unlink(os.path.join(SHM, wanted.name))
        except OSError:
            return False
    return True


@contextmanager
def replacing() -> Iterator[None]:
    """Within the block no other process removes regions that it takes for a dead broker's."""
    with _locked(fcntl.LOCK_SH):
        yield


@contextmanager
def _locked(how: int) -> Iterator[bool]:
    """Whether the lock was free within WAIT_S."""
    try:
        fd = os.open(SHM, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield False
        return
    try:
        yield _wait(fd, how)
    finally:
        os.close(fd)


def _wait(fd: int, how: int) -> bool:
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            fcntl.flock(fd, how | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_PAUSE_S)
        else:
            return True


def _look(name: str) -> RegionFile | None:
    """None when it is gone, or no regular file."""
    path, match = os.path.join(SHM, name), _NAME.match(name)
    try:
        status = os.lstat(path)
    except OSError:
        return None
    if match is None or not stat.S_ISREG(status.st_mode):
        return None
    return RegionFile(name, match[1], status.st_uid, status.st_blocks * 512, _incarnation(path))


def _incarnation(path: str) -> int:
    """Read, not mapped: a file that another process cuts would raise SIGBUS."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        header = os.pread(fd, HEADER, 0)
    except OSError:
        return 0
    finally:
        os.close(fd)
    if len(header) < HEADER:
        return 0
    magic, _, layout, incarnation = _WORDS.unpack_from(header)
    return incarnation if (magic, layout) == (MAGIC, LAYOUT) else 0
