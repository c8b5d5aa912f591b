"""A broker of a cluster loses one of two log directories: other brokers lead its partitions, and it serves the rest."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.cluster.tree import znodes
from odradek.cluster.tree.zookeeper import ZooKeeperTree
from odradek.protocol.library import message_class as message

from ..clients.admin import create_named
from ..faults.failing import fail
from ..faults.power import SEAM
from ..harness.broker import Broker
from ..harness.cluster import Cluster
from ..harness.process import wait_until
from .clients import Commits, Feed, Member, make_topic, running

STORAGE_ERROR = 56
PARTITIONS = 6

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1"), pytest.mark.timeout(240)]


class Disks:
    """Three brokers with the log directories `data` and `two` each; `two` of any can fail."""

    def __init__(self, folder: Path) -> None:
        self.cluster = Cluster(folder, replica_lag_time_max_ms=3000, leader_imbalance_check_interval_seconds=1)
        for broker in self.cluster.brokers:
            broker.set(log_dirs=f"{broker.data_dir},{self.two(broker)}")
            path = os.pathsep.join(filter(None, [str(SEAM), broker.env.get("PYTHONPATH")]))
            broker.env |= {"PYTHONPATH": path, "ODRADEK_TEST_FAULTS": str(self._faults(broker))}

    def two(self, broker: Broker) -> Path:
        return broker.folder / "two"

    def _faults(self, broker: Broker) -> Path:
        return broker.folder / "faults.json"

    def break_(self, broker: Broker, *calls: str, under: Path | None = None) -> None:
        """From now on these system calls fail below `two`, or below `under`."""
        fail(self._faults(broker), under or self.two(broker), calls)

    def mend(self, broker: Broker) -> None:
        self._faults(broker).unlink()

    def in_two(self, broker: Broker, topic: str) -> set[int]:
        """Partitions of the topic whose log the broker has in `two`."""
        return {int(path.name.rpartition("-")[2]) for path in self.two(broker).glob(f"{topic}-[0-9]")}


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[Disks]:
    made = Disks(tmp_path)
    with made.cluster:
        yield made


@pytest.fixture
def tree(disks: Disks) -> Iterator[ZooKeeperTree]:
    opened = ZooKeeperTree(disks.cluster.zookeeper.connect)
    yield opened
    opened.close()


def rows(cluster: Cluster, topic: str) -> list[Any]:
    return sorted(cluster.metadata(topic).topics[0].partitions, key=lambda row: row.partition_index)


def which(cluster: Cluster, topic: str, true: Callable[[Any], bool]) -> set[int]:
    """The partitions for which `true` holds."""
    return {row.partition_index for row in rows(cluster, topic) if true(row)}


def offline(cluster: Cluster, topic: str, broker: int) -> set[int]:
    return which(cluster, topic, lambda row: broker in row.offline_replicas)


def errors_of_dirs(broker: Broker) -> list[int]:
    """The error codes of DescribeLogDirs."""
    with broker.wire() as wire:
        return [one.error_code for one in wire.call(message("DescribeLogDirsRequest")[3](topics=None)).results]


def test_other_brokers_lead_partitions_of_failed_dir(disks: Disks, tree: ZooKeeperTree) -> None:
    cluster = disks.cluster
    victim, topic = cluster.broker(1), make_topic(cluster, PARTITIONS)
    for index in range(PARTITIONS):
        cluster.wait_isr(topic, index, 3)
    hurt = disks.in_two(victim, topic)
    well = set(range(PARTITIONS)) - hurt
    assert hurt and well
    assert which(cluster, topic, lambda row: row.leader_id == 1), "the broker leads some partitions"
    commits = Commits()
    feed, member = Feed(cluster, topic, PARTITIONS), Member(cluster, topic, "group", commits)
    with running(feed, member):
        wait_until(lambda: len(feed.acked) > 100, 60, "acknowledged records")
        disks.break_(victim, "pwritev", "pwrite", "fsync")
        wait_until(lambda: offline(cluster, topic, 1) == hurt, 60, "its replicas there to be offline")
        wait_until(lambda: which(cluster, topic, lambda row: row.leader_id == 1) <= well, 60, "others to lead there")
        wait_until(lambda: which(cluster, topic, lambda row: 1 not in row.isr_nodes) == hurt, 60, "the ISRs to be less")
        wanted = len(feed.acked) + 300
        wait_until(lambda: len(feed.acked) > wanted, 60, "more acknowledged records")
        assert errors_of_dirs(victim) == [0, STORAGE_ERROR]
        wait_until(lambda: not tree.children(znodes.LOG_DIR_EVENTS), 60, "the notice to go")
        late = make_topic(cluster, PARTITIONS)
        for index in range(PARTITIONS):
            cluster.wait_isr(late, index, 3)
        assert not disks.in_two(victim, late), "new logs are created on working disks"
        disks.mend(victim)
        cluster.restart(1)
        for index in range(PARTITIONS):
            cluster.wait_isr(topic, index, 3)
        wait_until(lambda: not offline(cluster, topic, 1), 60, "nothing to be offline")
        wanted = len(feed.acked) + 100
        wait_until(lambda: len(feed.acked) > wanted, 60, "more acknowledged records")
    assert feed.errors == []
    assert commits.faults == []


def test_partitions_of_a_log_dir_that_fails_at_start_are_offline(disks: Disks) -> None:
    """The partitions are not empty elsewhere; a new controller also learns of them."""
    cluster = disks.cluster
    victim, topic = cluster.broker(2), make_topic(cluster, PARTITIONS)
    for index in range(PARTITIONS):
        cluster.wait_isr(topic, index, 3)
    hurt = disks.in_two(victim, topic)
    victim.stop()
    disks.break_(victim, "open")
    victim.start()
    wait_until(lambda: offline(cluster, topic, 2) == hurt, 30, "its replicas there to be offline")
    for index in set(range(PARTITIONS)) - hurt:
        cluster.wait_isr(topic, index, 3)
    assert not {index for index in hurt if (victim.data_dir / f"{topic}-{index}").exists()}, (
        "no log is created elsewhere"
    )
    assert errors_of_dirs(victim) == [0, STORAGE_ERROR]
    for broker in cluster.brokers[:2]:  # one of them was the controller
        broker.stop()
        cluster.restart(broker.properties["broker.id"])
    wait_until(lambda: offline(cluster, topic, 2) == hurt, 30, "the same to be offline")
    disks.mend(victim)
    cluster.restart(2)
    for index in range(PARTITIONS):
        cluster.wait_isr(topic, index, 3)


def test_broker_without_log_dir_stops(disks: Disks) -> None:
    cluster = disks.cluster
    victim, topic = cluster.broker(0), make_topic(cluster, PARTITIONS)
    for index in range(PARTITIONS):
        cluster.wait_isr(topic, index, 3)
    feed = Feed(cluster, topic, PARTITIONS)
    with running(feed):
        wait_until(lambda: len(feed.acked) > 100, 60, "acknowledged records")
        disks.break_(victim, "pwritev", "pwrite", "fsync", under=victim.folder)
        assert victim.process is not None
        assert victim.process.wait(60) == 1
        victim.process = None
        assert "all log directories are offline" in victim.log
        wanted = len(feed.acked) + 100
        wait_until(lambda: len(feed.acked) > wanted, 60, "more acknowledged records")
    assert feed.errors == []
    assert 0 not in {row.leader_id for row in rows(cluster, topic)}


def test_new_log_goes_to_a_working_dir(disks: Disks) -> None:
    """The broker finds the failure when it creates the log."""
    cluster = disks.cluster
    victim = cluster.broker(1)
    disks.break_(victim, "open")
    topic = make_topic(cluster, PARTITIONS)
    for index in range(PARTITIONS):
        cluster.wait_isr(topic, index, 3)
    assert errors_of_dirs(victim) == [0, STORAGE_ERROR]
    assert len(list(victim.data_dir.glob(f"{topic}-[0-9]"))) == PARTITIONS
    assert not offline(cluster, topic, 1)


def test_groups_continue_when_their_coordinator_loses_its_log_dir(disks: Disks) -> None:
    """Another broker with a replica of the offsets coordinates, and no committed offset decreases."""
    cluster = disks.cluster
    topic = make_topic(cluster, 1)
    commits = Commits()
    groups = [Member(cluster, topic, f"group-{number}", commits) for number in range(6)]
    feed = Feed(cluster, topic, 1)
    with running(feed, *groups):
        wait_until(lambda: all(group.seen for group in groups), 60, "all groups to consume")
        offsets = {broker.port: disks.in_two(broker, "__consumer_offsets") for broker in cluster.brokers}
        victim = next(
            broker
            for number, broker in enumerate(cluster.brokers)
            if which(cluster, "__consumer_offsets", lambda row, n=number: row.leader_id == n) & offsets[broker.port]  # type: ignore[misc]  # a default in a lambda
        )
        disks.break_(victim, "pwritev", "pwrite", "fsync")
        number = victim.properties["broker.id"]
        hurt = offsets[victim.port]
        wait_until(lambda: offline(cluster, "__consumer_offsets", number) == hurt, 60, "its replicas to be offline")
        before = [len(group.seen) for group in groups]
        wait_until(
            lambda: all(len(group.seen) > count + 20 for group, count in zip(groups, before, strict=True)), 60,
            "more records at all groups",
        )  # fmt: skip
    assert commits.faults == []


def test_two_logs_of_a_partition_are_refused(disks: Disks, tree: ZooKeeperTree) -> None:
    """The log moved while its directory had failed, and the directory returned. Kafka does not choose one either."""
    cluster = disks.cluster
    victim, topic = cluster.broker(1), make_topic(cluster, PARTITIONS)
    for index in range(PARTITIONS):
        cluster.wait_isr(topic, index, 3)
    index = min(disks.in_two(victim, topic))
    victim.stop()
    disks.break_(victim, "open")
    victim.start()
    move(tree, topic, index, [0, 2])
    victim.restart()
    move(tree, topic, index, [0, 2, 1])
    cluster.wait_isr(topic, index, 3)
    disks.mend(victim)
    victim.stop()
    done = victim.command("start", str(victim.properties_file))
    logs = [folder / f"{topic}-{index}" for folder in (victim.data_dir, disks.two(victim))]
    assert done.returncode == 3
    assert f"{topic}-{index} has two logs, {logs[0]} and {logs[1]}: delete one of them" in done.stderr
    shutil.rmtree(logs[1])
    victim.start()
    cluster.wait_isr(topic, index, 3)


def move(tree: ZooKeeperTree, topic: str, index: int, replicas: list[int]) -> None:
    """Reassign as Kafka's tools did before 2.4."""
    row = {"topic": topic, "partition": index, "replicas": replicas}
    tree.create(znodes.REASSIGN_PARTITIONS, znodes.to_json({"version": 1, "partitions": [row]}))
    path = znodes.topic_path(topic)
    wait_until(lambda: tree.exists(znodes.REASSIGN_PARTITIONS) is None, 30, "the move to be taken up")
    wait_until(lambda: znodes.decode_topic(tree.get(path)[0]).replicas[index] == replicas, 30, "the move")


def test_broker_starts_without_its_first_log_dir(tmp_path: Path) -> None:
    """The broker's own state is in ZooKeeper and in its run directory."""
    bad, good = tmp_path / "bad", tmp_path / "good"
    bad.touch()
    with Cluster(tmp_path, brokers=1, log_dirs=f"{bad},{good}") as cluster:
        with cluster.broker(0).wire() as wire:
            create_named(wire, "t", 1)
        wait_until((good / "t-0").is_dir, 60, "its log")
        assert f"log directory {bad} is offline" in cluster.broker(0).log
