"""When an address is known to be a broker's: what waits for that is neither refused too early nor for ever."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from odradek.broker import admission
from odradek.broker.admission import Admission
from odradek.cluster import znodes
from odradek.cluster.embedded import EmbeddedTree
from odradek.cluster.view import View

from ..harness.process import readable, wait_until

CONFIG: dict[str, Any] = {"inter.broker.listener.name": "INTERNAL", "odradek.inter.broker.allowed.hosts": None}


class Sources:
    """The controller's loop, which calls what is ready when it is told to."""

    def __init__(self) -> None:
        self.watched: dict[int, Callable[[int], None]] = {}

    def watch(self, fd: int, events: int, ready: Callable[[int], None]) -> None:
        self.watched[fd] = ready

    def unwatch(self, fd: int) -> None:
        del self.watched[fd]

    def turn(self) -> None:
        for fd, ready in list(self.watched.items()):
            if readable(fd, 0.05):
                ready(1)


class Scene:
    def __init__(self, folder: Path) -> None:
        self.tree = EmbeddedTree(folder / "tree")
        self.tree.ensure(znodes.BROKER_IDS)
        self.view = View(0, "c")
        self.sources = Sources()
        self.admission = Admission(CONFIG, self.view, self.tree, self.sources, lambda: None)
        self.answers: list[bool] = []
        self._now = 1e9

    def ask(self, host: str, listener: str = "INTERNAL") -> None:
        self.admission.ask(listener, host, self.answers.append)

    def look(self) -> None:
        """The tree is read, if somebody waits for it; whatever time has gone by."""
        self._now += admission._PAUSE_S
        self.admission.tick(self._now)

    def register(self, number: int, host: str) -> None:
        node = {
            "version": 5,
            "endpoints": [f"INTERNAL://{host}:1"],
            "listener_security_protocol_map": {"INTERNAL": "PLAINTEXT"},
        }
        self.tree.create(f"{znodes.BROKER_IDS}/{number}", json.dumps(node).encode())

    def told(self, number: int, host: str) -> None:
        """By the controller."""
        self.view.set_brokers([{"id": number, "rack": None, "endpoints": {"INTERNAL": [host, 1]}}])
        self.admission.follow()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.admission.close()
    made.tree.close()


def test_a_broker_that_the_controller_has_told_of_is_known_at_once(scene: Scene) -> None:
    scene.told(1, "10.0.0.1")
    scene.ask("10.0.0.1")
    scene.ask("10.0.0.1", "PLAINTEXT")
    assert scene.answers == [True, False]


def test_who_is_not_known_waits_until_the_tree_was_read(scene: Scene) -> None:
    """Not only until a name is looked up that the controller has told of meanwhile."""
    scene.register(2, "10.0.0.2")
    scene.ask("10.0.0.2")
    scene.ask("10.0.0.3")
    scene.told(1, "localhost")
    wait_until(lambda: scene.sources.turn() or scene.view.admitted.takes("INTERNAL", "127.0.0.1"), 60)
    assert scene.answers == []
    scene.look()
    assert wait_until(lambda: scene.sources.turn() or len(scene.answers) == 2, 60)
    assert scene.answers == [True, False]


def test_names_that_cannot_be_looked_up_are_tried_again(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that does not answer for a moment: an order that is refused then would not come again."""
    scene.register(2, "no-such-host.invalid")
    scene.ask("10.0.0.2")
    for _ in range(2):
        scene.look()
        wait_until(lambda: scene.sources.turn() or not scene.admission._looking, 60)
        assert scene.answers == []
    scene.register(3, "10.0.0.2")
    scene.look()
    assert wait_until(lambda: scene.sources.turn() or scene.answers, 60) == [True]


def test_nobody_waits_for_ever_for_a_name(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "_PATIENCE_S", 0.0)
    scene.register(2, "no-such-host.invalid")
    scene.ask("10.0.0.2")
    scene.look()
    assert wait_until(lambda: scene.sources.turn() or scene.answers, 60) == [False]
