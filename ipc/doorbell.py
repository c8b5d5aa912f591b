"""Doorbells: a datagram without content that says "look at the shared memory again".

Layout    : socket file `bell-<role>` in the run directory.
Owner     : the process of that role binds it (after it holds its role byte) and reads it.
Writers   : any process of the broker.
Lock      : none.
Crash rule: ringing a dead process's bell is refused and ignored; its successor looks at everything once anyway.
A full queue means the bell is already ringing. Nothing may depend on a bell alone: sleepers also look on a timer.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from odradek.ipc.roles import role_name


def _path(rundir: str | os.PathLike[str], role: int) -> str:
    return str(Path(rundir) / f"bell-{role_name(role)}")


class Doorbell:
    """The bell of one process: poll `fileno()`, then `drain()` before looking."""

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

    def hear(self) -> None:
        """Swallow one ring, for who polls again soon: while there are more, `fileno()` stays readable."""
        try:
            self._socket.recv(1)
        except BlockingIOError:
            pass

    def drain(self) -> None:
        """Swallow all rings so far; look at the shared memory after this, not before."""
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
        """Ring `role`'s bell; no effect when it is ringing already or nobody is there."""
        path = self._paths.get(role)
        if path is None:
            path = self._paths[role] = _path(self._rundir, role)
        try:
            self._socket.sendto(b"", path)
        except OSError:  # full, nobody there, no memory: those who wait look on a timer as well
            pass

    def close(self) -> None:
        self._socket.close()
