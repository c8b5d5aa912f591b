"""Malformed znodes, written by tools or people: they disable their topic or broker, and no process fails."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cluster.tree import notices, znodes
from odradek.cluster.tree.znodes import MalformedNode, TopicNode
from odradek.cluster.tree.zookeeper import ZooKeeperTree

from ..clients.admin import create_named
from ..clients.raw.batches import batch
from ..clients.raw.calls import produce
from ..fuzz.watch import Watch
from ..harness.broker import Broker
from ..harness.process import wait_until
from ..harness.zookeeper import ZooKeeper

# -- decoders

DECODERS: list[Callable[[bytes], Any]] = [
    znodes.decode_topic, znodes.decode_state, znodes.decode_config, znodes.decode_cluster_id,
    znodes.decode_controller, znodes.decode_broker,
]  # fmt: skip
NAMES = (
    "version", "topic_id", "partitions", "adding_replicas", "0", "-1", "leader", "leader_epoch", "isr", "brokerid",
    "controller_epoch", "config", "id", "endpoints", "host", "port", "listener_security_protocol_map",
)  # fmt: skip
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(NAMES)
nonsense = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=6)
)


@given(nonsense)
def test_decoders_raise_only_malformed_node(value: Any) -> None:
    for decode in DECODERS:
        try:
            decode(json.dumps(value).encode())
        except MalformedNode:
            continue


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000, b"null", b"7", b"Infinity"])
def test_invalid_json_is_malformed(data: bytes) -> None:
    for decode in DECODERS:
        if data or decode is not znodes.decode_config:
            with pytest.raises(MalformedNode):
                decode(data)
    assert notices.decode_partitions(data) == []
    assert notices.decode_reassignment(data) == {}
    assert notices.decode_log_dir_event(data) is None


TOPIC = '{"version":3,"topic_id":"AAAAAAAAAAAAAAAAAAAAAQ","partitions":%s,"adding_replicas":{},"removing_replicas":{}}'
STATE = '{"controller_epoch":1,"leader":%s,"version":1,"leader_epoch":%s,"isr":%s}'


@pytest.mark.parametrize(
    "partitions",
    [
        '{"-1":[0]}',
        '{"2147483647":[0]}',
        '{"x":[0]}',
        '{"0":["0"]}',
        '{"0":[-1]}',
        '{"0":0}',
        '{"0":[1.5]}',
        '{"0":[]}',
    ],
)
def test_invalid_partitions_are_malformed(partitions: str) -> None:
    with pytest.raises(MalformedNode):
        znodes.decode_topic((TOPIC % partitions).encode())
    assert znodes.decode_topic((TOPIC % '{"0":[0]}').encode()).replicas == {0: [0]}


@pytest.mark.parametrize("state", [('"0"', 0, [0]), (0, "true", [0]), (0, 0, '"00"'), (0, 1 << 31, [0]), (-2, 0, [0])])
def test_invalid_states_are_malformed(state: tuple[Any, ...]) -> None:
    with pytest.raises(MalformedNode):
        znodes.decode_state((STATE % state).encode())


# -- a live controller


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    running = ZooKeeper(tmp_path_factory.mktemp("zookeeper"))
    running.start()
    yield running
    running.kill()


def litter(tree: ZooKeeperTree, mark: str) -> None:
    """Write malformed nodes at every path that a broker reads."""
    texts = [b"", b"{", b"[1]", b'"x"', (TOPIC % '{"-1":[0]}').encode(), (TOPIC % '{"0":["a"]}').encode()]
    for number, text in enumerate(texts):
        tree.create(f"{znodes.TOPICS}/bad{mark}{number}", text)
        tree.create(f"{znodes.TOPIC_CONFIGS}/bad{mark}{number}", text)
        tree.create(f"{znodes.BROKER_IDS}/9{number}" if mark == "a" else f"{znodes.BROKER_IDS}/x{number}", text)
        tree.create(f"{znodes.BROKER_CONFIGS}/8{mark}{number}", text)
        for path in (znodes.ISR_CHANGE, znodes.LOG_DIR_EVENT, znodes.CONFIG_CHANGE):
            tree.create(path, text, sequence=True)
    tree.create(f"{znodes.TOPICS}/a b{mark}", (TOPIC % '{"0":[0]}').encode())
    tree.create(f"{znodes.DELETE_TOPICS}/none{mark}")
    tree.create(f"{znodes.DELETE_TOPICS}/none{mark}/below")
    topic, state = f"torn{mark}", (STATE % ('"leader"', 0, [0])).encode()
    for path in (znodes.partitions_path(topic), znodes.partition_path(topic, 0)):
        tree.ensure(path)
    tree.create(znodes.state_path(topic, 0), state)
    tree.set(znodes.topic_path(topic), znodes.encode_topic(TopicNode(znodes.random_uuid(), {0: [0], 1: [0]})))
    config = znodes.encode_config({"min.insync.replicas": "many", "retention.ms": "-7", "segment.bytes": "x"})
    tree.create(f"{znodes.TOPIC_CONFIGS}/{topic}", config)
    tree.create(znodes.PREFERRED_ELECTION, b'{"partitions":[{"topic":"torn","partition":-1e999}]}')
    tree.create(znodes.REASSIGN_PARTITIONS, b'{"partitions":[{"topic":"torn","partition":0,"replicas":["x"]}]}')


@pytest.mark.live
@pytest.mark.needs("java-3.9.1")
@pytest.mark.timeout(180)
def test_broker_runs_with_malformed_nodes(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    """The broker starts, is elected, creates topics, and continues when more malformed nodes appear."""
    broker = Broker(tmp_path, broker_id=0, zookeeper_connect=zookeeper.connect, odradek_workers=1)
    tree = ZooKeeperTree(zookeeper.connect)
    try:
        broker.start()  # this creates the nodes
        broker.stop()
        litter(tree, "a")
        broker.start()
        watch = Watch(broker)
        with broker.wire(60) as wire:
            wait_until(lambda: wire.metadata().controller_id == 0, 60, "a controller")
            for round_, mark in enumerate("bc"):
                create_named(wire, f"good{round_}", 2)
                assert produce(wire, f"good{round_}", batch([b"x"])).error_code == 0
                if round_ == 0:
                    litter(tree, mark)
                    wait_until(
                        lambda: tree.exists(znodes.REASSIGN_PARTITIONS) is None,
                        60,
                        "the removal of the request by the controller",
                    )
        wait_until(lambda: not tree.children(znodes.ISR_CHANGES), 60, "the removal of the notifications")
        assert not watch.fault()
    finally:
        tree.close()
        broker.close()
