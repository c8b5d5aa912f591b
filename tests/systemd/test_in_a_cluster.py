"""A broker of units is one of a cluster: its processes reach ZooKeeper and the others, and it leaves them in order."""

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
OURS, THEIRS = 1, 0  # the broker of units, and one that is none
MEMORY = "odradek-memory.service"
PATIENCE_S = 15  # of the manager with it, if it asks for no more
LATE_S = 2.0  # by so much systemd may be late

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
    """Have the broker of units lead the one partition of topic `t`, with the other one in sync."""
    wait_until(lambda: len(tree.children(znodes.BROKER_IDS)) == 2, 30, "two brokers")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    topic = NewTopic("t", 1, replica_assignment=[[OURS, THEIRS]], config={"min.insync.replicas": "2"})
    admin.create_topics([topic])["t"].result(30)
    wait_until(lambda: cluster.leader("t") == OURS, 30, "it leads")
    cluster.wait_isr("t", 0, 2)


def check_left(machine: Machine, tree: ZooKeeperTree) -> None:
    """In order."""
    assert "timed out" not in machine.log
    assert "controlled shutdown completed" in machine.log
    state = znodes.decode_state(tree.get(znodes.state_path("t", 0))[0])
    assert (state.leader, state.isr) == (THEIRS, [THEIRS])
    assert (machine.data_dir / ".kafka_cleanshutdown").exists()


def test_it_joins_leads_and_leaves(cluster: Cluster, machine: Machine, tree: ZooKeeperTree) -> None:
    lead(cluster, tree)
    with machine.wire() as wire:
        assert produce(wire, "t", batch([b"x"]), acks=-1).error_code == 0, "the other one follows it"
    killed = machine.main_pid(CONTROLLER)
    machine.signal(CONTROLLER, "KILL")
    machine.await_another(CONTROLLER, killed)
    wait_until(lambda: machine.show(CONTROLLER, "StatusText") == "running", 30, "it goes on with the session")
    registered = tree.exists(f"{znodes.BROKER_IDS}/{OURS}")
    machine.systemctl("restart", CONTROLLER)
    wait_until(lambda: machine.show(CONTROLLER, "StatusText") == "running", 30, "the next one does too")
    assert registered is not None and tree.exists(f"{znodes.BROKER_IDS}/{OURS}") == registered
    machine.stop()
    check_left(machine, tree)
    assert tree.children(znodes.BROKER_IDS) == [str(THEIRS)]
    machine.systemctl("start", "odradek.target")
    cluster.wait_isr("t", 0, 2, 60)


def test_it_leaves_when_its_controller_process_is_just_started(
    cluster: Cluster, machine: Machine, tree: ZooKeeperTree
) -> None:
    lead(cluster, tree)
    killed = machine.main_pid(CONTROLLER)
    machine.signal(CONTROLLER, "KILL")
    wait_until(lambda: machine.main_pid(CONTROLLER) not in (0, killed), 30, "systemd to start another")
    machine.signal(CONTROLLER, "STOP")  # long before it serves
    machine.systemctl("stop", "--no-block", "odradek.target")
    wait_until(lambda: "systemd leave" in machine.run("ps", "ax"), 60, "somebody to wait for it")
    goal = _sleeps(machine) + 20
    wait_until(lambda: _sleeps(machine) >= goal, 60, "it to have looked some times")
    assert machine.state("odradek-cluster.service") == "deactivating"
    machine.signal(CONTROLLER, "CONT")
    machine.stop()
    check_left(machine, tree)


def _sleeps(machine: Machine) -> int:
    """How often `odradek systemd leave` has slept: once after each look."""
    status = machine.run("cat", f"/proc/{machine.show('odradek-cluster.service', 'ControlPID')}/status")
    return int(status.split("voluntary_ctxt_switches:")[1].split()[0])


def test_the_session_ends_though_its_controller_process_was_not_told_why(machine: Machine, tree: ZooKeeperTree) -> None:
    """The broker stops without its part in the cluster, as before all has started: its last unit looks what is left."""
    wait_until(lambda: len(tree.children(znodes.BROKER_IDS)) == 2, 30, "two brokers")
    machine.drop_in("odradek-cluster.service", "[Service]\nExecStop=\n")
    machine.stop()
    assert tree.children(znodes.BROKER_IDS) == [str(THEIRS)]


def test_a_machine_that_boots_before_its_zookeeper_ends_with_a_broker(tmp_path: Path) -> None:
    """All that the manager starts waits, for longer than it would give a unit that does not ask for time."""
    zookeeper, folder = ZooKeeper(tmp_path / "zookeeper"), tmp_path / "machine"
    folder.mkdir()
    settings = {"zookeeper_connect": zookeeper.connect, "zookeeper_connection_timeout_ms": 1000}
    try:
        with booted(folder, broker_id=OURS, offsets_topic_replication_factor=1, **settings) as machine:
            machine.drop_in(MEMORY, f"[Service]\nTimeoutStartSec={PATIENCE_S}\n")
            machine.systemctl("start", "--no-block", "odradek.target")
            wait_until(lambda: _waited_s(machine) > PATIENCE_S + LATE_S, 60, "more time than it was given")
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
