"""The private folders of brokers inside programs, and the removal of those that no process needs any more.

Layout    : `odradek-broker-` and eight random characters in the temporary directory, mode 0700; `program` in it is an
            empty lock file.
Owner     : the program that makes it.
Lock      : flock of `program`. The broker's supervisor inherits the descriptor, so the lock is free only when program
            and broker are gone, with all forks of the program.
Writers   : the program and its broker; the holder of the lock removes the folder.
Crash rule: of a program, the broker removes the folder (inside.child); of both, the next `make` of the same user does.
            A folder without the lock file, of a program that died while it made it, is empty and stays.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_PREFIX = "odradek-broker-"
_LOCK = "program"


class Folder(NamedTuple):
    """A folder, and the descriptor that holds its lock."""

    path: Path
    lock: int

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock)


def make() -> Folder:
    """A new folder, locked; removes abandoned ones first. Raises OSError."""
    sweep()
    path = Path(tempfile.mkdtemp(prefix=_PREFIX))
    new = path / f"{_LOCK}.new"  # it has its name once it is locked: what has the name and no lock is abandoned
    lock = os.open(new, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    new.rename(path / _LOCK)
    return Folder(path, lock)


def sweep() -> None:
    """Remove the folders of this user that neither a program nor a broker has. Raises nothing."""
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as found:
        for entry in found:
            if entry.name.startswith(_PREFIX) and _private(entry):
                with suppress(OSError):  # no lock file yet, or the lock is held
                    _remove_abandoned(Path(entry.path))


def _private(entry: os.DirEntry[str]) -> bool:
    """Whether it is a directory, no link, that only this user can read or change."""
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def _remove_abandoned(path: Path) -> None:
    """Raises BlockingIOError when a process has the lock."""
    lock = os.open(path / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(lock)
