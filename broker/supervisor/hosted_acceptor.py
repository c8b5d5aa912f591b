"""The acceptor within the supervisor: in the broker of a program, where it works too little for a process of its own.

Owner     : the supervisor. It holds the acceptor's role byte and row of the process table, so both have its pid.
Crash rule: it ends with the supervisor, and so do all other processes of the broker.
"""

from __future__ import annotations

import select
import socket

from odradek.broker.acceptor.acceptor import Acceptor
from odradek.broker.errors import OdradekError
from odradek.broker.process.process import Process
from odradek.broker.supervisor.boot import Boot
from odradek.ipc import roles


class HostedAcceptor:
    """An acceptor whose turns are those of the supervisor's loop."""

    def __init__(self, boot: Boot, poll: select.poll) -> None:
        """Accept from now on. Raises OdradekError when another process is the acceptor."""
        if not boot.locks.hold(roles.ACCEPTOR):
            raise OdradekError("an acceptor is running already")
        self._boot = boot
        self._poll = poll
        boot.shared.processes.enter(roles.ACCEPTOR)
        self._process = Process(roles.ACCEPTOR, boot.run_dir, boot.config, boot.locks, boot.shared)
        self._handed = boot.listening
        self._acceptor = Acceptor(self._process, _copies(boot))
        self._wait_s = 0.0  # the first turn comes at once
        self._poll.register(self._acceptor, select.POLLIN)
        self._process.running()

    def within(self, seconds: float) -> float:
        """The seconds until its next turn, at most `seconds`."""
        return min(self._wait_s, seconds)

    def turn(self) -> None:
        """Take new connections and workers; listen where the supervisor listens now."""
        if self._handed != self._boot.listening:
            self._handed = self._boot.listening
            self._acceptor.listen(_copies(self._boot))
        self._acceptor.turn(0)
        self._wait_s = self._acceptor.adjust()

    def end(self) -> None:
        """Accept no more; harmless when repeated."""
        if self._boot.locks.release(roles.ACCEPTOR):
            self._process.draining()
            self._acceptor.finish()
            self._acceptor.listen({})
            self._poll.unregister(self._acceptor)
            self._wait_s = float("inf")


def _copies(boot: Boot) -> dict[str, socket.socket]:
    """The supervisor closes its own when it listens no more."""
    return {name: sock.dup() for name, sock in boot.listening.items()}
