"""A log directory fails in a cluster that is half Apache Kafka 3.9.1: each side's controller understands the other.

A file replaces a directory of Kafka's broker, so its next checkpoint fails. Ours fails by an injected error.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.cluster.tree import znodes
from odradek.cluster.tree.zookeeper import ZooKeeperTree

from ..faults.failing import fail
from ..faults.power import SEAM
from ..harness.apache import ApacheMember
from ..harness.broker import Broker
from ..harness.process import wait_until
from ..harness.wire import informed
from ..harness.zookeeper import ZooKeeper

KAFKA, OURS = 0, 1
PARTITIONS = 4

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1"), pytest.mark.timeout(240)]


class Mixed:
    """ZooKeeper, a broker of Apache's and one of ours, with the log directories `data` and `two` each."""

    def __init__(self, folder: Path) -> None:
        self.zookeeper = ZooKeeper(folder / "zookeeper")
        self.kafka = ApacheMember(folder / "kafka", KAFKA, self.zookeeper.connect, factor=1)
        self.ours = Broker(
            folder / "odradek", broker_id=OURS, zookeeper_connect=self.zookeeper.connect, odradek_workers=1,
            zookeeper_session_timeout_ms=6000, controlled_shutdown_retry_backoff_ms=200,
            log_dirs=f"{folder}/odradek/data,{folder}/odradek/two",
        )  # fmt: skip
        self.two = {KAFKA: folder / "kafka/two", OURS: folder / "odradek/two"}
        text = self.kafka.properties.read_text()
        data = f"log.dirs={self.kafka.data_dir}"
        self.kafka.properties.write_text(text.replace(data, f"{data},{self.two[KAFKA]}"))
        self._faults = folder / "faults.json"
        path = os.pathsep.join(filter(None, [str(SEAM), self.ours.env.get("PYTHONPATH")]))
        self.ours.env |= {"PYTHONPATH": path, "ODRADEK_TEST_FAULTS": str(self._faults)}
        self.bootstrap = f"{self.kafka.bootstrap},{self.ours.bootstrap}"

    def start(self, *brokers: Any) -> None:
        """The first one is the controller; the metadata of either has both."""
        self.zookeeper.start()
        self.tree = ZooKeeperTree(self.zookeeper.connect)
        for broker in brokers:
            broker.start()
        wait_until(lambda: informed(self.bootstrap.split(",")), 30, "both to know both")

    def close(self) -> None:
        self.tree.close()
        self.ours.close()
        self.kafka.kill()
        self.zookeeper.kill()

    def make_topic(self, *replicas: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic("t", PARTITIONS, replica_assignment=[list(replicas)] * PARTITIONS)])["t"].result(
            30
        )
        wait_until(lambda: self.led_by(replicas[0]) == set(range(PARTITIONS)), 30, "leaders")

    def break_(self, broker: int) -> set[int]:
        """Fail the broker's second directory; return the partitions in it."""
        lost = {int(path.name.rpartition("-")[2]) for path in self.two[broker].glob("t-[0-9]")}
        if broker == KAFKA:
            self.two[KAFKA].rename(self.two[KAFKA].with_name("gone"))
            self.two[KAFKA].write_text("no directory")
        else:
            fail(self._faults, self.two[OURS], ("pwritev", "pwrite", "fsync"))
        return lost

    def states(self) -> list[znodes.PartitionState]:
        paths = [znodes.state_path("t", index) for index in range(PARTITIONS)]
        found = self.tree.get_many(paths)
        return [znodes.decode_state(node[0]) for node in found if node is not None]

    def led_by(self, broker: int) -> set[int]:
        return {index for index, state in enumerate(self.states()) if state.leader == broker}

    def in_sync(self, broker: int) -> set[int]:
        return {index for index, state in enumerate(self.states()) if broker in state.isr}

    def produce(self) -> list[Any]:
        """Produce a record to each partition; the error codes."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "message.timeout.ms": 60_000})
        errors: list[Any] = []
        for index in range(PARTITIONS):
            producer.produce("t", b"x", partition=index, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(70) == 0
        return [error for error in errors if error is not None]


@pytest.fixture
def mixed(tmp_path: Path) -> Iterator[Mixed]:
    made = Mixed(tmp_path)
    try:
        yield made
    finally:
        made.close()


def test_kafkas_controller_learns_of_our_failed_dir(mixed: Mixed) -> None:
    mixed.start(mixed.kafka, mixed.ours)
    mixed.make_topic(OURS, KAFKA)
    assert mixed.produce() == []
    lost = mixed.break_(OURS)
    assert lost and lost != set(range(PARTITIONS))
    assert mixed.produce() == [], "retries reach the new leader"
    wait_until(lambda: mixed.led_by(KAFKA) == lost, 60, "Kafka to lead the lost partitions")
    assert mixed.in_sync(OURS) == mixed.led_by(OURS) == set(range(PARTITIONS)) - lost


def test_our_controller_learns_of_kafkas_failed_dir(mixed: Mixed) -> None:
    mixed.start(mixed.ours, mixed.kafka)
    assert znodes.decode_controller(mixed.tree.get(znodes.CONTROLLER)[0]) == OURS
    mixed.make_topic(OURS, KAFKA)
    assert mixed.produce() == [], "acks=all shows that Kafka has created its logs; its place in the first ISRs does not"
    wait_until(lambda: mixed.in_sync(KAFKA) == set(range(PARTITIONS)), 60, "Kafka to be in sync")
    lost = mixed.break_(KAFKA)
    assert lost and lost != set(range(PARTITIONS))
    wait_until(lambda: "broker 0 lost a log directory" in mixed.ours.log, 60, "Kafka's notice")
    wait_until(lambda: mixed.in_sync(KAFKA) == set(range(PARTITIONS)) - lost, 60, "the lost replicas to leave the ISRs")
    assert mixed.produce() == []
