"""The control bus: commands to supervisor and controller (REQ/REP), events to any subscriber (PUB/SUB).

Layout    : `control-<name>.ipc` and `events.ipc`, UNIX sockets of zmq in the private run directory; messages
            are JSON: {"command": …, arguments…} → {"ok": true, …} or {"ok": false, "error": …}; an event is
            one JSON object with "event" and "time_ms".
Owner     : the process of that name binds, only once it holds its role byte: a second bind of an ipc path
            silently takes it from the first.
Writers   : any process of the same user (the directory is 0700).
Lock      : the role byte of the binder.
Crash rule: a request to a dead process ends in ControlTimeout; a lost event is harmless, as the process table
            and the metadata version say the same.
This module sets what is unsafe in zmq by default: LINGER is endless, HWM is 1000 messages, waits have no limit.
zmq itself is loaded with the first socket: a broker of a program may never need one (process.supervisor_bus).
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek.broker.errors import OdradekError

if TYPE_CHECKING:
    import zmq

log = logging.getLogger(__name__)

SEND_TIMEOUT_MS = 1000
_HWM = 1000

Handler = Callable[..., Mapping[str, Any] | None]


class ControlError(OdradekError):
    """The other side refused or failed; the text is its answer."""


class ControlTimeout(ControlError):
    """No answer came in time."""


def _socket(kind: str, receive_timeout_ms: int) -> zmq.Socket[bytes]:
    import zmq

    made: zmq.Socket[bytes] = zmq.Context.instance().socket(getattr(zmq, kind))
    made.setsockopt(zmq.LINGER, 0)
    made.setsockopt(zmq.SNDHWM, _HWM)
    made.setsockopt(zmq.RCVHWM, _HWM)
    made.setsockopt(zmq.SNDTIMEO, SEND_TIMEOUT_MS)
    made.setsockopt(zmq.RCVTIMEO, receive_timeout_ms)
    return made


def server_path(run_dir: Path, name: str) -> Path:
    """The socket of the process `name` that takes commands."""
    return run_dir / f"control-{name}.ipc"


def events_path(run_dir: Path) -> Path:
    """The socket of the events."""
    return run_dir / "events.ipc"


def _bound(kind: str, path: Path, listening: int) -> zmq.Socket[bytes]:
    """A socket at `path`: one that listens there already, of which it has a copy, if `listening` is a descriptor."""
    import zmq

    made, own = _socket(kind, 0), -1
    try:
        if listening >= 0:
            own = os.dup(listening)
            made.setsockopt(zmq.USE_FD, own)
        made.bind(f"ipc://{path}")
    except BaseException:
        made.close()
        if own >= 0:
            os.close(own)
        raise
    return made


class ControlServer:
    """Answers commands. Poll `fileno()`, and call `serve()` on every wake: zmq's fd is edge-triggered."""

    def __init__(self, run_dir: Path, name: str, handlers: Mapping[str, Handler], listening: int = -1) -> None:
        """`listening`: the descriptor of a socket that listens at `server_path`; -1: zmq makes one."""
        self._handlers = dict(handlers)
        self._socket = _bound("REP", server_path(run_dir, name), listening)

    def fileno(self) -> int:
        """The fd that becomes readable when there may be commands."""
        import zmq

        return int(self._socket.getsockopt(zmq.FD))

    def serve(self) -> int:
        """Answer all waiting commands; returns how many."""
        import zmq

        count = 0
        while int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            self._socket.send(json.dumps(self._answer(self._socket.recv())).encode())
            count += 1
        return count

    def _answer(self, message: bytes) -> dict[str, Any]:
        try:
            request = json.loads(message)
            command = request.pop("command")
            handler = self._handlers[command]
        except (ValueError, KeyError, TypeError, AttributeError):
            return {"ok": False, "error": f"not a command: {message[:200]!r}"}
        try:
            return {"ok": True, **(handler(**request) or {})}
        except OdradekError as error:
            return {"ok": False, "error": str(error)}
        except Exception as error:
            log.exception("control command %s failed", command)
            return {"ok": False, "error": f"{type(error).__name__}: {error}"}

    def close(self) -> None:
        """Close at once; drops unsent answers."""
        self._socket.close()


class EventPublisher:
    """Sends events to subscribers; never waits, and drops events without a subscriber."""

    def __init__(self, run_dir: Path, listening: int = -1) -> None:
        """`listening`: as a ControlServer's, at `events_path`."""
        self._socket = _bound("PUB", events_path(run_dir), listening)

    def publish(self, event: str, **details: Any) -> None:
        """Send one event; `details` must be JSON."""
        import zmq

        message = {"event": event, "time_ms": time.time_ns() // 1_000_000, **details}
        try:
            self._socket.send(json.dumps(message).encode(), zmq.NOBLOCK)
        except zmq.Again:
            pass

    def close(self) -> None:
        """Close at once."""
        self._socket.close()


def request(run_dir: Path, name: str, command: str, timeout_ms: int = 5000, **arguments: Any) -> dict[str, Any]:
    """Send `command` to the process `name`; returns its answer. Raises ControlTimeout or ControlError."""
    import zmq

    with _socket("REQ", timeout_ms) as asking:
        asking.connect(f"ipc://{server_path(run_dir, name)}")
        try:
            asking.send(json.dumps({"command": command, **arguments}).encode())
            answer = json.loads(asking.recv())
        except zmq.Again:
            raise ControlTimeout(f"the {name} did not answer {command!r} within {timeout_ms} ms") from None
    if not answer.pop("ok"):
        raise ControlError(answer["error"])
    return dict(answer)


def events(run_dir: Path, timeout_ms: int = 1000) -> Generator[dict[str, Any] | None, None, None]:
    """Every event from now on, with None for each `timeout_ms` without one."""
    import zmq

    with _socket("SUB", timeout_ms) as listening:
        listening.setsockopt(zmq.SUBSCRIBE, b"")
        listening.connect(f"ipc://{events_path(run_dir)}")
        while True:
            try:
                yield dict(json.loads(listening.recv()))
            except zmq.Again:
                yield None
