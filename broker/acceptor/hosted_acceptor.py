"""The acceptor within the supervisor: in the broker of a program, where it works too little for a process of its own.

Owner     : the supervisor. It holds the acceptor's role byte and row of the process table, so both have its pid.
Crash rule: it ends with the supervisor, and so do all other processes of the broker.
"""

from __future__ import annotations

import math
import select
import socket
from collections.abc import Mapping

from odradek.broker.acceptor.acceptor import Acceptor
from odradek.broker.errors import OdradekError
from odradek.broker.process.process import Process

Sockets = Mapping[str, socket.socket]


class HostedAcceptor:
    """An acceptor whose turns are those of the supervisor's loop."""

    def __init__(self, process: Process, listening: Sockets, poll: select.poll) -> None:
        """Accept from now on; `process` has the acceptor's role. Raises OdradekError when another process is it."""
        if not process.locks.hold(process.role):
            raise OdradekError("an acceptor is running already")
        process.shared.processes.enter(process.role)
        self._process = process
        self._handed = listening
        self._acceptor: Acceptor | None = Acceptor(process, _copies(listening))
        self._wait_s = 0.0  # the first turn comes at once
        self._poll = poll
        poll.register(self._acceptor, select.POLLIN)
        self._process.running()

    def within(self, seconds: float) -> float:
        """The seconds until its next turn, at most `seconds`."""
        return min(self._wait_s, seconds)

    def turn(self, listening: Sockets) -> None:
        """Take new connections and workers; accept on these sockets, by listener, from now on."""
        if self._acceptor is None:
            return
        if self._handed != listening:
            self._handed = listening
            self._acceptor.listen(_copies(listening))
        self._acceptor.turn(0)
        self._wait_s = self._acceptor.adjust()

    def end(self) -> None:
        """Accept no more, as at the end of a process; harmless when repeated."""
        if self._acceptor is None:
            return
        self._process.draining()
        self._acceptor.finish()
        self._poll.unregister(self._acceptor)
        self._acceptor.close()
        self._acceptor, self._wait_s = None, math.inf
        self._process.locks.release(self._process.role)


def _copies(listening: Sockets) -> dict[str, socket.socket]:
    """The supervisor closes its own when it listens no more."""
    return {name: sock.dup() for name, sock in listening.items()}
