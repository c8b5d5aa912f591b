"""The supervisor's end of the control bus, which a broker of a program opens at the first connection.

ZeroMQ takes longer to load than a process to start, and a twentieth of the memory of such a broker, which seldom gets
a command. So that broker makes the listening sockets itself, and ZeroMQ takes them over at the first connection.
Owner: the supervisor. Crash rule: as process.control_bus.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import select
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odradek.broker.process.control_bus import ControlServer, EventPublisher, Handler

AGAIN_S = 1.0
_BACKLOG = 100  # as ZeroMQ's
_NEEDED = 16  # descriptors that ZeroMQ takes for its threads and first connections: without one it ends the process

log = logging.getLogger(__name__)


class SupervisorBus:
    """Answers commands and publishes events once it is open; before that, an event has no subscriber."""

    def __init__(self, run_dir: Path, commands: Mapping[str, Handler], poll: select.poll) -> None:
        self._run_dir = run_dir
        self._commands = commands
        self._poll = poll
        self._listening: list[socket.socket] = []  # for commands and events, until ZeroMQ has them
        self._connected: select.epoll | None = None  # of these
        self._next_try = -math.inf
        self._control: ControlServer | None = None
        self._events: EventPublisher | None = None

    def listen(self) -> None:
        """Listen; the first connection opens the bus. Harmless when repeated. What binding raises leaves all as it
        was."""
        if self._control is not None or self._connected is not None:
            return
        from odradek.broker.process import control_bus  # now: the code may be replaced before the first command

        connected = select.epoll()
        self._listening = _made(
            [control_bus.server_path(self._run_dir, "supervisor"), control_bus.events_path(self._run_dir)]
        )
        for one in self._listening:
            connected.register(one, select.EPOLLIN)
        self._poll.register(connected, select.POLLIN)
        self._connected = connected

    def open(self) -> None:
        """Load ZeroMQ, and let it serve the sockets; harmless when repeated. What that raises leaves all as it was."""
        if self._control is not None:
            return
        from odradek.broker.process import control_bus

        self.listen()
        command, event = (one.fileno() for one in self._listening)
        _require_descriptors(command)
        control = control_bus.ControlServer(self._run_dir, "supervisor", self._commands, command)
        try:
            events = control_bus.EventPublisher(self._run_dir, event)
        except BaseException:
            control.close()
            raise
        self._stop_listening()
        self._poll.register(control, select.POLLIN)
        self._control, self._events = control, events

    def serve(self) -> None:
        """Answer all waiting commands."""
        if self._connected is not None and self._connected.poll(0):
            self._try_to_open(self._connected)
        if self._control is not None:
            self._control.serve()

    def publish(self, event: str, **details: Any) -> None:
        """Send an event to all subscribers; `details` must be JSON."""
        if self._events is not None:
            self._events.publish(event, **details)

    def close(self) -> None:
        """Close at once."""
        self._stop_listening()
        if self._control is not None and self._events is not None:
            self._poll.unregister(self._control)
            self._control.close()
            self._events.close()

    def _try_to_open(self, connected: select.epoll) -> None:
        """Without ZeroMQ, as when no descriptor is left, the broker serves on, and a later turn tries again."""
        if time.monotonic() < self._next_try:
            return
        try:
            self.open()
        except Exception:
            log.exception("no commands and no events yet: trying again in %g s", AGAIN_S)
            self._next_try = time.monotonic() + AGAIN_S
            self._forget(connected)  # else it ends each wait of the poll at once

    def _forget(self, connected: select.epoll) -> None:
        with contextlib.suppress(KeyError):
            self._poll.unregister(connected)

    def _stop_listening(self) -> None:
        if self._connected is None:
            return
        self._forget(self._connected)
        self._connected.close()
        for one in self._listening:
            one.close()
        self._connected, self._listening = None, []


def _require_descriptors(one: int) -> None:
    """Raises OSError unless there are as many as ZeroMQ needs."""
    taken: list[int] = []
    try:
        taken.extend(os.dup(one) for _ in range(_NEEDED))
    finally:
        for each in taken:
            os.close(each)


def _made(paths: list[Path]) -> list[socket.socket]:
    made: list[socket.socket] = []
    try:
        for path in paths:
            path.unlink(missing_ok=True)  # of a broker that was killed: the role byte is ours
            made.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
            made[-1].bind(str(path))
            made[-1].listen(_BACKLOG)
    except BaseException:
        for one in made:
            one.close()
        raise
    return made
