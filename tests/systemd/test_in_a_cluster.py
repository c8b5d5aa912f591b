"""A broker of systemd units in a cluster: it reaches ZooKeeper and the other broker, and leaves in order."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.cluster.tree import znodes
from odradek.cluster.tree.zookeeper import ZooKeeperTree

from ..clients.raw.batches import batch
from ..clients.raw.calls import produce
from ..harness.cluster import Cluster
from ..harness.process import wait_until
from ..harness.zookeeper import ZooKeeper
from .machine import Machine, booted, started

CONTROLLER = "odradek-controller.service"
OURS, THEIRS = 1, 0  # the broker of units, and one without units
MEMORY = "odradek-memory.service"
PATIENCE_S = 15  # start timeout of the unit, unless it extends it
LATE_S = 2.0  # delay that systemd may have

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1"), pytest.mark.timeout(300)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, brokers=1, offsets_topic_replication_factor=2) as started:
        yield started


@pytest.fixture
def machine(cluster: Cluster, tmp_path: Path) -> Iterator[Machine]:
    folder = tmp_path / "machine"
    folder.mkdir()
    settings = {"broker_id": OURS, "zookeeper_connect": cluster.zookeeper.connect, "odradek_stopped_kill_ms": 60_000}
    with started(folder, **settings) as booted:
        yield booted


@pytest.fixture
def tree(cluster: Cluster) -> Iterator[ZooKeeperTree]:
    opened = ZooKeeperTree(cluster.zookeeper.connect)
    yield opened
    opened.close()


def lead(cluster: Cluster, tree: ZooKeeperTree) -> None:
    """Create topic `t` with one partition that the broker of units leads, with the other broker in sync."""
    wait_until(lambda: len(tree.children(znodes.BROKER_IDS)) == 2, 30, "two brokers")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    topic = NewTopic("t", 1, replica_assignment=[[OURS, THEIRS]], config={"min.insync.replicas": "2"})
    admin.create_topics([topic])["t"].result(30)
    wait_until(lambda: cluster.leader("t") == OURS, 30, "the broker of units leads")
    cluster.wait_isr("t", 0, 2)


def check_left(machine: Machine, tree: ZooKeeperTree) -> None:
    """Assert that the broker has left by a controlled shutdown and a clean stop."""
    assert "timed out" not in machine.log
    assert "controlled shutdown completed" in machine.log
    state = znodes.decode_state(tree.get(znodes.state_path("t", 0))[0])
    assert (state.leader, state.isr) == (THEIRS, [THEIRS])
    assert (machine.data_dir / ".kafka_cleanshutdown").exists()


def test_broker_joins_leads_and_leaves_its_cluster(cluster: Cluster, machine: Machine, tree: ZooKeeperTree) -> None:
    lead(cluster, tree)
    with machine.wire() as wire:
        assert produce(wire, "t", batch([b"x"]), acks=-1).error_code == 0, "the other broker does not replicate"
    killed = machine.main_pid(CONTROLLER)
    machine.signal(CONTROLLER, "KILL")
    machine.await_another(CONTROLLER, killed)
    wait_until(lambda: machine.show(CONTROLLER, "StatusText") == "running", 30, "the new controller process runs")
    registered = tree.exists(f"{znodes.BROKER_IDS}/{OURS}")
    machine.systemctl("restart", CONTROLLER)
    wait_until(lambda: machine.show(CONTROLLER, "StatusText") == "running", 30, "the next controller process runs")
    assert registered is not None and tree.exists(f"{znodes.BROKER_IDS}/{OURS}") == registered
    machine.stop()
    check_left(machine, tree)
    assert tree.children(znodes.BROKER_IDS) == [str(THEIRS)]
    machine.systemctl("start", "odradek.target")
    cluster.wait_isr("t", 0, 2, 60)


def test_broker_leaves_in_order_while_its_controller_process_starts(
    cluster: Cluster, machine: Machine, tree: ZooKeeperTree
) -> None:
    lead(cluster, tree)
    killed = machine.main_pid(CONTROLLER)
    machine.signal(CONTROLLER, "KILL")
    wait_until(lambda: machine.main_pid(CONTROLLER) not in (0, killed), 30, "systemd has started another one")
    machine.signal(CONTROLLER, "STOP")  # long before it is ready
    machine.systemctl("stop", "--no-block", "odradek.target")
    wait_until(lambda: "systemd leave" in machine.run("ps", "ax"), 60, "`odradek systemd leave` waits")
    goal = _sleeps(machine) + 20
    wait_until(lambda: _sleeps(machine) >= goal, 60, "some checks of `odradek systemd leave`")
    assert machine.state("odradek-cluster.service") == "deactivating"
    machine.signal(CONTROLLER, "CONT")
    machine.stop()
    check_left(machine, tree)


def _sleeps(machine: Machine) -> int:
    """How often `odradek systemd leave` has slept, once after each check."""
    status = machine.run("cat", f"/proc/{machine.show('odradek-cluster.service', 'ControlPID')}/status")
    return int(status.split("voluntary_ctxt_switches:")[1].split()[0])


def test_session_ends_even_without_the_leave_command(machine: Machine, tree: ZooKeeperTree) -> None:
    """The broker stops without leaving, as during a start; its last unit ends the ZooKeeper session."""
    wait_until(lambda: len(tree.children(znodes.BROKER_IDS)) == 2, 30, "two brokers")
    machine.drop_in("odradek-cluster.service", "[Service]\nExecStop=\n")
    machine.stop()
    assert tree.children(znodes.BROKER_IDS) == [str(THEIRS)]


def test_broker_starts_once_zookeeper_is_available(tmp_path: Path) -> None:
    """The units wait longer than their start timeout, which they extend."""
    zookeeper, folder = ZooKeeper(tmp_path / "zookeeper"), tmp_path / "machine"
    folder.mkdir()
    settings = {"zookeeper_connect": zookeeper.connect, "zookeeper_connection_timeout_ms": 1000}
    try:
        with booted(folder, broker_id=OURS, offsets_topic_replication_factor=1, **settings) as machine:
            machine.drop_in(MEMORY, f"[Service]\nTimeoutStartSec={PATIENCE_S}\n")
            machine.systemctl("start", "--no-block", "odradek.target")
            wait_until(lambda: _waited_s(machine) > PATIENCE_S + LATE_S, 60, "the start timeout has passed")
            assert machine.state(MEMORY) == "activating"
            assert machine.show(MEMORY, "StatusText").startswith("waiting for ZooKeeper: ZooKeeper at")
            zookeeper.start()
            wait_until(lambda: machine.state("odradek.target") == "active", 60, "all is started")
            with machine.wire() as wire:
                wait_until(lambda: wire.metadata().controller_id == OURS, 30, "a controller")
    finally:
        zookeeper.kill()


def _waited_s(machine: Machine) -> float:
    begun = int(machine.show(MEMORY, "ExecMainStartTimestampMonotonic"))
    return time.monotonic() - begun / 1e6 if begun else 0.0
