"""Broker configs that are changed while a cluster runs act on every broker of it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.cluster.tree import znodes
from odradek.cluster.tree.zookeeper import ZooKeeperTree

from ..clients.admin import alter_broker, changed_brokers, unique
from ..clients.raw.batches import batch
from ..clients.raw.calls import produce
from ..harness.cluster import Cluster
from ..harness.process import wait_until

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1")]

NOT_ENOUGH_REPLICAS, NO_LEADER = 19, -1


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), replica_lag_time_max_ms=3000) as running:
        yield running


def make_topic(cluster: Cluster, *brokers: int) -> str:
    name, admin = unique("t"), AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(name, 1, replica_assignment=[list(brokers)])])[name].result(30)
    assert cluster.wait_leader(name) == brokers[0]
    return name


def produced(cluster: Cluster, leader: int, topic: str) -> int:
    with cluster.broker(leader).wire() as wire:
        return int(produce(wire, topic, batch([b"x"])).error_code)


def test_changed_min_insync_replicas_applies_on_every_broker(cluster: Cluster) -> None:
    """Another broker than the requested one leads each topic."""
    topics = {leader: make_topic(cluster, leader, (leader + 1) % 3) for leader in (1, 2)}
    cluster.kill(0)
    try:
        cluster.wait_isr(topics[2], 0, 1)
        with changed_brokers(cluster.broker(1), min_insync_replicas="2"):
            for leader, code in ((1, 0), (2, NOT_ENOUGH_REPLICAS)):
                wait_until(lambda n=leader, code=code: produced(cluster, n, topics[n]) == code, what=f"code {code}")  # type: ignore[misc]  # a default in a lambda
        wait_until(lambda: produced(cluster, 2, topics[2]) == 0, what="min.insync.replicas of 1")
    finally:
        cluster.restart(0)


def test_unclean_election_follows_a_config_change_at_once(cluster: Cluster, tree: ZooKeeperTree) -> None:
    """A partition without an in-sync replica gets a leader when the config changes, not at the next failure."""
    topic = make_topic(cluster, 0, 1)
    cluster.kill(1)
    cluster.wait_isr(topic, 0, 1)
    assert produced(cluster, 0, topic) == 0
    cluster.kill(0)
    cluster.restart(1)
    try:
        wait_until(lambda: tree.find(f"{znodes.BROKER_IDS}/0") is None, 60, "the session has ended")
        wait_until(lambda: cluster.leader(topic) == NO_LEADER, what="no replica in sync can lead")
        before = unclean_elections(cluster)
        with changed_brokers(cluster.broker(2), unclean_leader_election_enable="true"):
            assert cluster.wait_leader(topic) == 1
        assert unclean_elections(cluster) > before
    finally:
        cluster.restart(0)


def unclean_elections(cluster: Cluster) -> int:
    """As counted by brokers 1 and 2, one of which is the controller."""
    found = 0
    for number in (1, 2):
        broker = cluster.broker(number)
        status = json.loads(broker.command("status", str(broker.properties_file), "--json").stdout)
        found += sum(row["unclean_elections"] for row in status["processes"])
    return found


def connections(cluster: Cluster, follower: int) -> int:
    """The number of connections of the follower's replicator."""
    import psutil

    (pid,) = cluster.broker(follower).pids("replicator")
    return sum(one.status == psutil.CONN_ESTABLISHED for one in psutil.Process(pid).net_connections("tcp"))


def test_changed_num_replica_fetchers_opens_connections(cluster: Cluster) -> None:
    for _ in range(8):  # their ids spread them over the connections
        make_topic(cluster, 0, 1)
    before = connections(cluster, 1)
    with cluster.broker(1).wire() as wire:
        assert alter_broker(wire, "1", num_replica_fetchers="2") == (0, None)
        wait_until(lambda: connections(cluster, 1) > before, what="a further connection")
        assert alter_broker(wire, "1", num_replica_fetchers=None) == (0, None)
        wait_until(lambda: connections(cluster, 1) == before, what="as before")
