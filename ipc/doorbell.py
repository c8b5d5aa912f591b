"""Doorbells: an empty datagram that means "read the shared memory again".

Layout    : socket file `bell-<role>` in the run directory.
Owner     : the process of that role binds it (after it holds its role byte) and reads it.
Writers   : any process of the broker.
Lock      : none.
Crash rule: the kernel refuses a ring for a dead process, and the sender ignores that; the successor checks everything
            once anyway.
A full queue means the bell is already ringing. Nothing may depend on a bell alone: sleepers also check on a timer.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from odradek.ipc.roles import role_name


def _path(rundir: str | os.PathLike[str], role: int) -> str:
    return str(Path(rundir) / f"bell-{role_name(role)}")


class Doorbell:
    """The bell of one process: poll `fileno()`, then `drain()` before reading the shared memory."""

    def __init__(self, rundir: str | os.PathLike[str], role: int) -> None:
        path = _path(rundir, role)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        self._socket.bind(path)

    def fileno(self) -> int:
        return self._socket.fileno()

    def consume(self) -> None:
        """Consume one ring, for a caller that polls again soon: while more are queued, `fileno()` stays readable."""
        try:
            self._socket.recv(1)
        except BlockingIOError:
            pass

    def drain(self) -> None:
        """Consume all rings so far; read the shared memory after this, not before."""
        receive = self._socket.recv
        try:
            while True:
                receive(1)
        except BlockingIOError:
            pass

    def close(self) -> None:
        self._socket.close()


class Ringer:
    """Rings the bells of others."""

    def __init__(self, rundir: str | os.PathLike[str]) -> None:
        self._rundir = rundir
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        self._paths: dict[int, str] = {}

    def ring(self, role: int) -> None:
        """Ring `role`'s bell; no effect when it is ringing already or no process has that role."""
        path = self._paths.get(role)
        if path is None:
            path = self._paths[role] = _path(self._rundir, role)
        try:
            self._socket.sendto(b"", path)
        except OSError:  # queue full, no such process, no memory: waiting processes also check on a timer
            pass

    def close(self) -> None:
        self._socket.close()
