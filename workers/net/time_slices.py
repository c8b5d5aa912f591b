"""Slices of time: a client may send thousands of requests of a few bytes at once, and each may cost a millisecond.

A connection whose requests have taken SLICE_S rests, and all others have their turn before it continues. The clock is
read where more frames follow a request that is not pipelined, and where records had to be decoded.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from odradek.workers.net import connection_state
from odradek.workers.net.connection import Connection

SLICE_S = 0.02


class TimeSlices:
    """The connection that is being timed, and those that rest."""

    def __init__(self, resume: Callable[[Connection], None]) -> None:
        """`resume(connection)` continues with its requests."""
        self._resume = resume
        self.timed: Connection | None = None  # the connection that `_until` belongs to; None at the start of a turn
        self._until = 0.0
        self.resting: dict[Connection, None] = {}

    def spend(self, connection: Connection) -> None:
        """Account for an expensive request: a connection that has used SLICE_S rests."""
        now = time.monotonic()
        if connection is not self.timed:
            self.timed, self._until = connection, now + SLICE_S
        elif now >= self._until and not connection.closed:
            connection.state = connection_state.REST[connection.state]
            self.resting[connection] = None

    def wake(self) -> None:
        """Resume resting connections, each for a slice, while time is left; the others in the next turns."""
        until = time.monotonic() + SLICE_S
        for connection in list(self.resting):
            del self.resting[connection]
            self.timed = None
            connection.state = connection_state.CONTINUE[connection.state]
            if not connection.state:
                self._resume(connection)
            if time.monotonic() >= until:
                return
