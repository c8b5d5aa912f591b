"""Replicas that are reassigned while a broker is down: it starts, their logs are strays, topics can be deleted."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.broker.controller.replicas.partition_dirs import PartitionDirs
from odradek.broker.controller.replicas.replica_manager import ReplicaManager
from odradek.broker.process.checkpoint_lock import CheckpointLocks
from odradek.cluster.metadata.view import PartitionUpdate, View
from odradek.cluster.tree import znodes
from odradek.cluster.tree.zookeeper import ZooKeeperTree
from odradek.storage.files import checkpoints, names

from ..harness.cluster import Cluster
from ..harness.process import wait_until

T, OTHER = b"t" * 16, b"o" * 16


@pytest.fixture
def dirs(tmp_path: Path) -> Callable[[], PartitionDirs]:
    data, turns = tmp_path / "data", CheckpointLocks(tmp_path)
    data.mkdir()
    return lambda: PartitionDirs([str(data)], turns)


def test_log_of_recreated_topic_begins_at_0(dirs: Callable[[], PartitionDirs]) -> None:
    """The checkpoints of the former topic are not valid for this log."""
    former = dirs()
    number = former.create("t", 0, OTHER)
    folder = former.log_dirs[number]
    for name in checkpoints.OFFSET_CHECKPOINTS:
        checkpoints.write_offsets(folder, name, {("t", 0): 500, ("u", 0): 7})
    found = dirs()
    assert found.adopt("t", 0, T) == number
    assert found.topic_id("t", 0) == T and not found.has_log("t", 0)
    for name in checkpoints.OFFSET_CHECKPOINTS:
        assert checkpoints.read_offsets(folder, name) == {("u", 0): 7}
    marked = [entry.name for entry in Path(folder).iterdir() if entry.name.endswith(names.STRAY_DIR)]
    assert len(marked) == 1


class Unreadable:
    """A directory whose disk does not answer."""

    failed: tuple[int, ...] = ()

    def __contains__(self, key: object) -> bool:
        return True

    def topic_id(self, topic: str, partition: int) -> bytes:
        raise OSError(errno.EIO, "broken")


@pytest.mark.parametrize("assigned", [[1, 2], [2, 3]])
def test_unreadable_dir_does_not_prevent_start(assigned: list[int]) -> None:
    view = View(1, "c")
    row = view.apply(PartitionUpdate("t", T, 0, 1, 2, 0, [2], 0, assigned))
    replicas = ReplicaManager.__new__(ReplicaManager)
    replicas.view, replicas.dirs = view, Unreadable()  # type: ignore[assignment]  # a test double
    assert replicas._is_found("t", 0, row, T)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path) as running:
        yield running


@pytest.mark.live
@pytest.mark.needs("java-3.9.1")
@pytest.mark.timeout(300)
def test_broker_starts_after_its_replicas_were_reassigned(cluster: Cluster, tree: ZooKeeperTree) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    make(admin, "t", "u")
    fill(cluster, "t", "u")
    cluster.kill(2)
    move(tree, cluster, [0, 1])
    cluster.broker(2).launch()
    cluster.broker(2).await_ready()
    data = Path(cluster.broker(2).data_dir)
    wait_until(lambda: not (data / "t-0").exists(), 60, "the log to be renamed to a stray")
    assert [entry.name[:2] for entry in data.iterdir() if entry.name.endswith(names.STRAY_DIR)] == ["t-"]
    cluster.wait_isr("u", 0, 3)
    gone(admin, "t")
    make(admin, "t")
    cluster.wait_isr("t", 0, 3)


@pytest.mark.live
@pytest.mark.needs("java-3.9.1")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("meanwhile", ["moved back", "deleted", "recreated"])
def test_broker_starts_after_changes_while_it_was_down(cluster: Cluster, tree: ZooKeeperTree, meanwhile: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    make(admin, "t")
    fill(cluster, "t")
    cluster.kill(2)
    move(tree, cluster, [0, 1])
    size = {"moved back": 3, "deleted": 0, "recreated": 2}[meanwhile]
    if meanwhile != "moved back":
        gone(admin, "t")
    if meanwhile == "recreated":
        again = NewTopic("t", 1, replica_assignment=[[0, 1]])
        wait_until(lambda: admin.create_topics([again], **SOON)["t"].exception(30) is None, 60, "the recreation of t")
        fill(cluster, "t", count=20)
    cluster.broker(2).launch()
    cluster.broker(2).await_ready()
    if meanwhile == "moved back":
        wait_until(lambda: tree.exists(znodes.REASSIGN_PARTITIONS) is None, 60, "the removal of the first request")
        move(tree, cluster, [0, 1, 2])
    if size:
        cluster.wait_isr("t", 0, size)
    there = size == 3
    data = Path(cluster.broker(2).data_dir)
    wait_until(lambda: (data / "t-0").exists() == there, 60, "the log to match the assignment")


SOON = {"request_timeout": 10}  # s; librdkafka waits as long for a controller that is dead


def make(admin: AdminClient, *topics: str) -> None:
    for topic in topics:
        new = NewTopic(topic, 1, replica_assignment=[[0, 1, 2]])
        wait_until(
            lambda new=new: admin.create_topics([new], **SOON)[new.topic].exception(30) is None,  # type: ignore[misc]  # a default in a lambda
            60,
            f"{topic} to be made",
        )


def gone(admin: AdminClient, topic: str) -> None:
    """librdkafka asks the controller that it knows, which may be a former one, and leaves it to us to try again."""
    wait_until(
        lambda: admin.delete_topics([topic], **SOON)[topic].exception(30) is None, 60, f"the deletion of {topic}"
    )
    wait_until(lambda: topic not in admin.list_topics(timeout=20).topics, 60, f"{topic} to be deleted")


def fill(cluster: Cluster, *topics: str, count: int = 100) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for topic in topics:
        for number in range(count):
            producer.produce(topic, str(number))
    assert producer.flush(60) == 0


def move(tree: ZooKeeperTree, cluster: Cluster, brokers: list[int]) -> None:
    """Reassign t-0 to other brokers, and wait for the new assignment."""
    rows = [{"topic": "t", "partition": 0, "replicas": brokers}]
    tree.create(znodes.REASSIGN_PARTITIONS, json.dumps({"version": 1, "partitions": rows}).encode())
    wait_until(lambda: set(replicas(cluster, "t")) == set(brokers), 60, f"t to be assigned to {brokers}")


def replicas(cluster: Cluster, topic: str) -> list[int]:
    row: Any = cluster.partition(topic)
    return list(row.replica_nodes)
