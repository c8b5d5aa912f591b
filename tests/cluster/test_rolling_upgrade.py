"""Three brokers run `odradek upgrade` one after the other under load: no error, nothing lost, leaders stay."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.cluster.tree.zookeeper import ZooKeeperTree

from ..faults.test_upgrade import findings, upgrade
from ..faults.test_upgrade_others import UP_TO_DATE
from ..harness.cluster import Cluster
from .clients import Commits, Feed, Member, make_topic, running
from .test_rolling_restart import PARTITIONS, check, leaders, load

pytestmark = [pytest.mark.live, pytest.mark.long, pytest.mark.needs("java-3.9.1"), pytest.mark.timeout(300)]

WITHOUT_RETRIES = {"enable.idempotence": False, "retries": 0, "max.in.flight": 1}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path) as started:
        yield started


def test_no_request_fails_and_no_leader_moves(cluster: Cluster, tree: ZooKeeperTree) -> None:
    """One producer does not retry; each broker's controller keeps its ZooKeeper session, so that it stays a leader."""
    topic = make_topic(cluster, PARTITIONS)
    plain = make_topic(cluster, PARTITIONS)
    feed, member = Feed(cluster, topic, PARTITIONS), Member(cluster, topic, "rolling", Commits())
    once, other = Feed(cluster, plain, PARTITIONS, **WITHOUT_RETRIES), Member(cluster, plain, "other", Commits())
    before = leaders(tree, topic)
    with running(feed, member, once, other):
        for broker in cluster.brokers:
            load(feed)
            load(once)
            assert UP_TO_DATE in upgrade(broker)
        load(feed)
        load(once)
    assert leaders(tree, topic) == before
    check(cluster, topic, feed, member)
    check(cluster, plain, once, other)
    assert [findings(broker) for broker in cluster.brokers] == [[], [], []]
