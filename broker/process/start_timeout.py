"""Asks the service manager for time while work goes on: recovery at the start, flushing at the stop.

It is a thread, as one call recovers a whole large log. It asks only while the rest of the process uses CPU time: a
process that hangs, in a lock or on a disk that does not answer, reaches its timeout.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from odradek.broker.process import sd_notify
from odradek.ipc import slots
from odradek.ipc.slots import SlotTable

LOOK_S = 1.0
MORE_S = 30
LEAST_WORK_S = 0.0005  # of CPU time between two checks


class TimeoutExtension:
    """A request for more time, repeated until `end`; does nothing without a service manager."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Lock()

    def begin(self, status: Callable[[], str]) -> None:
        """Ask from now on, with the text that `status` returns."""
        if os.environ.get("NOTIFY_SOCKET"):
            threading.Thread(target=self._request, args=[status], daemon=True, name="timeout-extension").start()

    def end(self) -> None:
        """The work is done; no request follows."""
        with self._thread:
            self._over.set()

    def _request(self, status: Callable[[], str]) -> None:
        worked = 0.0
        while not self._over.wait(LOOK_S):
            now = _work()
            if now - worked >= LEAST_WORK_S:
                self._extend(status())
                worked = now

    def _extend(self, status: str) -> None:
        with self._thread:
            if not self._over.is_set():
                sd_notify.extend(MORE_S, status)


def _work() -> float:
    """CPU seconds of all threads but this one."""
    return time.process_time() - time.thread_time()


def recovering(table: SlotTable) -> str:
    """The progress of recovery, over all processes."""
    left = len(table.numbers(slots.RECOVERING))
    done = len(table.numbers(slots.LEADER, slots.FOLLOWER, slots.OFFLINE))
    if not left:
        return "starting"
    return f"recovering: {100 * done // (left + done)} % ({done} of {left + done} partitions)"
