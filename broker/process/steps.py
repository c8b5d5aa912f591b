"""Runs long work of a loop in steps, so that the loop handles other events in between.

Work is a generator: the code up to its next `yield` is one step, which is short and leaves a consistent state. All
active work runs in turn, one step each, for SLICE_S of a turn of the loop; a step that takes longer is not interrupted.
Small work is done when `begin` returns, so that requests that arrive together keep their order. A step that cannot go
on yet yields WAITS: when all work waits, the slice ends.

Crash rule: none of its own. Unfinished work is lost when the process dies or stops.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

log = logging.getLogger(__name__)

SLICE_S = 0.025  # one turn may call both `begin` and `advance`
WAITS: Any = "waits"  # other steps yield None
_OVER = object()


class _Tasks:
    """The active work of one loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._works: deque[Iterator[None]] = deque()

    @property
    def waiting(self) -> bool:
        """Whether `advance` has something to do."""
        return bool(self._works)


class TaskScheduler(_Tasks):
    """Work that runs in turn."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._stepping = False
        self._idle = False

    @property
    def idle(self) -> bool:
        """Whether all active work yielded WAITS in its last step: the loop may sleep before the next."""
        return self._idle

    def begin(self, work: Iterator[None]) -> None:
        """Add work, and run it for at most a slice. It handles its own errors.

        Work that a step begins is only added: otherwise each would extend that step by a slice.
        """
        if self._stepping:
            self.add(work)
            return
        until = self._clock() + SLICE_S
        while (outcome := self._take_step(work)) is not _OVER:
            if outcome == WAITS or self._clock() >= until:
                self.add(work)
                return

    def add(self, work: Iterator[None]) -> None:
        """Add work whose first step `advance` runs, too: much of it may come in one turn of the loop."""
        self._works.append(work)
        self._idle = False

    def advance(self) -> None:
        """Run all active work in turn, for one slice, or until all of it waits."""
        until, waited = self._clock() + SLICE_S, 0
        while self._works and waited < len(self._works):
            work = self._works.popleft()
            outcome = self._take_step(work)
            waited = waited + 1 if outcome == WAITS else 0
            if outcome is not _OVER:
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


class TaskQueue(_Tasks):
    """A queue of work: each is finished before the next begins, so that little is held meanwhile."""

    def add(self, work: Iterator[None]) -> None:
        """Add work behind all other. It handles its own errors."""
        self._works.append(work)

    def add_first(self, work: Iterator[None]) -> None:
        """Add work before all other: the rest of work that has begun."""
        self._works.appendleft(work)

    def advance(self, seconds: float = SLICE_S) -> None:
        """Run work in order, for so long."""
        until = self._clock() + seconds
        while self._works:
            work = self._works[0]
            if _step(work) is _OVER:
                self._works.remove(work)
            if self._clock() >= until:
                return


def _step(work: Iterator[None]) -> object:
    """Run a step; returns what it yields, _OVER at the end."""
    try:
        return next(work)
    except StopIteration:
        return _OVER
    except Exception:
        log.exception("unexpected error in a background task")
        return _OVER
