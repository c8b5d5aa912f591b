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


@pytest.mark.parametrize("at_once", [False, True])
def test_another_registration_is_another_life(at_once: bool) -> None:
    servers = ZooKeeper(World(1))
    tree = servers.connect(0, lambda: None)
    tree.ensure(znodes.BROKER_IDS)
    node = znodes.encode_broker({"PLAINTEXT": ("there", 9092)}, {"PLAINTEXT": "PLAINTEXT"}, None, 0)
    tree.multi([Create(PATH, node)])
    closed: list[int] = []
    connect = lambda number, *_: SimpleNamespace(close=lambda: closed.append(number))  # noqa: E731
    config: Any = {"broker.id": 1, "inter.broker.listener.name": "PLAINTEXT"}
    brokers = Brokers(config, tree, SimpleNamespace(connect=connect), lambda _: None, lambda _: None)  # type: ignore[arg-type]
    assert brokers.read() == (set(), {2})
    first = brokers.epochs[2]
    tree.multi([Delete(PATH)])
    if not at_once:
        assert brokers.read() == ({2}, set())
    tree.multi([Create(PATH, node)])
    assert brokers.read() == ({2} if at_once else set(), {2})
    assert (closed, brokers.epochs[2] > first) == ([2], True)
    assert brokers.read() == (set(), set())
