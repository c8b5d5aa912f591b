"""The sizes of the partitions' logs in bytes, from the segment files' sizes in the directories.

A sweep over all directories takes its time in slices; the sizes are those of the last sweep that is done.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

SWEEP_S = 30.0  # from the begin of one sweep to that of the next, at least
Sizes = Mapping[tuple[str, int], int]


class LogSizes:
    """`sizes` by topic and partition; None before the first sweep is done."""

    def __init__(self, log_dirs: Callable[[], Iterable[Path]]) -> None:
        """`log_dirs()`: those to look into, asked before each sweep."""
        self._log_dirs = log_dirs
        self._sweep: Iterator[tuple[tuple[str, int], int]] | None = None
        self._found: dict[tuple[str, int], int] = {}
        self._next = 0.0
        self.sizes: Sizes | None = None

    def follow(self, seconds: float) -> None:
        """Go on for at most so long."""
        now = time.monotonic()
        if self._sweep is None:
            if now < self._next:
                return
            self._sweep, self._found, self._next = self._all(), {}, now + SWEEP_S
        until = now + seconds
        for name, size in self._sweep:
            self._found[name] = size
            if time.monotonic() > until:
                return
        self._sweep, self.sizes = None, self._found

    def _all(self) -> Iterator[tuple[tuple[str, int], int]]:
        for log_dir in self._log_dirs():
            for name in _names(log_dir):
                topic, _, index = name.rpartition("-")
                if topic and index.isdecimal():
                    yield (topic, int(index)), size_of(log_dir / name)


def _names(folder: Path) -> list[str]:
    """What is in it; nothing where its disk has just failed."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def size_of(folder: Path) -> int:
    """The bytes of a partition's segments in its directory; less when segments are deleted meanwhile."""
    size = 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(".log"):
                    size += entry.stat().st_size
    except OSError:
        pass
    return size
