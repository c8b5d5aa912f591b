"""Apache Kafka 0.8.2.2's consumer on a cluster: it finds brokers, members and offsets in ZooKeeper.

Its high-level consumer (kafka.consumer.ZookeeperConsumerConnector) finds brokers under /brokers/ids, leaders by
Metadata v0, claims partitions under /consumers/<group>/owners and commits under /consumers/<group>/offsets;
it fetches with Fetch v0 and ListOffsets v0.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from odradek.cluster.tree import znodes
from odradek.cluster.tree.zookeeper import ZooKeeperTree
from odradek.protocol.library import message_class as message

from ..harness import java
from ..harness.cluster import Cluster
from ..harness.process import wait_until
from .clients import make_topic

VERSION = "0.8.2.2"
PARTITIONS = 3
GROUP = "old"
_CONFIG = """
group.id={group}
zookeeper.session.timeout.ms=10000
zookeeper.sync.time.ms=200
rebalance.backoff.ms=500
rebalance.max.retries=20
refresh.leader.backoff.ms=200
auto.commit.interval.ms=200
"""

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1", f"java-{VERSION}"), pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


class OldConsumer:
    """A process with kafka.tools.ConsoleConsumer of 0.8.2.2."""

    def __init__(self, cluster: Cluster, folder: Path, topic: str, group: str, *words: str) -> None:
        self._printed = folder / f"consumer-{time.monotonic_ns()}"
        config = self._printed.with_suffix(".properties")
        config.write_text(_CONFIG.format(group=group))
        with self._printed.open("wb") as out, self._printed.with_suffix(".log").open("wb") as log:
            self.process: subprocess.Popen[bytes] = java.spawn(
                VERSION, "kafka.tools.ConsoleConsumer", "--zookeeper", cluster.zookeeper.connect, "--topic", topic,
                "--consumer.config", str(config), *words, stdout=out, stderr=log,
            )  # fmt: skip

    def values(self) -> list[str]:
        """The values printed so far; the last line may be incomplete."""
        return self._printed.read_text().rpartition("\n")[0].split()

    def stop(self, how: int = signal.SIGTERM) -> None:
        """Stop it; SIGTERM commits and releases the partitions, SIGKILL does neither."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        self.process.wait(60)


class Group:
    """ZooKeeper's nodes of a group of old consumers."""

    def __init__(self, tree: ZooKeeperTree, topic: str, name: str) -> None:
        self._tree = tree
        self._topic = topic
        self._path = f"{znodes.CONSUMERS}/{name}"

    def _children(self, path: str) -> list[str]:
        return self._tree.children(path) if self._tree.exists(path) is not None else []

    def members(self) -> list[str]:
        return self._children(f"{self._path}/ids")

    def owners(self) -> dict[int, str]:
        """The member that has claimed each partition."""
        path = f"{self._path}/owners/{self._topic}"
        claims = {int(index): self._tree.find(f"{path}/{index}") for index in self._children(path)}
        return {index: claim.decode().rpartition("-")[0] for index, claim in claims.items() if claim}

    def shared_by(self, members: int) -> bool:
        """Whether all partitions are claimed, by `members` different members."""
        owners = self.owners()
        return len(owners) == PARTITIONS and len(set(owners.values())) == members == len(self.members())

    def offsets(self) -> list[int]:
        """The committed offset of each partition; -1 for none."""
        path = f"{self._path}/offsets/{self._topic}"
        return [int(self._tree.find(f"{path}/{index}") or b"-1") for index in range(PARTITIONS)]


