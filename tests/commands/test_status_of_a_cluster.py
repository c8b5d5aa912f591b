"""`odradek status --cluster`: three brokers, one of them killed; and reports on given states."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.commands.status.overview import Dir, Node, Row, overview, render
from odradek.cluster.tree.zookeeper import ZooKeeperTree

from ..harness.cluster import Cluster
from ..harness.process import wait_until

pytestmark = pytest.mark.live

GOOD = Dir("/a", None, 5_000_000, 100, 50)
BAD = Dir("/b", "KAFKA_STORAGE_ERROR", 0, -1, -1)


def row(leader: int | None, replicas: list[int], isr: list[int], **more: Any) -> Row:
    fields: dict[str, Any] = {"offline": [], "adding": [], "min_isr": 1}
    return Row(leader, replicas, isr, **fields | more)


def node(*dirs: Dir, rack: str | None = None) -> Node:
    return Node("h:1", rack, dirs)


# -- counting


def test_healthy_cluster_has_no_fault() -> None:
    rows = {("t", 0): row(1, [1, 2], [1, 2]), ("t", 1): row(2, [2], [2])}
    seen = overview(rows, {1: node(GOOD), 2: node(GOOD, GOOD, rack="r")}, "c", 1, 7)
    assert seen.wrong == []
    counts = [(b.id, b.state, b.led, b.replicas, b.out_of_sync, b.under_replicated, b.offline) for b in seen.brokers]
    assert counts == [(1, "alive", 1, 1, 0, 0, 0), (2, "alive", 1, 2, 0, 0, 0)]
    assert [(b.rack, b.log_bytes) for b in seen.brokers] == [(None, 5_000_000), ("r", 10_000_000)]
    printed = render(seen).splitlines()
    assert printed[0] == "nothing is wrong"
    assert printed[2] == "cluster c; 2 of 2 brokers alive; controller 1, epoch 7"
    assert printed[-1].split() == ["all", "2", "3", "0", "0", "0", "15.0", "MB"]


def test_worst_faults_come_first() -> None:
    rows = {
        ("a", 0): row(None, [3], [3], offline=[3]),
        ("a", 1): row(1, [1, 2, 3], [1], min_isr=2, offline=[3]),
        ("a", 2): row(2, [2, 3, 1], [2, 1], offline=[3]),
    }
    seen = overview(rows, {1: node(GOOD, BAD), 2: Node("h:2", None, None)}, "c", 3, None)
    assert seen.wrong == [
        "the cluster has no active controller",
        "log directory /b of broker 1 is offline: KAFKA_STORAGE_ERROR",
        "broker 2 at h:2 does not respond",
        "broker 3 is dead and has 3 replicas",
        "1 partition with no leader: a-0",
        "1 partition with fewer replicas in sync than min.insync.replicas: a-1",
        "2 partitions with replicas that are not in sync: a-1, a-2",
    ]
    assert [(b.led, b.out_of_sync, b.under_replicated, b.offline) for b in seen.brokers] == [
        (1, 0, 1, 0), (1, 1, 1, 0), (0, 2, 0, 3),
    ]  # fmt: skip
    assert render(seen).startswith("WRONG: the cluster has no active controller")
    assert (seen.without_leader, seen.under_min_isr, seen.under_replicated) == (1, 1, 2)


def test_adding_replica_is_no_fault() -> None:
    rows = {("t", 0): row(1, [1, 2], [1], adding=[2])}
    seen = overview(rows, {1: node(GOOD), 2: node(GOOD)}, "c", 1, 1)
    assert (seen.wrong, seen.being_moved) == ([], 1)
    assert [one.out_of_sync for one in seen.brokers] == [0, 0]
    assert "1 partition, 1 being reassigned" in render(seen)


def test_at_most_five_partitions_are_named() -> None:
    rows = {("t", index): row(None, [1], [1]) for index in range(12)}
    assert overview(rows, {1: node(GOOD)}, "c", 1, 1).wrong == [
        "12 partitions with no leader: t-0, t-1, t-2, t-3, t-4 and 7 more"
    ]


# -- three brokers


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    for number, broker in enumerate(made.brokers):
        broker.set(broker_rack=f"rack-{number}")
    with made as running:
        yield running


def status(cluster: Cluster, *words: str, code: int = 0, by: int = 0) -> str:
    """The output of the command of broker `by`."""
    done = cluster.brokers[by].command("status", "--cluster", *words)
    assert done.returncode == code, done
    return done.stdout


def topics(cluster: Cluster, *words: str) -> None:
    done = cluster.brokers[0].command("topics", "--bootstrap-server", cluster.bootstrap, *words)
    assert done.returncode == 0, done


@pytest.mark.needs("java-3.9.1")
def test_status_names_a_killed_broker_and_its_partitions(cluster: Cluster) -> None:
    for name, assignment in (("three", "0:1:2,1:2:0"), ("one", "2")):
        topics(cluster, "--create", "--topic", name, "--replica-assignment", assignment)
    for index in range(2):
        cluster.wait_isr("three", index, 3)
    cluster.wait_isr("one", 0, 1)
    produce = ("console-producer", "--topic", "one", "--bootstrap-server", cluster.bootstrap, "--sync")
    assert cluster.brokers[0].command(*produce, input="x" * 10_000).returncode == 0
    from_elsewhere = ("--json", "--bootstrap-server", cluster.brokers[1].bootstrap)
    before = json.loads(status(cluster, *from_elsewhere))
    assert before["wrong"] == []
    assert (before["topics"], before["partitions"], before["without_leader"]) == (2, 3, 0)
    assert [(one["id"], one["state"], one["rack"], one["replicas"]) for one in before["brokers"]] == [
        (0, "alive", "rack-0", 2), (1, "alive", "rack-1", 2), (2, "alive", "rack-2", 3),
    ]  # fmt: skip
    assert [one["address"] for one in before["brokers"]] == cluster.bootstrap.split(",")
    assert sum(one["led"] for one in before["brokers"]) == 3
    assert before["brokers"][2]["log_bytes"] > 10_000 > before["brokers"][0]["log_bytes"]
    assert (before["controller"], before["controller_epoch"]) == controller(cluster)

    cluster.kill(2)
    try:
        for index in range(2):
            cluster.wait_isr("three", index, 2)
        wait_until(lambda: cluster.leader("one") == -1, 30, "no leader of the only replica")
        own = str(cluster.brokers[0].properties_file)
        wait_until(lambda: "broker 2 is dead" in status(cluster, own, code=1), 30, "its session has ended")
        printed = status(cluster, own, code=1).splitlines()
        assert printed[:3] == [
            "WRONG: broker 2 is dead and has 3 replicas",
            "WRONG: 1 partition with no leader: one-0",
            "WRONG: 2 partitions with replicas that are not in sync: three-0, three-1",
        ]
        assert printed[-2].split() == ["2", "-", "-", "dead", "0", "3", "2", "0", "3", "-"]
        epoch = json.loads(status(cluster, *from_elsewhere, code=1))["controller_epoch"]
        assert epoch == controller(cluster)[1] >= before["controller_epoch"]
    finally:
        cluster.restart(2)


def controller(cluster: Cluster) -> tuple[int, int]:
    """The id and the epoch of the controller, from ZooKeeper."""
    tree = ZooKeeperTree(cluster.zookeeper.connect)
    try:
        return json.loads(tree.get("/controller")[0])["brokerid"], int(tree.get("/controller_epoch")[0])
    finally:
        tree.close()


def test_status_of_a_broker_without_zookeeper(broker: Any, tmp_path: Path) -> None:
    done = broker.command("status", "--cluster", "--json", "--bootstrap-server", broker.bootstrap)
    assert done.returncode == 0, done
    found = json.loads(done.stdout)
    assert (found["controller_epoch"], [one["id"] for one in found["brokers"]]) == (None, [0])


def test_silent_broker_is_skipped(broker: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        servers = f"127.0.0.1:{silent.getsockname()[1]},{broker.bootstrap}"
        done = broker.command("status", "--cluster", "--bootstrap-server", servers)
    assert done.returncode == 0 and done.stdout.startswith("nothing is wrong\n"), done


def test_wrong_usage_and_unreachable_broker(broker: Any) -> None:
    refused = broker.command("status", "--bootstrap-server", broker.bootstrap)
    assert refused.returncode == 2 and "--cluster" in refused.stderr
    unreachable = broker.command("status", "--cluster", "--bootstrap-server", "127.0.0.1:1")
    assert unreachable.returncode == 1 and "cannot reach a broker at 127.0.0.1:1" in unreachable.stderr
    assert "Traceback" not in unreachable.stderr
