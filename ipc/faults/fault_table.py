"""Faults that a program wants of the broker that it has started: a small file that both map.

Only a broker whose setting `odradek.faults.file` names such a file looks into one.

Layout    : 8-byte words: CLOCK, the nanoseconds that the broker's wall clock is ahead; DISK_FULL and REFUSING, 0 or 1;
            ARMED, the number of rows in use; then ROWS rows of ROW words: API key plus 1 (0: the row is free), requests
            that are served before the first fault, faults that are left (-1: no bound), error code (0: none), delay in
            milliseconds, faults so far.
Owner     : the program, which creates the file, and removes it after the broker's end.
Writers   : the program; in a row, a worker whose request meets it counts down.
Lock      : flock of the file, for rows; a worker takes it while any row is in use. The other words are single.
Crash rule: the kernel frees the lock. A worker that dies between count and fault has counted one too many. The broker
            ends with the program, so a fault never outlives it.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Self

CLOCK, DISK_FULL, REFUSING, ARMED = range(4)
_FIRST, ROWS, ROW = 8, 32, 6
_KEY, _SKIP, _LEFT, _ERROR, _DELAY, _HITS = range(ROW)
_END = _FIRST + ROWS * ROW
SIZE = _END * 8
NO_BOUND = -1
_LOCK_S, _STEP_S = 5.0, 0.001


class FaultTableError(Exception):
    """The file is no table of faults, or others may write it; the text says what to change."""


class Fault(NamedTuple):
    """What happens to one request: it is answered with `error`, or if that is 0 it is served after `delay` seconds, or
    when the fault is removed. `row`: its place."""

    error: int
    delay: float
    row: int


class FaultTable:
    """The words, as one process has mapped them."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.words = memoryview(mmap.mmap(fd, SIZE)).cast("q")

    @classmethod
    def create(cls, path: Path) -> Self:
        """A new table without faults, which only this user can read. OSError as the file system has it."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        os.ftruncate(fd, SIZE)
        return cls(fd)

    @classmethod
    def attach(cls, path: str) -> Self:
        """The table of the program. FaultTableError: there is none, or another user can write it."""
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            raise FaultTableError(f"odradek.faults.file={path}: {error.strerror}; remove the setting") from None
        found = os.fstat(fd)
        if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) == 0o600 and found.st_size == SIZE:
            return cls(fd)
        os.close(fd)
        raise FaultTableError(
            f"odradek.faults.file={path}: not a table of faults of this user alone; remove the setting"
        )

    def close(self) -> None:
        """Unmap the file."""
        self.words.release()
        os.close(self._fd)

    # -- the program

    def add(self, key: int, error: int, delay_ms: int, times: int, after: int) -> int:
        """Arm a row for requests with this API key; returns its place. IndexError: all rows are in use."""
        with self._locked():
            at = next((at for at in self._places() if not self.words[at + _KEY]), -1)
            if at < 0:
                raise IndexError(f"{ROWS} faults are set already")
            for word, value in ((_SKIP, after), (_LEFT, times), (_ERROR, error), (_DELAY, delay_ms), (_HITS, 0)):
                self.words[at + word] = value
            self.words[at + _KEY] = key + 1
            self.words[ARMED] += 1
        return at

    def hits(self, at: int) -> int:
        """How many requests have met the fault in this row."""
        return self.words[at + _HITS]

    def remove(self, at: int) -> None:
        """Free a row."""
        with self._locked():
            self.words[at + _KEY] = 0
            self.words[ARMED] -= 1

    # -- the broker's processes

    @property
    def refuses(self) -> bool:
        """Whether new connections are closed."""
        return bool(self.words[REFUSING])

    def hit(self, key: int) -> Fault | None:
        """A request with this API key has come: the fault that it meets, which is counted, or None."""
        with self._locked():
            return next((found for at in self._places() if (found := self._count(at, key))), None)

    def is_set(self, fault: Fault) -> bool:
        """Whether the program has not removed it yet."""
        return bool(self.words[fault.row + _KEY])

    def _count(self, at: int, key: int) -> Fault | None:
        words = self.words
        if words[at + _KEY] != key + 1 or not words[at + _LEFT]:
            return None
        if words[at + _SKIP]:
            words[at + _SKIP] -= 1
            return None
        if words[at + _LEFT] > 0:
            words[at + _LEFT] -= 1
        words[at + _HITS] += 1
        return Fault(words[at + _ERROR], words[at + _DELAY] / 1000, at)

    @staticmethod
    def _places() -> range:
        return range(_FIRST, _END, ROW)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """FaultTableError: a process has had the lock for seconds, which a fault has stopped in that moment."""
        until = time.monotonic() + _LOCK_S
        while not self._lock():
            if time.monotonic() > until:
                raise FaultTableError("a paused process of the broker has the lock of its faults: end that block first")
            time.sleep(_STEP_S)
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _lock(self) -> bool:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
