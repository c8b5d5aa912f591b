"""A broker registers again before its failure is detected: its logs may have lost records."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.controller.elected.brokers import Brokers
from odradek.cluster.tree import znodes
from odradek.cluster.tree.tree import Create, Delete

from .simulation.tree import ZooKeeper
from .simulation.world import World

PATH = f"{znodes.BROKER_IDS}/2"


class Peers:
    """Connections to the other broker, by its address; and a controller's knowledge of it."""

    def __init__(self) -> None:
        self.tree: Any = ZooKeeper(World(1)).connect(0, lambda: None)
        self.tree.ensure(znodes.BROKER_IDS)
        self.opened: list[Any] = []
        self.closed: list[int] = []
        config: Any = {"broker.id": 1, "inter.broker.listener.name": "PLAINTEXT"}
        self.brokers = Brokers(config, self.tree, self, lambda _: None, lambda _: None)  # type: ignore[arg-type]

    def connect(self, number: int, address: Any, *_: Any) -> Any:
        self.opened.append(address)
        return SimpleNamespace(close=lambda: self.closed.append(number))


def encoded(host: str = "there") -> bytes:
    return znodes.encode_broker({"PLAINTEXT": (host, 9092)}, {"PLAINTEXT": "PLAINTEXT"}, None, 0)


NONE: set[int] = set()


@pytest.mark.parametrize("at_once", [False, True])
def test_new_registration_raises_leader_epochs(at_once: bool) -> None:
    peers = Peers()
    tree, brokers = peers.tree, peers.brokers
    tree.multi([Create(PATH, encoded())])
    assert brokers.read() == (NONE, {2}, NONE)
    first = brokers.epochs[2]
    tree.multi([Delete(PATH)])
    if not at_once:
        assert brokers.read() == ({2}, NONE, NONE)
    tree.multi([Create(PATH, encoded())])
    assert brokers.read() == ({2} if at_once else NONE, {2}, NONE)
    assert (peers.closed, brokers.epochs[2] > first) == ([2], True)
    assert brokers.read() == (NONE, NONE, NONE)


def test_other_endpoints_are_seen_without_an_event() -> None:
    """The endpoints changed while ZooKeeper was away and the watch was lost, or the event has not come yet."""
    peers = Peers()
    peers.tree.multi([Create(PATH, encoded())])
    peers.brokers.read()
    peers.tree.set(PATH, encoded("elsewhere"))
    assert peers.brokers.read() == (NONE, NONE, {2})
    assert peers.brokers.nodes[2].endpoints == {"PLAINTEXT": ("elsewhere", 9092)}
    assert (peers.opened, peers.closed) == ([("there", 9092), ("elsewhere", 9092)], [2])
    assert peers.brokers.read() == (NONE, NONE, NONE)
    assert not peers.brokers.read_changed(2), "the event brings no change"
