"""An Odradek broker in a cluster of Apache Kafka 3.9.1 on ZooKeeper: it follows, joins the ISR, and leads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.cluster.tree import znodes
from odradek.cluster.tree.zookeeper import ZooKeeperTree

from ..harness.apache import ApacheMember
from ..harness.broker import Broker
from ..harness.process import wait_until
from ..harness.wire import informed
from ..harness.zookeeper import ZooKeeper

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1")]

KAFKA, OURS = 0, 1


class Mixed:
    """ZooKeeper, an Apache broker that is the controller, and one of ours."""

    def __init__(self, folder: Path) -> None:
        self.zookeeper = ZooKeeper(folder / "zookeeper")
        self.kafka = ApacheMember(folder / "kafka", KAFKA, self.zookeeper.connect, factor=2)
        self.ours = Broker(
            folder / "odradek", broker_id=OURS, zookeeper_connect=self.zookeeper.connect, odradek_workers=1,
            zookeeper_session_timeout_ms=6000, offsets_topic_replication_factor=2,
            controlled_shutdown_retry_backoff_ms=200,
        )  # fmt: skip
        self.bootstrap = f"{self.kafka.bootstrap},{self.ours.bootstrap}"


@pytest.fixture
def mixed(tmp_path: Path) -> Iterator[Mixed]:
    both = Mixed(tmp_path)
    try:
        both.zookeeper.start()
        both.kafka.start()
        both.ours.start()
        wait_until(lambda: informed(both.bootstrap.split(",")), 30, "both to know both")
        yield both
    finally:
        both.ours.close()
        both.kafka.kill()
        both.zookeeper.kill()


def state(tree: ZooKeeperTree, topic: str) -> znodes.PartitionState:
    return znodes.decode_state(tree.get(znodes.state_path(topic, 0))[0])


def produce(mixed: Mixed, topic: str, first: int, count: int) -> None:
    sender = Producer({"bootstrap.servers": mixed.bootstrap, "acks": "all", "compression.type": "lz4"})
    errors: list[object] = []
    for number in range(first, first + count):
        sender.produce(topic, b"%d" % number, partition=0, on_delivery=lambda error, _: errors.append(error))
    assert sender.flush(60) == 0
    assert errors == [None] * count


def consume(mixed: Mixed, topic: str, count: int) -> list[int]:
    reader = Consumer({"bootstrap.servers": mixed.bootstrap, "group.id": "mixed", "enable.auto.commit": False})
    reader.assign([TopicPartition(topic, 0, 0)])
    found = []
    for message in reader.consume(count, 60):
        assert message.error() is None
        found.append(int(message.value() or b""))
    reader.close()
    return found


def test_follows_kafka_and_leads_when_it_is_killed(mixed: Mixed) -> None:
    tree = ZooKeeperTree(mixed.zookeeper.connect)
    try:
        assert znodes.decode_controller(tree.get(znodes.CONTROLLER)[0]) == KAFKA
        admin = AdminClient({"bootstrap.servers": mixed.bootstrap})
        topic = NewTopic("mixed", 1, replica_assignment=[[KAFKA, OURS]], config={"min.insync.replicas": "2"})
        admin.create_topics([topic])["mixed"].result(30)
        assert (state(tree, "mixed").leader, sorted(state(tree, "mixed").isr)) == (KAFKA, [KAFKA, OURS])
        produce(mixed, "mixed", 0, 1000)
        assert consume(mixed, "mixed", 1000) == list(range(1000))

        mixed.ours.restart(kill=True)
        wait_until(lambda: sorted(state(tree, "mixed").isr) == [KAFKA, OURS], 60, "ours is in sync again")
        produce(mixed, "mixed", 1000, 500)

        mixed.kafka.kill()
        wait_until(lambda: state(tree, "mixed").leader == OURS, 60, "ours leads")
        assert consume(mixed, "mixed", 1500) == list(range(1500))

        wait_until(lambda: tree.children(znodes.BROKER_IDS) == [str(OURS)], 30, "Kafka's session has ended")
        mixed.kafka.start()
        wait_until(lambda: sorted(state(tree, "mixed").isr) == [KAFKA, OURS], 60, "Kafka follows ours as controller")
        produce(mixed, "mixed", 1500, 500)
        assert consume(mixed, "mixed", 2000) == list(range(2000))
    finally:
        tree.close()
