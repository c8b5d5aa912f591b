"""The coordinator's requests to the controller, seen from the controller's end of the channel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.coordinator.controller_client import ControllerClient
from odradek.cluster import internal
from odradek.ipc import forward
from odradek.ipc.channel import Channel, Listener
from odradek.workers.dispatch import unregistered_brokers


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = SimpleNamespace(now=100.0)
    monkeypatch.setattr(unregistered_brokers, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


@pytest.fixture
def link(tmp_path: Path) -> Iterator[ControllerClient]:
    made = ControllerClient(tmp_path)
    yield made
    assert made.channel is not None
    made.channel.close()


@pytest.fixture
def controller(tmp_path: Path, link: ControllerClient) -> Iterator[Channel]:
    """The controller's end."""
    door = Listener(tmp_path / "controller.sock")
    assert link.connect()
    accepted = door.accept()
    assert accepted is not None
    yield accepted
    accepted.close()
    door.close()


def test_brokers_are_looked_for_once_a_second_at_most(link: ControllerClient, controller: Channel, clock: Any) -> None:
    for _ in range(3):
        link.look_for_brokers()
    (asked,) = map(forward.decode, controller.receive())
    assert asked.api_key == internal.LOOK_FOR_BROKERS
    clock.now += unregistered_brokers._PAUSE_S
    link.look_for_brokers()
    assert controller.receive() == [], "a second request is sent before the response"
    controller.send(forward.encode_reply(asked.token, internal.encode({})))
    link.receive(lambda: None)
    link.look_for_brokers()
    assert len(controller.receive()) == 1
