"""A broker of units is one of a cluster: its processes reach ZooKeeper and the others, and it leaves them in order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from odradek.cluster import znodes
from odradek.cluster.zookeeper import ZooKeeperTree

from ..clients.raw.batches import batch
from ..clients.raw.calls import produce
from ..harness.cluster import Cluster
from ..harness.process import wait_until
from .machine import Machine, why_not

CONTROLLER = "odradek-controller.service"
OURS, THEIRS = 1, 0  # the broker of units, and one that is none

pytestmark = [pytest.mark.needs("java-3.9.1"), pytest.mark.timeout(300)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, brokers=1, offsets_topic_replication_factor=2) as started:
        yield started


@pytest.fixture
def machine(cluster: Cluster, tmp_path: Path) -> Iterator[Machine]:
    why = why_not()
    if why:
        pytest.skip(why)
    booted = Machine(tmp_path / "machine", broker_id=OURS, zookeeper_connect=cluster.zookeeper.connect)
    (tmp_path / "machine").mkdir()
    try:
        booted.boot()
        booted.systemctl("start", "odradek.target")
        yield booted
    finally:
        booted.close()


def test_it_joins_leads_and_leaves(cluster: Cluster, machine: Machine) -> None:
    tree = ZooKeeperTree(cluster.zookeeper.connect)
    try:
        wait_until(lambda: len(tree.children(znodes.BROKER_IDS)) == 2, 30, "two brokers")
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topic = NewTopic("t", 1, replica_assignment=[[OURS, THEIRS]], config={"min.insync.replicas": "2"})
        admin.create_topics([topic])["t"].result(30)
        wait_until(lambda: cluster.leader("t") == OURS, 30, "it leads")
        cluster.wait_isr("t", 0, 2)
        with machine.wire() as wire:
            assert produce(wire, "t", batch([b"x"]), acks=-1).error_code == 0, "the other one follows it"
        killed = machine.main_pid(CONTROLLER)
        machine.signal(CONTROLLER, "KILL")
        machine.await_another(CONTROLLER, killed)
        wait_until(lambda: machine.show(CONTROLLER, "StatusText") == "running", 30, "it goes on with the session")
        machine.stop()
        assert "timed out" not in machine.log
        assert "other brokers lead now what this one led" in machine.log
        state = znodes.decode_state(tree.get(znodes.state_path("t", 0))[0])
        assert (state.leader, state.isr) == (THEIRS, [THEIRS])
        assert (machine.data_dir / ".kafka_cleanshutdown").exists()
        machine.systemctl("start", "odradek.target")
        cluster.wait_isr("t", 0, 2, 60)
    finally:
        tree.close()
