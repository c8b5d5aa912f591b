"""The supervisor's end of the control bus, which a broker of a program opens when it serves.

ZeroMQ takes longer to load than a process to start, and a broker gets no command in the first moments of its start.
Owner: the supervisor. Crash rule: as process.control_bus.
"""

from __future__ import annotations

import select
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odradek.broker.process.control_bus import ControlServer, EventPublisher, Handler


class SupervisorBus:
    """Answers commands and publishes events once it is open; before that, an event has no subscriber."""

    def __init__(self, run_dir: Path, commands: Mapping[str, Handler], poll: select.poll) -> None:
        self._run_dir = run_dir
        self._commands = commands
        self._poll = poll
        self._control: ControlServer | None = None
        self._events: EventPublisher | None = None

    def open(self) -> None:
        """Bind the sockets; harmless when repeated. What loading or binding raises leaves all as it was."""
        if self._control is not None:
            return
        from odradek.broker.process import control_bus

        control = control_bus.ControlServer(self._run_dir, "supervisor", self._commands)
        try:
            events = control_bus.EventPublisher(self._run_dir)
        except BaseException:
            control.close()
            raise
        self._poll.register(control, select.POLLIN)
        self._control, self._events = control, events

    def serve(self) -> None:
        """Answer all waiting commands."""
        if self._control is not None:
            self._control.serve()

    def publish(self, event: str, **details: Any) -> None:
        """Send an event to all subscribers; `details` must be JSON."""
        if self._events is not None:
            self._events.publish(event, **details)

    def close(self) -> None:
        """Close at once."""
        if self._control is not None and self._events is not None:
            self._poll.unregister(self._control)
            self._control.close()
            self._events.close()
