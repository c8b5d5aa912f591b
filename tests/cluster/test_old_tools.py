"""Apache Kafka's tools that write to ZooKeeper: they write znodes, which the elected controller carries out.

The tools of 0.8.2.2 have no topic ids: the controller adds them, and keeps the id of a known topic.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from odradek.cluster.tree import znodes
from odradek.cluster.tree.zookeeper import ZooKeeperTree

from ..clients.admin import unique
from ..harness import java
from ..harness.broker import Broker
from ..harness.cluster import Cluster
from ..harness.process import wait_until

VERSION = "0.8.2.2"
RECORDS = 300

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1", f"java-{VERSION}"), pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def tree(cluster: Cluster) -> Iterator[ZooKeeperTree]:
    opened = ZooKeeperTree(cluster.zookeeper.connect)
    yield opened
    opened.close()


def tool(cluster: Cluster, name: str, *words: str) -> str:
    """The output of an admin tool of the old version."""
    done = java.run(VERSION, f"kafka.admin.{name}", "--zookeeper", cluster.zookeeper.connect, *words)
    return done.stdout.decode()


def rows(cluster: Cluster, topic: str) -> dict[int, Any]:
    """A topic's partitions that have a leader, from Metadata."""
    return _led(cluster.metadata(topic))


def _led(answer: Any) -> dict[int, Any]:
    return {row.partition_index: row for row in answer.topics[0].partitions if row.leader_id >= 0}


def await_partitions(cluster: Cluster, topic: str, partitions: int) -> None:
    """Wait until every broker knows the leaders of all partitions: a client may ask any of them."""

    def known(broker: Broker) -> bool:
        with broker.wire() as wire:
            return len(_led(wire.metadata(topic))) == partitions

    wait_until(lambda: all(map(known, cluster.running())), 30, f"{partitions} leaders of {topic} at every broker")


def send(cluster: Cluster, topic: str, partitions: int) -> None:
    """Send RECORDS records to each partition, with acks=all."""
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(RECORDS * partitions):
        producer.produce(
            topic, b"%d" % number, partition=number % partitions, on_delivery=lambda e, _: errors.append(e)
        )
    assert producer.flush(60) == 0
    assert not any(errors)


def count(cluster: Cluster, topic: str, partition: int) -> int:
    """The number of records of a partition."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "counts"})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
    finally:
        consumer.close()
    return high - low


def make(cluster: Cluster, *words: str) -> str:
    """Create a topic of two partitions and factor 3, and wait for the leaders."""
    name = unique("old")
    tool(cluster, "TopicCommand", "--create", "--topic", name, "--partitions", "2", "--replication-factor", "3", *words)
    await_partitions(cluster, name, 2)
    return name


def test_topic_of_old_tool_is_created(cluster: Cluster, tree: ZooKeeperTree) -> None:
    name = make(cluster, "--config", "retention.ms=7200000")
    node = znodes.decode_topic(tree.get(znodes.topic_path(name))[0])
    assert node.id is not None
    send(cluster, name, 2)
    assert [count(cluster, name, index) for index in range(2)] == [RECORDS, RECORDS]
    described = tool(cluster, "TopicCommand", "--describe", "--topic", name)
    assert "PartitionCount:2\tReplicationFactor:3\tConfigs:retention.ms=7200000" in described


def test_added_partitions_keep_records(cluster: Cluster, tree: ZooKeeperTree) -> None:
    """The tools rewrite the node without its id."""
    name = make(cluster)
    send(cluster, name, 2)
    before = znodes.decode_topic(tree.get(znodes.topic_path(name))[0]).id
    tool(cluster, "TopicCommand", "--alter", "--topic", name, "--partitions", "4")
    await_partitions(cluster, name, 4)
    assert znodes.decode_topic(tree.get(znodes.topic_path(name))[0]).id == before
    send(cluster, name, 4)
    assert [count(cluster, name, index) for index in range(4)] == [2 * RECORDS] * 2 + [RECORDS] * 2


def test_configs_of_old_tool_are_in_force(cluster: Cluster) -> None:
    from confluent_kafka.admin import AdminClient, ConfigResource

    name = make(cluster)
    tool(cluster, "TopicCommand", "--alter", "--topic", name, "--config", "max.message.bytes=65536")
    admin, resource = AdminClient({"bootstrap.servers": cluster.bootstrap}), ConfigResource("topic", name)

    def value() -> str:
        return admin.describe_configs([resource])[resource].result(30)["max.message.bytes"].value

    wait_until(lambda: value() == "65536", 30, "the config to be in force")


def test_old_tools_reassign_partitions_and_elect_leaders(cluster: Cluster, tmp_path: Path) -> None:
    name = make(cluster)
    send(cluster, name, 2)
    wanted = {0: [2, 1], 1: [0, 2]}
    plan = tmp_path / "plan.json"
    moves = [{"topic": name, "partition": index, "replicas": brokers} for index, brokers in wanted.items()]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    tool(cluster, "ReassignPartitionsCommand", "--reassignment-json-file", str(plan), "--execute")

    def moved() -> bool:
        return {index: list(row.replica_nodes) for index, row in rows(cluster, name).items()} == wanted

    wait_until(moved, 60, "the partitions to move")
    assert "failed" not in tool(cluster, "ReassignPartitionsCommand", "--reassignment-json-file", str(plan), "--verify")
    tool(cluster, "PreferredReplicaLeaderElectionCommand")
    wait_until(lambda: [rows(cluster, name)[index].leader_id for index in (0, 1)] == [2, 0], 30, "preferred leaders")
    assert [count(cluster, name, index) for index in range(2)] == [RECORDS, RECORDS]


def test_topic_is_deleted_by_old_tool(cluster: Cluster, tree: ZooKeeperTree) -> None:
    name = make(cluster)
    tool(cluster, "TopicCommand", "--delete", "--topic", name)
    wait_until(lambda: tree.exists(znodes.topic_path(name)) is None, 30, "the removal of the topic")
    left = lambda: [path for one in cluster.brokers for path in one.data_dir.glob(f"{name}-*")]  # noqa: E731
    wait_until(lambda: not left(), 30, "the removal of its logs")


def test_no_broker_logs_a_traceback(cluster: Cluster) -> None:
    for broker in cluster.brokers:
        assert "Traceback" not in broker.log
