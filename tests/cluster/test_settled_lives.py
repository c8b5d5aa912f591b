"""Which lives of brokers controllers have seen to, as the tree has it for the next one."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.broker.controller.elected.fenced_writes import Fenced
from odradek.broker.controller.elected.settled_lives import SettledLives
from odradek.cluster.tree import znodes
from odradek.cluster.tree.embedded import EmbeddedTree
from odradek.cluster.tree.tree import NotDone


def test_what_one_controller_has_noted_the_next_one_knows(tmp_path: Path) -> None:
    tree = EmbeddedTree(tmp_path / "tree.db")
    tree.create(znodes.CONTROLLER_EPOCH, b"1")
    tree.create("/odradek", b"")
    deposed: list[bool] = []

    def settled_lives() -> SettledLives:
        made = SettledLives(
            tree, Fenced(tree, tree.get(znodes.CONTROLLER_EPOCH)[1].version, lambda: deposed.append(True))
        )
        made.read()
        return made

    first = settled_lives()
    assert first.unsettled({1: 10, 2: 20}) == set(), "no controller has recorded any so far"
    first.record({1: 10, 2: 20}, {1, 2})
    assert settled_lives().unsettled({1: 10, 2: 21, 3: 30}) == {2, 3}
    first.record({1: 10}, {1, 2})  # 2 is taken for dead, and registered
    assert settled_lives().unsettled({1: 10, 2: 20}) == set()
    written = tree.get(znodes.LIVES)[1].version
    first.record({1: 10}, {1, 2})
    assert tree.get(znodes.LIVES)[1].version == written
    first.record({1: 10, 3: 30}, {1, 3})
    assert settled_lives().unsettled({1: 10, 2: 20, 3: 30}) == {2}
    tree.set(znodes.CONTROLLER_EPOCH, b"2")
    with pytest.raises(NotDone):
        first.record({1: 11}, {1})
    assert deposed == [True]
    assert settled_lives().unsettled({1: 10, 3: 30}) == set()
    tree.close()


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"version":1}', b'{"brokers":{"a":1}}', b'{"brokers":{"1":null}}']
)
def test_what_makes_no_sense_is_written_again(tmp_path: Path, data: bytes) -> None:
    tree = EmbeddedTree(tmp_path / "tree.db")
    tree.create(znodes.CONTROLLER_EPOCH, b"1")
    tree.create("/odradek", b"")
    tree.create(znodes.LIVES, data)
    lives = SettledLives(tree, Fenced(tree, 0, lambda: None))
    lives.read()
    assert lives.unsettled({1: 10}) == set()
    lives.record({1: 10}, {1})
    assert znodes.decode_lives(tree.get(znodes.LIVES)[0]) == {1: 10}
    tree.close()
