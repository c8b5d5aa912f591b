"""The supervisor's sockets while listeners are added and removed."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.broker import config as configuration
from odradek.broker.errors import OdradekError
from odradek.broker.process import sockets
from odradek.broker.supervisor.boot import Boot
from odradek.broker.supervisor.listening_sockets import PREPARED_S, ListeningSockets

from ...harness.process import free_port

MAP = "PLAINTEXT:PLAINTEXT,A:PLAINTEXT,B:PLAINTEXT"


class Here:
    """The part of a Boot that the sockets need."""

    def __init__(self, run_dir: Path) -> None:
        self.port, self.other = free_port(), free_port()
        self.base = f"PLAINTEXT://127.0.0.1:{self.port}"
        config = configuration.resolve(
            {"listeners": self.base, "log.dirs": str(run_dir), "listener.security.protocol.map": MAP}
        )
        listening = sockets.open_all(config.listeners, 10)
        self.boot = cast(Boot, SimpleNamespace(config=config, run_dir=run_dir, listening=listening))
        self.sockets = ListeningSockets(self.boot)

    def prepare(self, text: str, keep: bool = True) -> Any:
        return self.sockets.prepare({"listeners": text}, keep)["ports"]

    def listen(self, text: str) -> Any:
        return self.sockets.listen({"listeners": text})["ports"]

    def a(self, port: int | None = None) -> str:
        return f"{self.base},A://127.0.0.1:{self.other if port is None else port}"


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    made = Here(tmp_path)
    yield made
    made.sockets.expire(float("inf"))
    for sock in made.boot.listening.values():
        sock.close()


def takes(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_prepared_then_listening(here: Here) -> None:
    assert here.prepare(here.a()) == {"PLAINTEXT": here.port, "A": here.other}
    assert takes(here.other) and set(here.boot.listening) == {"PLAINTEXT"}
    before = here.boot.listening["PLAINTEXT"]
    assert here.listen(here.a()) == {"PLAINTEXT": here.port, "A": here.other}
    assert here.boot.listening["PLAINTEXT"] is before
    saved = configuration.saved(here.boot.run_dir)
    assert [endpoint.name for endpoint in saved.listeners] == ["PLAINTEXT", "A"]
    here.listen(here.base)
    assert not takes(here.other) and takes(here.port)


def test_only_tried(here: Here) -> None:
    here.prepare(here.a(), keep=False)
    assert not takes(here.other)


def test_the_change_does_not_come(here: Here) -> None:
    here.prepare(here.a())
    here.sockets.expire(0)
    assert takes(here.other)
    here.sockets.expire(float("inf"))
    assert not takes(here.other) and PREPARED_S > 2


def test_another_change_comes(here: Here) -> None:
    """Prepared sockets that the other change does not need are closed."""
    here.prepare(here.a())
    assert here.listen(f"{here.base},B://127.0.0.1:0")["B"]
    assert not takes(here.other)


def test_a_port_that_another_program_has(here: Here) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", here.other))
        other.listen()
        for ask in (here.prepare, here.listen):
            with pytest.raises(OdradekError, match="in use by another program"):
                ask(here.a())
    assert set(here.boot.listening) == {"PLAINTEXT"} and takes(here.port)


def test_any_port_stays_the_same(here: Here) -> None:
    ports = here.prepare(here.a(0))
    assert here.prepare(here.a(0)) == ports == here.listen(here.a(0)) == here.listen(here.a(0))
    assert here.boot.config.listeners[1].port == ports["A"] == here.boot.config.advertised[1].port


def test_a_name_takes_over_the_socket_of_a_removed_one(here: Here) -> None:
    here.listen(here.a())
    sock = here.boot.listening["A"]
    renamed = here.a().replace("A://", "B://")
    assert here.prepare(renamed)["B"] == here.other
    assert here.listen(renamed)["B"] == here.other
    assert here.boot.listening["B"] is sock and takes(here.other)


def test_a_full_disk(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(here.boot.config), "save", full)
    with pytest.raises(OdradekError, match="No space left"):
        here.listen(here.a())
    assert set(here.boot.listening) == {"PLAINTEXT"}
    assert [endpoint.name for endpoint in here.boot.config.listeners] == ["PLAINTEXT"]


def test_sockets_of_an_acceptor_with_another_parent(here: Here) -> None:
    for sock in here.boot.listening.values():
        sock.close()
    here.boot.listening = {}
    with pytest.raises(OdradekError, match="with sockets of its own"):
        here.listen(here.a())
