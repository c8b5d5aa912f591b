"""Groups whose coordinator is lost: another broker goes on where it was, and no commit goes back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ..harness.cluster import Cluster
from ..harness.process import wait_until
from .clients import Commits, Feed, Member, Onlooker, coordinator, make_topic, running

pytestmark = pytest.mark.needs("java-3.9.1")

OFFSETS = "__consumer_offsets"
PARTITIONS = 4  # of __consumer_offsets, by the harness


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("groups")
    with Cluster(folder, replica_lag_time_max_ms=3000) as running:
        yield running


@pytest.fixture(autouse=True)
def healed(cluster: Cluster) -> Iterator[None]:
    """Each test begins with all three brokers."""
    yield
    for number, broker in enumerate(cluster.brokers):
        if broker.process is None:
            cluster.restart(number)


def in_sync(cluster: Cluster) -> None:
    for partition in range(PARTITIONS):
        cluster.wait_isr(OFFSETS, partition, 3)


def lose_the_coordinator(cluster: Cluster, group: str, onlooker: Onlooker, members: list[Member]) -> None:
    """Kill it, wait until everybody goes on, start it again."""
    victim, answers, before = coordinator(cluster, group), onlooker.answers, [len(one.seen) for one in members]
    cluster.kill(victim)
    coordinator(cluster, group, other_than=victim)
    wait_until(lambda: onlooker.answers > answers + 10, 30, "offsets told by another coordinator")
    wait_until(lambda: all(len(one.seen) > n for one, n in zip(members, before, strict=True)), 60, "all to go on")
    cluster.restart(victim)
    in_sync(cluster)


def test_a_group_goes_on_when_its_coordinators_are_killed(cluster: Cluster) -> None:
    topic, group, commits = make_topic(cluster), "g", Commits()
    coordinator(cluster, group)
    in_sync(cluster)
    feed, onlooker = Feed(cluster, topic), Onlooker(cluster, topic, group, commits)
    members = [Member(cluster, topic, group, commits) for _ in range(3)]
    with running(feed, onlooker, *members):
        wait_until(lambda: all(member.seen for member in members), 60, "all members to consume")
        for _ in range(3):
            lose_the_coordinator(cluster, group, onlooker, members)
        feed.stop()
        wait_until(lambda: feed.acked <= set().union(*(one.seen for one in members)), 60, "everything to be seen")
    assert feed.acked
    assert not feed.errors, feed.errors[:3]
    assert not commits.faults, commits.faults[:5]
