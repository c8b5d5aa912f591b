"""SCRAM credentials compared with Apache Kafka 3.9.1: equal answers and nodes for equal requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from odradek.cluster.tree import znodes
from odradek.cluster.tree.zookeeper import ZooKeeperTree
from tests.harness import java
from tests.harness.apache import ApacheMember
from tests.harness.broker import Broker
from tests.harness.process import wait_until
from tests.harness.wire import Wire, informed
from tests.harness.zookeeper import ZooKeeper

from .scram_requests import SECRET, alter, deletion, describe, upsertion

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1")]

Answer = Any
Ask = Callable[[Wire], Answer]


class Pair:
    """Apache Kafka and this broker, each in its own single-broker cluster, below its own path of one ZooKeeper."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.zookeeper = ZooKeeper(folder / "zookeeper").start()
        stack.callback(self.zookeeper.kill)
        self.kafka = ApacheMember(folder / "kafka", 0, f"{self.zookeeper.connect}/kafka")
        stack.callback(self.kafka.kill)
        self.kafka.start()
        connect = f"{self.zookeeper.connect}/ours"
        self.ours = Broker(folder / "ours", broker_id=0, zookeeper_connect=connect, zookeeper_session_timeout_ms=6000)
        stack.callback(self.ours.close)
        self.ours.start()
        for bootstrap in (self.kafka.bootstrap, self.ours.bootstrap):
            wait_until(partial(informed, [bootstrap]), 30, f"a controller at {bootstrap}")
        self.trees = [ZooKeeperTree(f"{self.zookeeper.connect}/{root}") for root in ("kafka", "ours")]

    def both(self, ask: Ask) -> list[Answer]:
        """The answers of Kafka and of this broker."""
        return [self._ask(one.bootstrap, ask) for one in (self.kafka, self.ours)]

    def _ask(self, bootstrap: str, ask: Ask) -> Answer:
        with Wire(bootstrap) as wire:
            return ask(wire)

    def nodes(self) -> list[dict[str, dict[str, str]]]:
        """The configs of all users in each tree."""
        return [
            {
                name: znodes.decode_config(tree.get(f"{znodes.USER_CONFIGS}/{name}")[0])
                for name in tree.children(znodes.USER_CONFIGS)
            }
            for tree in self.trees
        ]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with ExitStack() as stack:
        yield Pair(tmp_path_factory.mktemp("pair"), stack)


STEPS: list[tuple[list[Any], list[Any]]] = [
    ([upsertion("alice"), upsertion("alice", 2, 8192), upsertion("a b/c*~é,=")], []),
    ([upsertion("low", 1, 4095)], []),
    ([upsertion("high", 2, 16385)], []),
    ([upsertion("most", 2, 16384)], []),
    ([upsertion("")], []),
    ([upsertion("odd", 0)], []),
    ([upsertion("odd", 3)], []),
    ([], [deletion("")]),
    ([], [deletion("odd", 7)]),
    ([], [deletion("nobody")]),
    ([], [deletion("most", 1)]),
    ([upsertion("twice"), upsertion("twice")], []),
    ([upsertion("alice")], [deletion("alice")]),
    ([], [deletion("alice", 2), deletion("alice", 2)]),
    ([upsertion("alice", 1, 8192)], [deletion("alice", 2)]),
    ([upsertion("bob", 9), upsertion("bob", 1, 4095)], []),
    ([upsertion("bob", 1, 4095), upsertion("bob", 9)], [deletion("bob", 8)]),
    ([upsertion("carol"), upsertion("bad", 1, 1)], [deletion("none")]),
    ([], [deletion("most", 2)]),
    ([], []),
]


def test_answers_and_nodes_equal_kafkas(pair: Pair) -> None:
    for number, (upsertions, deletions) in enumerate(STEPS):
        theirs, ours = map(sorted, pair.both(partial(alter, upsertions=upsertions, deletions=deletions)))
        assert ours == theirs, number
        kafka, odradek = pair.nodes()
        assert odradek == kafka, number
    assert set(pair.nodes()[1]) == {"alice", "a%20b%2Fc%2A%7E%C3%A9%2C%3D", "carol"}


@pytest.mark.parametrize(
    "users", [None, [], ["alice"], ["nobody"], ["alice", "alice"], [""], ["", ""], ["alice", "nobody", "carol", ""]]
)
def test_descriptions_equal_kafkas(pair: Pair, users: list[str] | None) -> None:
    pair.both(lambda wire: alter(wire, [upsertion("alice"), upsertion("alice", 2, 8192), upsertion("carol")]))
    theirs, ours = pair.both(lambda wire: describe(wire, users))
    assert ours == theirs


def test_answers_on_an_unreadable_credential_equal_kafkas(pair: Pair) -> None:
    for tree in pair.trees:
        tree.create(f"{znodes.USER_CONFIGS}/broken", znodes.encode_config({"SCRAM-SHA-256": "salt=???"}))
    theirs, ours = pair.both(lambda wire: describe(wire, ["broken"]))
    assert ours == theirs
    theirs, ours = pair.both(lambda wire: alter(wire, [], [deletion("broken")]))
    assert ours == theirs and ours[0][1] == 0


def configs(bootstrap: str, *words: str) -> str:
    done = java.run(
        "3.9.1", "kafka.admin.ConfigCommand", "--bootstrap-server", bootstrap, "--entity-type", "users", *words
    )
    return done.stdout.decode()


@pytest.mark.long
def test_kafka_configs_tool_works_alike_with_both(pair: Pair) -> None:
    """Only the nodes' keys are compared, since the tool's salts are random."""
    steps = [
        ["--entity-name", "tool", "--alter", "--add-config", f"SCRAM-SHA-256=[iterations=8192,password={SECRET}]"],
        ["--entity-name", "tool", "--alter", "--add-config", f"SCRAM-SHA-512=[password={SECRET}]"],
        ["--entity-name", "tool", "--describe"],
        ["--entity-name", "tool", "--alter", "--delete-config", "SCRAM-SHA-256"],
        ["--describe"],
    ]
    for words in steps:
        theirs, ours = (configs(one.bootstrap, *words) for one in (pair.kafka, pair.ours))
        assert ours == theirs, words
    kafka, odradek = pair.nodes()
    assert odradek["tool"].keys() == kafka["tool"].keys() == {"SCRAM-SHA-512"}
    assert SECRET not in pair.ours.log


def test_changed_users_survive_a_restart(pair: Pair) -> None:
    pair.both(lambda wire: alter(wire, [upsertion("kept")]))
    pair.ours.restart()
    wait_until(lambda: informed([pair.ours.bootstrap]), 30, "a controller")
    with Wire(pair.ours.bootstrap) as wire:
        assert describe(wire, ["kept"]) == (0, [("kept", 0, "", [(1, 4096)])])
