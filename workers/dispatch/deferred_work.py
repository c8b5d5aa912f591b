"""Work that waits for something that rings no bell: tried every millisecond, in slices that let the loop turn."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from functools import partial

from odradek.workers.dispatch.api import WAIT
from odradek.workers.net import time_slices
from odradek.workers.net.connection import Connection

log = logging.getLogger(__name__)


class DeferredWork:
    """`waiting`: what has a turn next, each with the connection that waits for it."""

    def __init__(self, drop: Callable[[Connection, str], None]) -> None:
        self._drop = drop
        self.waiting: list[tuple[Callable[[], bool], Connection | None]] = []

    def again(self, work: Callable[[], bool], connection: Connection | None = None) -> None:
        """Call `work` every millisecond until it returns True. If it raises, drop `connection`, which would hang."""
        self.waiting.append((work, connection))

    def begin(self, work: Iterator[object]) -> None:
        """Run `work` in steps: as many as fit into one time slice now, the rest in the next turns.

        A step that yields WAIT ends its slice: the next step has to wait for something. `work` handles its own errors.
        """
        go_on = partial(_slice, work)
        if not go_on():
            self.waiting.append((go_on, None))

    def turn(self) -> None:
        """Give each work one slice while time is left: many large requests do not add up in one turn."""
        until = time.monotonic() + time_slices.SLICE_S
        again, self.waiting = self.waiting, []
        for number, (work, connection) in enumerate(again):
            if number and time.monotonic() >= until:
                self.waiting = again[number:] + self.waiting  # those without a turn go first next time
                return
            if not self._done(work, connection):
                self.waiting.append((work, connection))

    def _done(self, work: Callable[[], bool], connection: Connection | None) -> bool:
        """An error drops the connection that waits, not the others."""
        try:
            return work()
        except Exception:
            log.exception("unexpected error in deferred work")
            if connection is not None:
                self._drop(connection, "closed after an internal error")
            return True


def _slice(work: Iterator[object]) -> bool:
    """Run steps for one time slice; returns whether the work is complete."""
    until = time.monotonic() + time_slices.SLICE_S
    return all(step is not WAIT and time.monotonic() < until for step in work)
