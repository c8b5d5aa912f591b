"""Clusters of three brokers on one ZooKeeper, measured as one broker: its cost is that of all together."""

from __future__ import annotations

import signal
import time
from concurrent.futures import ThreadPoolExecutor

import psutil

from odradek.loadtest.clusters.zookeeper import VERSION, ZooKeeper
from odradek.loadtest.harness import wire
from odradek.loadtest.harness.brokers import JAVA_OPTIONS, ApacheKafka, Broker, Odradek
from odradek.loadtest.harness.tools import BrokerError, kafka_jars

SIZE = 3
_TOGETHER_SECONDS = 60
_REPLICATED = {
    "default.replication.factor": SIZE,
    "min.insync.replicas": 2,
    "offsets.topic.replication.factor": SIZE,
}


class OdradekMember(Odradek):
    """One Odradek broker of a cluster; one worker each, because three brokers share two cores."""


class KafkaMember(ApacheKafka):
    """One Apache Kafka broker of a cluster on ZooKeeper."""

    def prepare(self) -> None:
        """Write its properties; a directory needs no format."""
        self.write_properties({"listeners": f"PLAINTEXT://{self.bootstrap}"})

    def command(self) -> list[str]:
        """Uses the heap and the collector of Kafka's own scripts."""
        words = ["-cp", f"{kafka_jars(VERSION)}/*", "kafka.Kafka", str(self.folder / "server.properties")]
        return ["java", *JAVA_OPTIONS, *words]


class Cluster(Broker):
    """Three members; `port` is the first one's, which also leads the topics that the cluster creates."""

    member: type[Broker]

    def prepare(self) -> None:
        """Create ZooKeeper's and the members' files."""
        self.zookeeper = ZooKeeper(self.folder / "zookeeper")
        self.members = [
            self.member(self.folder / str(number), self._settings(number)) for number in range(SIZE)
        ]  # fmt: skip
        self.port = self.members[0].port

    def _settings(self, number: int) -> dict[str, object]:
        return {"broker.id": number, "zookeeper.connect": self.zookeeper.connect, **_REPLICATED, **self.settings}

    @property
    def bootstrap(self) -> str:
        """All members' addresses."""
        return ",".join(member.bootstrap for member in self.members)

    def start(self, partitions: int = 0) -> float:
        """Start all; returns the seconds until each responds."""
        self.zookeeper.start()
        began = time.monotonic()
        for member in self.members:
            member.launch()
        for member in self.members:
            member.started(partitions)
        self.wait_for_all()
        return time.monotonic() - began

    def wait_for_all(self) -> None:
        """Wait until each member knows all others."""
        deadline = time.monotonic() + _TOGETHER_SECONDS
        while any(wire.brokers(member.port) != SIZE for member in self.members):
            if time.monotonic() > deadline:
                raise BrokerError(f"{self.name}: the {SIZE} brokers do not form a cluster:\n{self.log_tail()}")
            time.sleep(0.02)

    def _end(self, how: signal.Signals) -> None:
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda member: member._end(how), self.members))
        self.zookeeper.stop()

    def family(self) -> list[psutil.Process]:
        """All processes of all members; not ZooKeeper's."""
        return [process for member in self.members for process in member.family()]

    def log_tail(self) -> str:
        """The end of each member's log."""
        return "\n".join(member.log_tail()[-700:] for member in self.members)

    def create(self, topic: str, partitions: int = 1) -> None:
        """Create a topic led by the first member, in sync on all."""
        wire.create_assigned(self.ports, topic, [list(range(SIZE))] * partitions)

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        wire.delete_anywhere(self.ports, topic)

    @property
    def ports(self) -> list[int]:
        """All members' ports."""
        return [member.port for member in self.members]


class OdradekCluster(Cluster):
    """Three Odradek brokers."""

    name, key, member = "Odradek", "odradek", OdradekMember

    @property
    def version(self) -> str:
        """The installed version."""
        return self.members[0].version


class KafkaCluster(Cluster):
    """Three Apache Kafka brokers on ZooKeeper, the last version that supports it."""

    name, key, member = "Apache Kafka", "kafka", KafkaMember

    @property
    def version(self) -> str:
        """The version of its jars."""
        return VERSION


CLUSTERS: tuple[type[Cluster], ...] = (KafkaCluster, OdradekCluster)
