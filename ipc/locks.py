"""Liveness locks and partition locks: open-file-description locks on single bytes.

Layout    : roles.lock byte r = role r (ipc.roles, broker.process.process), byte SWEEP = a start that removes what a
            dead broker left; partition.lock byte s = partition slot s. The content of roles.lock is the run note
            (ipc.run_note); other files are empty.
Owner     : the kernel. It frees a lock when the last descriptor of its open file description closes, so at death.
Writers   : any process of the broker.
Lock      : these are the locks. Plain record locks would vanish when *any* descriptor of the file closes in
            the process, or with an unrelated mmap; OFD locks do not. Each process opens the file itself, once,
            O_CLOEXEC: a descriptor inherited by fork would share the lock. A process that the supervisor of a program's
            broker forks closes what it inherits before all else (broker.supervisor.forked_child).
Crash rule: a dead holder's byte is free at once; the next process that takes a partition's byte repairs first
            (`dirty`).
No process ever blocks in the kernel for a lock: a stopped holder would stop all others.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

from odradek.ipc.roles import ROLES
from odradek.protocol import digests

SWEEP = ROLES  # the byte behind those of the roles
_MOST_NOTE = 16384  # bytes; a path has at most 4096
_FLOCK = struct.Struct("hhqqi4x")  # struct flock on 64-bit Linux: type, whence, start, length, pid
TAKEN = (BlockingIOError, PermissionError)  # the kernel's errors for a byte that another description holds


def _flock(kind: int, byte: int) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, byte, 1, 0)


def _open(path: str | os.PathLike[str], create: bool) -> int:
    return os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else os.O_NOFOLLOW), 0o600)


class ByteLocks:
    """Exclusive try-locks on the bytes of one file."""

    def __init__(self, path: str | os.PathLike[str], create: bool = True) -> None:
        self._fd = -1
        self._fd = _open(path, create)
        self._take: dict[int, bytes] = {}
        self._free: dict[int, bytes] = {}

    def try_lock(self, byte: int) -> bool:
        """Take `byte` unless another process has it; never waits."""
        request = self._take.get(byte)
        if request is None:
            request = self._take[byte] = _flock(fcntl.F_WRLCK, byte)
            self._free[byte] = _flock(fcntl.F_UNLCK, byte)
        try:
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, request)
        except TAKEN:
            return False
        return True

    def unlock(self, byte: int) -> None:
        """Release a byte that `try_lock` took."""
        fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, self._free[byte])

    def calls(self, byte: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
        """Functions that take and free `byte`, for hot paths; taking raises TAKEN instead of waiting."""
        command = fcntl.F_OFD_SETLK
        return (
            partial(fcntl.fcntl, self._fd, command, _flock(fcntl.F_WRLCK, byte)),
            partial(fcntl.fcntl, self._fd, command, _flock(fcntl.F_UNLCK, byte)),
        )

    def held(self, byte: int) -> bool:
        """Whether *another* open file description holds `byte` now."""
        answer = fcntl.fcntl(self._fd, fcntl.F_OFD_GETLK, _flock(fcntl.F_WRLCK, byte))
        kind: int = _FLOCK.unpack(answer)[0]
        return kind != fcntl.F_UNLCK

    def close(self) -> None:
        """Close the file, which frees every byte held here. Dropping the object does so too."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()


class RoleLocks(ByteLocks):
    """Liveness: each process holds the byte of its role for life. The supervisor of a program's broker also holds the
    acceptor's, until it accepts no more (broker.acceptor.hosted_acceptor)."""

    def __init__(self, path: str | os.PathLike[str], create: bool = True) -> None:
        super().__init__(path, create)
        self._path = path
        self._mine: set[int] = set()

    def hold(self, role: int) -> bool:
        """Take `role` for the life of this process; False while another process has it, or when not `current`."""
        if role not in self._mine and self.try_lock(role):
            if self.current():
                self._mine.add(role)
            else:
                self.unlock(role)
        return role in self._mine

    def release(self, role: int) -> bool:
        """Free a role that this process holds; False when it does not hold it."""
        if role not in self._mine:
            return False
        self._mine.discard(role)
        self.unlock(role)
        return True

    def current(self) -> bool:
        """Whether the file is still the one at its path; a stopping broker removes it."""
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._fd))
        except FileNotFoundError:
            return False

    def number(self) -> int:
        """A number from 1 to 2**62: the same in all processes that share this file, unique on this machine."""
        found = os.fstat(self._fd)
        digest = digests.sha256(f"{found.st_dev} {found.st_ino}".encode())
        return 1 + (int.from_bytes(digest[:8]) >> 2)

    def seal(self, roles: range) -> bool:
        """Prevent all processes from taking one of `roles` until `close`; False when a process holds one."""
        return all(role in self._mine or self.try_lock(role) for role in roles)

    def remove(self) -> None:
        """Unlink the file once it is sealed: a process that waits for one of its bytes finds it not `current`."""
        os.unlink(self._path)

    def file(self) -> str:
        """The device and inode of the file: another one for each copy of it."""
        found = os.fstat(self._fd)
        return f"{found.st_dev}:{found.st_ino}"

    def note(self) -> bytes:
        """The content of the file."""
        return os.pread(self._fd, _MOST_NOTE, 0)

    def write_note(self, content: bytes) -> None:
        """Replace the content, a line or nothing: a reader, or a death within the call, finds a whole first line.
        Caller holds the supervisor's byte. OSError."""
        os.pwrite(self._fd, content, 0)
        os.ftruncate(self._fd, len(content))

    def alive(self, role: int) -> bool:
        """Whether a process holds `role` (this one included)."""
        return role in self._mine or self.held(role)

    def anyone(self, roles: range | list[int]) -> bool:
        """Whether any of `roles` is held."""
        return any(self.alive(role) for role in roles)


class PartitionLocks(ByteLocks):
    """One byte for each partition slot."""
