"""Which failpoint goes off: a small file that all processes of a broker map.

Layout    : 8-byte words. 0: whether any point is armed. Then WORDS a point, in the order of `points.POINTS`:
            hits left until it goes off (0: not armed), what it then does, pid it went off in.
Owner     : the test.
Writers   : the test arms; the process that hits counts down.
Lock      : none; two processes that count at once lose a hit, which only puts the end off.
Crash rule: a process says that it goes off before it does.
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
    """The file's words, shared with everyone who maps it."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return memoryview(mmap.mmap(fd, SIZE)).cast("q")
    finally:
        os.close(fd)


def place(number: int) -> int:
    """Where a point's words begin."""
    return 1 + number * WORDS


class Arming:
    """The test's side."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(SIZE))
        self.path = path
        self._words = words_of(path)

    def environment(self) -> dict[str, str]:
        """What a broker's environment must have."""
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
        """Nothing goes off any more; the names of those that were still armed."""
        left = [name for number, name in enumerate(NAMES) if self._words[place(number) + LEFT]]
        self._words[0] = 0
        for number in range(len(POINTS)):
            self._words[place(number) + LEFT] = 0
        return left

    def fired(self, name: str) -> int:
        """The pid of the process in which `name` went off since it was armed; 0 while it has not."""
        return self._words[place(NAMES.index(name)) + PID]
