"""The supervisor's end of the control bus, when it cannot be opened at once."""

from __future__ import annotations

import select
import socket
import threading
import time
from pathlib import Path

import pytest

from odradek.broker.process import control_bus, supervisor_bus
from odradek.broker.process.supervisor_bus import SupervisorBus


def test_bus_opens_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    poll = select.poll()
    bus = SupervisorBus(tmp_path, {"status": lambda: None}, poll)

    def refuse(_run_dir: Path, _listening: int) -> None:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as broken, pytest.raises(OSError):
        broken.setattr(control_bus, "EventPublisher", refuse)
        bus.open()
    bus.serve()
    bus.publish("ready")
    bus.open()
    assert (tmp_path / "events.ipc").exists() and (tmp_path / "control-supervisor.ipc").exists()
    bus.publish("ready")
    bus.close()
    assert poll.poll(0) == [], "nothing of it is left in the poll"


def test_bus_that_listens_opens_with_the_first_connection(tmp_path: Path) -> None:
    """What clients sent before it opened is answered; a file that a killed broker left is no hindrance."""
    (tmp_path / "events.ipc").touch()
    poll, answers = select.poll(), list[object]()
    bus = SupervisorBus(tmp_path, {"status": lambda: {"ready": True}}, poll)
    bus.listen()
    bus.listen()
    bus.serve()
    clients = [
        threading.Thread(target=lambda: answers.append(control_bus.request(tmp_path, "supervisor", "status")))
        for _ in range(5)
    ]
    for one in clients:
        one.start()
    while any(one.is_alive() for one in clients):
        poll.poll(20)
        bus.serve()
    assert answers == [{"ready": True}] * 5
    bus.close()
    assert poll.poll(0) == [], "nothing of it is left in the poll"


def test_bus_that_cannot_open_tries_again_and_lets_the_poll_sleep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poll, tries = select.poll(), list[int]()
    monkeypatch.setattr(supervisor_bus, "AGAIN_S", 0.02)
    bus = SupervisorBus(tmp_path, {"status": lambda: None}, poll)
    bus.listen()

    def refuse(*words: object) -> None:
        tries.append(1)
        raise OSError(24, "Too many open files")

    with socket.socket(socket.AF_UNIX) as client, monkeypatch.context() as broken:
        client.connect(str(tmp_path / "events.ipc"))
        broken.setattr(control_bus, "ControlServer", refuse)
        assert poll.poll(0)
        bus.serve()
        assert (poll.poll(0), len(tries)) == ([], 1)
        while len(tries) < 3:
            time.sleep(0.01)
            bus.serve()
    later = threading.Thread(target=control_bus.request, args=(tmp_path, "supervisor", "status"))
    later.start()
    while later.is_alive():  # until there is an answer
        bus.serve()
        time.sleep(0.01)
    bus.close()


def test_bus_that_closes_before_it_opened(tmp_path: Path) -> None:
    poll = select.poll()
    bus = SupervisorBus(tmp_path, {}, poll)
    bus.listen()
    bus.close()
    assert poll.poll(0) == []
    with socket.socket(socket.AF_UNIX) as client, pytest.raises(ConnectionRefusedError):
        client.connect(str(tmp_path / "events.ipc"))
