"""Nodes of the tree: Apache Kafka reads ours, and we read those of all its versions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from odradek.cluster.tree import notices, znodes
from odradek.cluster.tree.znodes import BrokerNode, PartitionState, TopicNode

from ..harness import java

FACTS = str(Path(__file__).with_name("NodeFacts.java"))
ID = bytes(range(16))
ENDS = {"PLAINTEXT": ("h", 9092), "INTERNAL": ("::1", 19092), "X-Y": ("10.0.0.1", 1)}
PROTOCOLS = {"PLAINTEXT": "PLAINTEXT", "INTERNAL": "SSL", "X-Y": "SASL_SSL"}
MOVING = TopicNode(ID, {0: [4, 5, 1], 1: [1, 2]}, {0: [4, 5]}, {0: [1]})
PARTITIONS = [("a", 0), ("b.c", 17)]
OURS = {
    "topic": znodes.encode_topic(MOVING),
    "broker": znodes.encode_broker(ENDS, PROTOCOLS, "r1", 5),
    "state": znodes.encode_state(PartitionState(-1, 3, [2, 1], 7)),
    "isr": notices.encode_partitions(PARTITIONS),
    "preferred": notices.encode_partitions(PARTITIONS),
    "reassign": b'{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[2,1]},'
    b'{"topic":"b","partition":3,"replicas":[]}]}',
    "log_dir": notices.encode_log_dir_event(3),
    "controller": znodes.encode_controller(2, 5),
}
PLAIN = BrokerNode({"PLAINTEXT": ("h", 9092)}, {"PLAINTEXT": "PLAINTEXT"}, None)
BROKERS: list[tuple[dict[str, Any], BrokerNode]] = [
    ({"version": 1, "host": "h", "port": 9092}, PLAIN),
    ({"version": 2, "host": "h", "port": 9092, "endpoints": ["PLAINTEXT://h:9092"]}, PLAIN),
    ({"version": 3, "host": "h", "port": 9092, "endpoints": ["PLAINTEXT://h:9092"], "rack": None}, PLAIN),
    (
        {"version": 3, "host": None, "port": -1, "endpoints": ["SSL://[::1]:1"], "rack": "r"},
        BrokerNode({"SSL": ("::1", 1)}, {"SSL": "SSL"}, "r"),
    ),
    (
        {
            "version": 4,
            "host": "h",
            "port": 9092,
            "endpoints": ["PLAINTEXT://h:9092", "MINE://a-b.c:2"],
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT", "MINE": "SSL"},
        },
        BrokerNode({"PLAINTEXT": ("h", 9092), "MINE": ("a-b.c", 2)}, {"PLAINTEXT": "PLAINTEXT", "MINE": "SSL"}, None),
    ),
    (json.loads(OURS["broker"]), BrokerNode(ENDS, PROTOCOLS, "r1")),
]


def registration(fields: dict[str, Any]) -> bytes:
    return json.dumps({"jmx_port": -1, "timestamp": "5", **fields}).encode()


def again(*nodes: tuple[str, bytes]) -> list[str]:
    """The nodes as Apache Kafka writes them after it has read ours."""
    asked = "".join(f"{kind}\t{data.decode()}\n" for kind, data in nodes)
    return java.run("3.9.1", FACTS, input=asked.encode()).stdout.decode().splitlines()


@pytest.mark.live
@pytest.mark.needs("java-3.9.1")
def test_kafka_reads_our_nodes() -> None:
    for (kind, data), theirs in zip(OURS.items(), again(*OURS.items()), strict=True):
        assert sorted_lists(json.loads(theirs)) == sorted_lists(json.loads(data)), kind


def sorted_lists(node: dict[str, Any]) -> dict[str, Any]:
    """The node without its time of writing, and with sorted sets."""
    node.pop("timestamp", None)
    if isinstance(node.get("partitions"), list):
        node["partitions"].sort(key=str)
    return node


@pytest.mark.live
@pytest.mark.needs("java-3.9.1")
def test_kafka_ignores_our_field_of_a_registration() -> None:
    data = znodes.encode_broker(ENDS, PROTOCOLS, "r1", 5, "INTERNAL")
    (theirs,) = again(("broker", data))
    assert znodes.decode_broker(data) == BrokerNode(ENDS, PROTOCOLS, "r1", "INTERNAL")
    assert znodes.decode_broker(theirs.encode()) == BrokerNode(ENDS, PROTOCOLS, "r1")


@pytest.mark.live
@pytest.mark.needs("java-3.9.1")
def test_registrations_of_all_versions_decode_as_in_kafka() -> None:
    data = [registration(fields) for fields, _ in BROKERS]
    for mine, theirs in zip(data, again(*(("broker", one) for one in data)), strict=True):
        assert znodes.decode_broker(theirs.encode()) == znodes.decode_broker(mine)


@pytest.mark.live
@pytest.mark.needs("java-3.9.1")
def test_paths_and_config_notifications_are_kafkas() -> None:
    paths, change = again(("paths", b""), ("config", b"users/alice/clients/app"))
    ours = [znodes.ISR_CHANGE, znodes.LOG_DIR_EVENT, znodes.CONFIG_CHANGE]
    assert paths.split(" ") == [*ours, znodes.PREFERRED_ELECTION, znodes.REASSIGN_PARTITIONS]
    assert change.encode() == notices.encode_config_change("users", "alice/clients/app")


@pytest.mark.parametrize(("fields", "node"), BROKERS)
def test_registrations_of_each_version_are_read(fields: dict[str, Any], node: BrokerNode) -> None:
    assert znodes.decode_broker(registration(fields)) == node


@pytest.mark.parametrize("bad", ["h:9092", "PLAINTEXT://h", "PLAINTEXT://h:x", ""])
def test_invalid_endpoint_is_refused(bad: str) -> None:
    with pytest.raises(ValueError, match="is not an endpoint"):
        znodes.decode_broker(registration({"version": 2, "host": None, "port": -1, "endpoints": [bad]}))


def test_topic_nodes_of_all_versions_are_read() -> None:
    assert znodes.decode_topic(OURS["topic"]) == MOVING
    old = TopicNode(None, {0: [2, 1], 10: [3]}, {}, {})
    assert znodes.decode_topic(b'{"version":1,"partitions":{"0":[2,1],"10":[3]}}') == old
    assert znodes.decode_topic(znodes.encode_topic(old)) == old
    second = b'{"version":2,"partitions":{"0":[1]},"adding_replicas":{},"removing_replicas":{"0":[1]}}'
    assert znodes.decode_topic(second) == TopicNode(None, {0: [1]}, {}, {0: [1]})


def test_state_and_controller_nodes_are_read() -> None:
    assert znodes.decode_state(OURS["state"]) == PartitionState(-1, 3, [2, 1], 7)
    assert znodes.decode_controller(OURS["controller"]) == 2
    assert znodes.decode_controller(b'{"version":1,"brokerid":4,"timestamp":"1"}') == 4


def test_notifications_are_read() -> None:
    assert notices.decode_partitions(OURS["isr"]) == PARTITIONS
    assert notices.decode_reassignment(OURS["reassign"]) == {("a", 0): [2, 1], ("b", 3): []}
    assert notices.decode_log_dir_event(OURS["log_dir"]) == 3


@pytest.mark.parametrize(
    "data", [b"", b"t", b"\xff", b"3", b"[]", b"{}", b"null", b'{"version":2,"entity_path":"x"}', b'{"partitions":[1]}']
)
def test_unreadable_notifications_are_empty(data: bytes) -> None:
    assert notices.decode_partitions(data) == []
    assert notices.decode_reassignment(data) == {}
    assert notices.decode_log_dir_event(data) is None
