"""Long work of a loop, in steps, so that whatever else comes has its turn in between.

Work is a generator: what it does up to its next `yield` is one step, short, and nobody is confused by what it leaves.
All that is under way goes on in turn, a step each, for SLICE_S of a turn of the loop; a step that takes longer than
that is waited for. What is small is done when `begin` returns, so that requests which came together keep their order.
A step that has only found that it cannot go on yet yields WAITS: when all have, the turn is over.

Crash rule: none of its own. Work that was not finished is lost with the process, or when the process stops.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

log = logging.getLogger(__name__)

SLICE_S = 0.025  # `begin` and `go_on` may both fall into a turn
WAITS: Any = "waits"  # and all other work yields nothing
_OVER = object()


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
        self._idle = False

    @property
    def idle(self) -> bool:
        """Whether all that is under way waited when it had its turn last: the loop may rest before the next."""
        return self._idle

    def begin(self, work: Iterator[None]) -> None:
        """Take up some work, and do as much of it as a slice allows. Its errors are its own business.

        Of work that a step begins nothing is done yet: that step would take a slice more for each.
        """
        if self._stepping:
            self.add(work)
            return
        until = self._clock() + SLICE_S
        while (said := self._take_step(work)) is not _OVER:
            if said == WAITS or self._clock() >= until:
                self.add(work)
                return

    def add(self, work: Iterator[None]) -> None:
        """Take up some work of which `go_on` does the first step too: much of it may come in one turn of the loop."""
        self._works.append(work)
        self._idle = False

    def go_on(self) -> None:
        """Go on with all that is under way, for one slice, or until all of it waits."""
        until, waited = self._clock() + SLICE_S, 0
        while self._works and waited < len(self._works):
            work = self._works.popleft()
            said = self._take_step(work)
            waited = waited + 1 if said == WAITS else 0
            if said is not _OVER:
                self._works.append(work)
            if self._clock() >= until:
                break
        self._idle = 0 < len(self._works) <= waited

    def _take_step(self, work: Iterator[None]) -> object:
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
            if _step(work) is _OVER:
                self._works.remove(work)
            if self._clock() >= until:
                return


def _step(work: Iterator[None]) -> object:
    """What a step says; _OVER when it was the last."""
    try:
        return next(work)  # type: ignore[func-returns-value]
    except StopIteration:
        return _OVER
    except Exception:
        log.exception("unexpected error in a background task")
        return _OVER
