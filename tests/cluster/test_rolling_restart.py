"""Three brokers restart one by one under load: clients see only retries, and the leaders return."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.cluster.tree import znodes
from odradek.cluster.tree.zookeeper import ZooKeeperTree

from ..harness.cluster import Cluster
from ..harness.process import wait_until
from .clients import Commits, Feed, Member, make_topic, read_all, running
from .replicas import differences

PARTITIONS = 6
LOADED = 200  # records between two steps

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1"), pytest.mark.timeout(240)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster with an earlier preferred election than Kafka's five minutes."""
    with Cluster(tmp_path, leader_imbalance_check_interval_seconds=1) as started:
        yield started


def preferred(tree: ZooKeeperTree, topic: str) -> list[int]:
    """By partition, the first replica of the assignment."""
    replicas = znodes.decode_topic(tree.get(znodes.topic_path(topic))[0]).replicas
    return [replicas[index][0] for index in range(PARTITIONS)]


def leaders(tree: ZooKeeperTree, topic: str) -> list[int]:
    paths = [znodes.state_path(topic, index) for index in range(PARTITIONS)]
    return [znodes.decode_state(tree.get(path)[0]).leader for path in paths]


def controllers(tree: ZooKeeperTree) -> int:
    """The number of controllers so far."""
    return int(tree.get(znodes.CONTROLLER_EPOCH)[0])


def load(feed: Feed) -> None:
    """Wait until some more records are acknowledged."""
    wanted = len(feed.acked) + LOADED
    wait_until(lambda: len(feed.acked) >= wanted, 60, "more acknowledged records")


def test_no_produce_fails_and_leaders_return(cluster: Cluster, tree: ZooKeeperTree) -> None:
    topic = make_topic(cluster, PARTITIONS)
    first = preferred(tree, topic)
    assert sorted(first) == [0, 0, 1, 1, 2, 2]
    before = controllers(tree)
    feed, member = Feed(cluster, topic, PARTITIONS), Member(cluster, topic, "rolling", Commits())
    with running(feed, member):
        for number, broker in enumerate(cluster.brokers):
            load(feed)
            broker.stop()
            assert number not in leaders(tree, topic)
            assert "controlled shutdown completed" in broker.log, "a controlled shutdown"
            load(feed)
            cluster.restart(number)
            for index in range(PARTITIONS):
                cluster.wait_isr(topic, index, 3)
        wait_until(lambda: leaders(tree, topic) == first, 60, "leaders to be where they are preferred")
        load(feed)
    assert before < controllers(tree) <= before + 3, "a stopping broker is not elected"
    check(cluster, topic, feed, member)


def check(cluster: Cluster, topic: str, feed: Feed, member: Member) -> None:
    """Check that every acknowledged record exists once and in order on all replicas, and the group has missed none."""
    assert feed.errors == []
    found = read_all(cluster, topic, PARTITIONS)
    for numbers in found.values():
        assert numbers == sorted(set(numbers))
    assert {number for numbers in found.values() for number in numbers} == feed.acked
    for numbers in found.values():
        last = max(member.seen.intersection(numbers))
        assert {number for number in numbers if number <= last} <= member.seen
    apart = lambda: [line for index in range(PARTITIONS) for line in differences(cluster, topic, index)]  # noqa: E731
    wait_until(lambda: not apart(), 60, "all replicas to be the same")
