"""Settled broker epochs: the controller records them in the tree for its successor."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.broker.controller.elected.fenced_writes import FencedWrites
from odradek.broker.controller.elected.settled_epochs import SettledEpochs
from odradek.cluster.tree import znodes
from odradek.cluster.tree.embedded import EmbeddedTree
from odradek.cluster.tree.tree import NotDone


def test_next_controller_reads_settled_epochs(tmp_path: Path) -> None:
    tree = EmbeddedTree(tmp_path / "tree.db")
    tree.create(znodes.CONTROLLER_EPOCH, b"1")
    tree.create("/odradek", b"")
    fenced: list[bool] = []

    def settled_epochs() -> SettledEpochs:
        made = SettledEpochs(
            tree, FencedWrites(tree, tree.get(znodes.CONTROLLER_EPOCH)[1].version, lambda: fenced.append(True))
        )
        made.read()
        return made

    first = settled_epochs()
    assert first.unsettled({1: 10, 2: 20}) == set(), "no controller has recorded any so far"
    first.record({1: 10, 2: 20}, {1, 2})
    assert settled_epochs().unsettled({1: 10, 2: 21, 3: 30}) == {2, 3}
    first.record({1: 10}, {1, 2})  # broker 2 is suspected, and registered
    assert settled_epochs().unsettled({1: 10, 2: 20}) == set()
    written = tree.get(znodes.SETTLED_EPOCHS)[1].version
    first.record({1: 10}, {1, 2})
    assert tree.get(znodes.SETTLED_EPOCHS)[1].version == written
    first.record({1: 10, 3: 30}, {1, 3})
    assert settled_epochs().unsettled({1: 10, 2: 20, 3: 30}) == {2}
    tree.set(znodes.CONTROLLER_EPOCH, b"2")
    with pytest.raises(NotDone):
        first.record({1: 11}, {1})
    assert fenced == [True]
    assert settled_epochs().unsettled({1: 10, 3: 30}) == set()
    tree.close()


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"version":1}', b'{"brokers":{"a":1}}', b'{"brokers":{"1":null}}']
)
def test_invalid_node_is_rewritten(tmp_path: Path, data: bytes) -> None:
    tree = EmbeddedTree(tmp_path / "tree.db")
    tree.create(znodes.CONTROLLER_EPOCH, b"1")
    tree.create("/odradek", b"")
    tree.create(znodes.SETTLED_EPOCHS, data)
    settled = SettledEpochs(tree, FencedWrites(tree, 0, lambda: None))
    settled.read()
    assert settled.unsettled({1: 10}) == set()
    settled.record({1: 10}, {1})
    assert znodes.decode_settled_epochs(tree.get(znodes.SETTLED_EPOCHS)[0]) == {1: 10}
    tree.close()
