"""Selects the failpoint that fires, in a small file that all processes of a broker map.

Layout    : 8-byte words. 0: whether any point is armed. Then WORDS a point, in the order of `points.POINTS`:
            hits left until it fires (0: not armed), the signal to send, the pid in which it fired.
Owner     : the test.
Writers   : the test arms; the process that hits counts down.
Lock      : none; two processes that count at once lose a hit, which only delays the point.
Crash rule: a process writes its pid before it sends itself the signal.
"""

from __future__ import annotations

import mmap
import os
import signal
from pathlib import Path

from .points import NAMES, POINTS

WORDS = 4
LEFT, ACTION, PID = range(3)
SIZE = (1 + len(POINTS) * WORDS) * 8


def words_of(path: str | os.PathLike[str]) -> memoryview:
    """The words of the file, shared by all processes that map it."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return memoryview(mmap.mmap(fd, SIZE)).cast("q")
    finally:
        os.close(fd)


def place(number: int) -> int:
    """The index of the first word of a point."""
    return 1 + number * WORDS


class Arming:
    """The test's side."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(SIZE))
        self.path = path
        self._words = words_of(path)

    def environment(self) -> dict[str, str]:
        """Variables for the environment of the broker."""
        here = os.path.dirname(__file__)
        former = os.environ.get("PYTHONPATH")
        return {"ODRADEK_FAILPOINTS": str(self.path), "PYTHONPATH": os.pathsep.join(filter(None, [here, former]))}

    def arm(self, name: str, hit: int = 1, action: int = signal.SIGKILL) -> None:
        """Have the process that reaches `name` for the `hit`-th time from now on send itself the signal `action`."""
        at = place(NAMES.index(name))
        self._words[at + PID], self._words[at + ACTION] = 0, action
        self._words[at + LEFT] = hit
        self._words[0] = 1

    def disarm(self) -> list[str]:
        """Disarm all points; the names of those that were still armed."""
        left = [name for number, name in enumerate(NAMES) if self._words[place(number) + LEFT]]
        self._words[0] = 0
        for number in range(len(POINTS)):
            self._words[place(number) + LEFT] = 0
        return left

    def fired(self, name: str) -> int:
        """The pid of the process in which `name` fired since it was armed; 0 if it has not."""
        return self._words[place(NAMES.index(name)) + PID]
