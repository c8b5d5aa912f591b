"""Long work of a loop, in steps, so that whatever else comes has its turn in between.

Work is a generator: what it does up to its next `yield` is one step, short, and nobody is confused by what it leaves.
All that is under way goes on in turn, a step each, for SLICE_S of a turn of the loop; a step that takes longer than
that is waited for. What is small is done when `begin` returns, so that requests which came together keep their order.

Crash rule: none of its own. Work that was not finished is lost with the process, or when the process stops.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator

log = logging.getLogger(__name__)

SLICE_S = 0.025  # `begin` and `go_on` may both fall into a turn


class _Works:
    """Work that one loop has taken up."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._works: deque[Iterator[None]] = deque()

    @property
    def waiting(self) -> bool:
        """Whether `go_on` has something to do."""
        return bool(self._works)


class Steps(_Works):
    """Work that goes on in turn."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._stepping = False

    def begin(self, work: Iterator[None]) -> None:
        """Take up some work, and do as much of it as a slice allows. Its errors are its own business.

        Of work that a step begins nothing is done yet: that step would take a slice more for each.
        """
        if self._stepping:
            self.add(work)
            return
        until = self._clock() + SLICE_S
        while self._take_step(work):
            if self._clock() >= until:
                self._works.append(work)
                return

    def add(self, work: Iterator[None]) -> None:
        """Take up some work of which `go_on` does the first step too: much of it may come in one turn of the loop."""
        self._works.append(work)

    def go_on(self) -> None:
        """Go on with all that is under way, for one slice."""
        until = self._clock() + SLICE_S
        while self._works:
            work = self._works.popleft()
            if self._take_step(work):
                self._works.append(work)
            if self._clock() >= until:
                return

    def _take_step(self, work: Iterator[None]) -> bool:
        self._stepping = True
        try:
            return _step(work)
        finally:
            self._stepping = False


class Line(_Works):
    """Work that waits in line: what is begun is done before the next begins, so that little is held meanwhile."""

    def add(self, work: Iterator[None]) -> None:
        """Take up some work, behind all other. Its errors are its own business."""
        self._works.append(work)

    def add_first(self, work: Iterator[None]) -> None:
        """Take up some work before all other: the rest of what was begun."""
        self._works.appendleft(work)

    def go_on(self, seconds: float = SLICE_S) -> None:
        """Go on with what is first, for so long."""
        until = self._clock() + seconds
        while self._works:
            work = self._works[0]
            if not _step(work):
                self._works.remove(work)
            if self._clock() >= until:
                return


def _step(work: Iterator[None]) -> bool:
    """Whether there is more to do."""
    try:
        next(work)
    except StopIteration:
        return False
    except Exception:
        log.exception("work in steps failed")
        return False
    return True
