"""Messages between a service manager and a service: "here are sockets", "I am ready", "I am alive".

`sd_notify(3)` is one datagram to `$NOTIFY_SOCKET`, `sd_watchdog_enabled(3)` a period; `sd_listen_fds(3)`
is three environment variables and file descriptors from 3 up. The supervisor uses the last one for the acceptor as
well, so that an acceptor need not know whether systemd or the supervisor opened its sockets.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence

FIRST_FD = 3
MANAGER = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")  # meant for one process, not for its children
_WAIT_S = 1.0  # for a manager that does not read: other work must go on
_BEATS = 4  # within the time after which the manager considers a service hung


def notify(message: str, wait_s: float = _WAIT_S) -> bool:
    """Notify the service manager, e.g. `READY=1` or `STATUS=…`. False without a manager, or when it does not read."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    if address.startswith("@"):  # the abstract namespace
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to_manager:
            to_manager.settimeout(wait_s)
            to_manager.sendto(message.encode(), address)
    except OSError:  # also when no descriptor is left, which must not end the process
        return False
    return True


def extend(seconds: int, status: str) -> bool:
    """Ask the service manager for `seconds` from now on, for a start or a stop; False as `notify`."""
    return notify(f"STATUS={status}\nEXTEND_TIMEOUT_USEC={seconds * 1_000_000}")


def listen_environment(names: Sequence[str]) -> dict[str, str]:
    """The variables that announce `len(names)` sockets from fd 3 up, in that order.

    LISTEN_PID is left out, as it is not known before exec; the receiver takes its absence as "me"."""
    return {"LISTEN_FDS": str(len(names)), "LISTEN_FDNAMES": ":".join(names)}


def inherited(environ: Mapping[str, str] | None = None) -> list[tuple[str, int]]:
    """The (name, fd) of every socket handed to this process; empty when there are none.

    The fds are made close-on-exec, so that they do not leak further."""
    environ = os.environ if environ is None else environ
    if environ.get("LISTEN_PID", str(os.getpid())) != str(os.getpid()):
        return []
    count = int(environ.get("LISTEN_FDS") or 0)
    names = environ.get("LISTEN_FDNAMES", "").split(":") if count else []
    names += ["unknown"] * (count - len(names))
    for fd in range(FIRST_FD, FIRST_FD + count):
        os.set_inheritable(fd, False)
    return [(names[i], FIRST_FD + i) for i in range(count)]


class Watchdog:
    """Notifies the manager that this process's loop runs, often enough for WATCHDOG_USEC."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        environ = os.environ if environ is None else environ
        mine = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self._period = int(environ.get("WATCHDOG_USEC") or 0) / 1e6 / _BEATS if mine else 0.0
        self._next = 0.0 if self._period else float("inf")

    @property
    def watched(self) -> bool:
        """Whether the manager asked for signs of life."""
        return self._period > 0

    def beat(self) -> None:
        """Call from every turn of the loop."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + self._period
            notify("WATCHDOG=1", 0)