class World:
    """A topic that numbers are sent to, and consumers that must print all of them."""

    def __init__(self, cluster: Cluster, tree: ZooKeeperTree, folder: Path, group: str) -> None:
        self.cluster = cluster
        self.topic = make_topic(cluster, PARTITIONS)
        self.group = Group(tree, self.topic, group)
        self.consumers: list[OldConsumer] = []
        self._name, self._folder = group, folder
        self._sent: list[str] = []
        self._ends = [0] * PARTITIONS

    def send(self, count: int = 60) -> None:
        """Send numbers to all partitions, acknowledged."""
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "acks": "all", "enable.idempotence": True})
        for number in range(len(self._sent), len(self._sent) + count):
            producer.produce(self.topic, b"%d" % number, partition=number % PARTITIONS)
            self._sent.append(str(number))
            self._ends[number % PARTITIONS] += 1
        assert producer.flush(60) == 0

    def join(self, *words: str) -> OldConsumer:
        """Add a consumer to the group."""
        self.consumers.append(OldConsumer(self.cluster, self._folder, self.topic, self._name, *words))
        return self.consumers[-1]

    def leave(self, consumer: OldConsumer, how: int = signal.SIGTERM) -> None:
        """Remove a consumer; its printed values still count."""
        consumer.stop(how)

    def await_shared(self, members: int) -> None:
        wait_until(lambda: self.group.shared_by(members), 60, f"all partitions owned by {members} members")

    def await_all(self) -> None:
        """Wait until everything that was sent is printed and committed."""
        printed = lambda: {value for one in self.consumers for value in one.values()}  # noqa: E731
        wait_until(lambda: printed() >= set(self._sent), 60, "everything to be consumed")
        assert printed() == set(self._sent)
        wait_until(lambda: self.group.offsets() == self._ends, 60, "everything to be committed")


@contextmanager
def world(cluster: Cluster, tree: ZooKeeperTree, folder: Path, group: str) -> Iterator[World]:
    made = World(cluster, tree, folder, group)
    with ExitStack() as stack:
        stack.callback(lambda: [one.stop(signal.SIGKILL) for one in made.consumers])
        yield made


def test_a_group_shares_partitions_and_keeps_its_offsets_in_zookeeper(
    cluster: Cluster, tree: ZooKeeperTree, tmp_path: Path
) -> None:
    with world(cluster, tree, tmp_path, "sharing") as old:
        old.send()
        first = old.join("--from-beginning")
        old.await_shared(1)
        old.await_all()
        assert len(first.values()) == len(set(first.values())), "a single consumer reads no record twice"
        second = old.join()
        old.await_shared(2)
        old.send()
        old.await_all()
        assert second.values(), "the second consumer owns partitions"
        old.leave(first, signal.SIGKILL)
        old.await_shared(1)
        old.send()
        old.await_all()
        old.leave(second)
        wait_until(lambda: not old.group.owners(), 60, "no consumer owns a partition")
        third = old.join()
        old.await_shared(1)
        old.send()
        old.await_all()
        assert len(third.values()) == 60, "the third consumer continues at the committed offsets"


def test_consumer_continues_when_a_leader_is_killed(cluster: Cluster, tree: ZooKeeperTree, tmp_path: Path) -> None:
    """Each broker leads a partition of the topic, so each failure is one of a leader and of a connected broker."""
    with world(cluster, tree, tmp_path, "going-on") as old:
        old.send()
        only = old.join("--from-beginning")
        old.await_all()
        for partition in (0, 1):
            leader = cluster.wait_leader(old.topic, partition)
            cluster.kill(leader)
            old.send()
            old.await_all()
            cluster.restart(leader)
            old.send()
            old.await_all()
            cluster.wait_isr(old.topic, partition, 3)
        assert only.process.poll() is None
        assert old.group.shared_by(1)


def test_offsets_of_version_0_are_in_zookeeper_for_all_brokers(cluster: Cluster, tree: ZooKeeperTree) -> None:
    """OffsetCommit v0 and OffsetFetch v0 use the nodes of old consumers (kafka.server.KafkaApis of 0.8.2)."""
    topic = make_topic(cluster, 1)
    for broker in cluster.brokers:
        offset = 100 + broker.properties["broker.id"]
        assert _commit(broker, topic, offset) == 0
        assert tree.find(znodes.consumer_offset_path(GROUP, topic, 0)) == b"%d" % offset
        assert [_committed(other, topic) for other in cluster.brokers] == [(0, offset)] * 3


def _commit(broker: Any, topic: str, offset: int) -> int:
    request = message("OffsetCommitRequest")
    part = request.OffsetCommitRequestTopic.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    asked = request[0](group_id=GROUP, topics=[request.OffsetCommitRequestTopic(name=topic, partitions=[part])])
    with broker.wire() as wire:
        return int(wire.call(asked).topics[0].partitions[0].error_code)


def _committed(broker: Any, topic: str) -> tuple[int, int]:
    request = message("OffsetFetchRequest")
    asked = request[0](group_id=GROUP, topics=[request.OffsetFetchRequestTopic(name=topic, partition_indexes=[0])])
    with broker.wire() as wire:
        part = wire.call(asked).topics[0].partitions[0]
    return part.error_code, part.committed_offset
