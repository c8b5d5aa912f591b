"""Throttled connections: no request of them is taken until the throttle time is over (Kafka's ThrottledChannel).

The answer with the throttle time leaves at once; the client may wait of itself (KIP-219), and must in any case.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from odradek.ipc import slots
from odradek.workers.net.connection_state import MUTE, UNMUTE

if TYPE_CHECKING:
    from odradek.ipc.slots import Slot
    from odradek.workers.net.connection import Connection


class Delay(Protocol):
    """What a mute needs of the purgatory (workers.dispatch.purgatory)."""

    def watch(self, request: Mute) -> None:
        """Call `expire` at the deadline."""

    def remove(self, request: Mute) -> None:
        """Do not call it."""


class Mute:
    """A throttled connection; waits in the purgatory, for the deadline only (DelayedOperation)."""

    waits_for = slots.ANYTHING

    def __init__(self, connection: Connection, deadline: float, resume: Callable[[Connection], None]) -> None:
        self.deadline = deadline
        self.slots: list[Slot] = []
        self.finished = self.queued = False
        self._connection = connection
        self._resume = resume

    def find_slots(self) -> list[Slot]:
        return []

    def try_complete(self) -> bool:
        return False

    def answer(self) -> None:
        """Never called."""

    def expire(self) -> None:
        """The throttle time is over: continue with the connection's requests."""
        connection = self._connection
        connection.mute, connection.state = None, UNMUTE[connection.state]
        if not connection.state:
            self._resume(connection)

    def fail(self, fault: Exception) -> None:
        """The connection went on as far as it could."""


class Muting:
    """Mutes connections. `resume(connection)` continues with their requests."""

    def __init__(self, delay: Delay, resume: Callable[[Connection], None]) -> None:
        self._delay = delay
        self._resume = resume

    def mute(self, connection: Connection, throttle_ms: int) -> None:
        """Take no request of the connection for so long, from now on."""
        deadline = time.monotonic() + throttle_ms / 1000
        connection.state = MUTE[connection.state]
        mute = connection.mute
        if mute is None:
            connection.mute = mute = Mute(connection, deadline, self._resume)
            self._delay.watch(mute)
        else:
            mute.deadline = max(mute.deadline, deadline)

    def forget(self, connection: Connection) -> None:
        """The connection has ended."""
        if connection.mute is not None:
            self._delay.remove(connection.mute)
            connection.mute = None
