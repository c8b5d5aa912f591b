"""The control bus between two threads: answers and refusals."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from odradek.broker.errors import OdradekError
from odradek.broker.process import control_bus


def _refuse() -> None:
    raise OdradekError("not today")


def _fail() -> None:
    raise RuntimeError("a bug")


@pytest.fixture
def gone() -> threading.Event:
    """The command `late` waits for this event before it answers."""
    return threading.Event()


@pytest.fixture
def served(tmp_path: Path, gone: threading.Event) -> Iterator[Path]:
    """A server on `tmp_path` that answers in a thread."""
    stop = threading.Event()
    ready = threading.Event()

    def serve() -> None:
        handlers: dict[str, control_bus.Handler] = {
            "add": lambda a, b: {"sum": a + b},
            "nothing": lambda: None,
            "late": lambda: {"gone": gone.wait(60)},
            "refuse": _refuse,
            "fail": _fail,
        }
        server = control_bus.ControlServer(tmp_path, "test", handlers)
        assert server.fileno() >= 0
        ready.set()
        while not stop.is_set():
            if not server.serve():
                time.sleep(0.005)
        server.close()

    thread = threading.Thread(target=serve)
    thread.start()
    ready.wait(10)
    yield tmp_path
    stop.set()
    thread.join(10)


def ask(run_dir: Path, command: str, **arguments: Any) -> dict[str, Any]:
    return control_bus.request(run_dir, "test", command, 10_000, **arguments)


def test_answers(served: Path) -> None:
    assert ask(served, "add", a=1, b=2) == {"sum": 3}
    assert ask(served, "nothing") == {}


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        ("refuse", {}, "^not today$"),
        ("fail", {}, "RuntimeError: a bug"),
        ("unknown", {}, "not a command"),
        ("add", {"a": 1}, "TypeError"),
    ],
)
def test_refusals_do_not_end_the_server(served: Path, command: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(control_bus.ControlError, match=message):
        ask(served, command, **arguments)
    assert ask(served, "add", a=1, b=2) == {"sum": 3}


@pytest.mark.parametrize("message", [b"", b"{", b"[]", b"1", b'{"command": ["x"]}', b"\xff"])
def test_garbage_is_answered(served: Path, message: bytes) -> None:
    asking: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.REQ)
    with asking:
        asking.setsockopt(zmq.LINGER, 0)
        asking.setsockopt(zmq.RCVTIMEO, 10_000)
        asking.connect(f"ipc://{served}/control-test.ipc")
        asking.send(message)
        assert b'"ok": false' in asking.recv()
    assert ask(served, "nothing") == {}


def test_disconnected_client_does_not_affect_others(served: Path, gone: threading.Event) -> None:
    with pytest.raises(control_bus.ControlTimeout):
        control_bus.request(served, "test", "late", 50)
    gone.set()
    assert ask(served, "nothing") == {}


def test_request_without_a_server_times_out(tmp_path: Path) -> None:
    with pytest.raises(control_bus.ControlTimeout, match="did not answer 'x' within 50 ms"):
        control_bus.request(tmp_path, "nobody", "x", 50)


def test_events_without_a_listener_are_dropped(tmp_path: Path) -> None:
    publisher = control_bus.EventPublisher(tmp_path)
    for number in range(5000):
        publisher.publish("tick", number=number)
    publisher.close()
