"""The acceptor within the supervisor: in the broker of a program, where it works too little for a process of its own.

Owner     : the supervisor. It holds the acceptor's role byte and row of the process table, so both have its pid.
Crash rule: it ends with the supervisor, and so do all other processes of the broker. Where a process would die of an
            error, as without descriptors, this closes all it has, and starts again after RETRY_S. Workers register
            again, as with a new process.
"""

from __future__ import annotations

import logging
import math
import select
import socket
import time
from collections.abc import Mapping

from odradek.broker.acceptor.acceptor import Acceptor
from odradek.broker.errors import OdradekError
from odradek.broker.process.process import Process
from odradek.ipc import processes

log = logging.getLogger(__name__)

RETRY_S = 1.0

Sockets = Mapping[str, socket.socket]


class HostedAcceptor:
    """An acceptor whose turns are those of the supervisor's loop."""

    def __init__(self, process: Process, listening: Sockets, poll: select.poll) -> None:
        """Accept from now on; `process` has the acceptor's role. Raises OdradekError when another process is it, and
        what the start of an acceptor raises."""
        if not process.locks.hold(process.role):
            raise OdradekError("an acceptor is running already")
        self._process = process
        self._poll = poll
        self._wait_s = 0.0  # the first turn comes at once
        self._next_start = -math.inf
        self._failure = ""  # the last one that was logged as a whole
        self._handed = listening
        self._acceptor: Acceptor | None = self._first(listening)

    def _first(self, listening: Sockets) -> Acceptor:
        """With the role's byte, a stop would look for another process that has it."""
        try:
            return self._start(listening)
        except BaseException:
            self._process.locks.release(self._process.role)
            raise

    def within(self, seconds: float) -> float:
        """The seconds until its next turn, at most `seconds`."""
        return min(self._wait_s, seconds)

    def turn(self, listening: Sockets) -> None:
        """Take new connections and workers; accept on these sockets, by listener, from now on. Raises nothing: the
        supervisor must go on."""
        if self._acceptor is None and time.monotonic() < self._next_start:
            return
        try:
            self._accept(listening)
        except Exception as error:
            self._log(error)
            self._close()
            self._process.shared.processes.set(self._process.role, "state", processes.STARTING)
            self._wait_s, self._next_start = RETRY_S, time.monotonic() + RETRY_S

    def _log(self, error: Exception) -> None:
        """The way to an error once, then a line."""
        text = repr(error)
        log.error("the acceptor has failed: it starts again in %g s: %s", RETRY_S, text, exc_info=text != self._failure)
        self._failure = text

    def _accept(self, listening: Sockets) -> None:
        if self._acceptor is None:
            self._acceptor = self._start(listening)
        elif self._handed != listening:
            self._acceptor.listen(_copies(listening))
        self._handed = listening
        self._acceptor.turn(0)
        self._wait_s = self._acceptor.adjust()

    def _start(self, listening: Sockets) -> Acceptor:
        self._process.shared.processes.enter(self._process.role)
        acceptor = Acceptor(self._process, _copies(listening))
        self._poll.register(acceptor, select.POLLIN)
        self._process.running()
        return acceptor

    def end(self) -> None:
        """Accept no more, as at the end of a process; harmless when repeated. Raises nothing: a stop must go on."""
        if self._next_start == math.inf:
            return
        self._wait_s = self._next_start = math.inf
        self._process.draining()
        try:
            if self._acceptor is not None:
                self._acceptor.finish()
        except Exception:
            log.exception("the acceptor could not pass on all that workers have handed back")
        self._close()
        self._process.locks.release(self._process.role)

    def _close(self) -> None:
        acceptor, self._acceptor = self._acceptor, None
        if acceptor is not None:
            self._poll.unregister(acceptor)
            acceptor.close()


def _copies(listening: Sockets) -> dict[str, socket.socket]:
    """The supervisor closes its own when it listens no more."""
    return {name: sock.dup() for name, sock in listening.items()}
