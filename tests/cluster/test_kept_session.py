"""Ends of a controller process that end its broker's ZooKeeper session, or keep it for the next process."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from odradek.cluster.tree import znodes
from odradek.cluster.tree.tree import Stat
from odradek.cluster.tree.zookeeper import ZooKeeperTree
from odradek.ipc.rundir import SESSION_FILE, run_dir

from ..harness.broker import Broker
from ..harness.cluster import Cluster
from ..harness.process import wait_dead, wait_until

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1"), pytest.mark.timeout(120)]
PATH = f"{znodes.BROKER_IDS}/0"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, brokers=1) as started:
        yield started


@pytest.fixture
def broker(cluster: Cluster) -> Broker:
    return cluster.broker(0)


@pytest.fixture
def tree(cluster: Cluster) -> Iterator[ZooKeeperTree]:
    opened = ZooKeeperTree(cluster.zookeeper.connect)
    yield opened
    opened.close()


def await_registered(broker: Broker, tree: ZooKeeperTree, times: int) -> Stat:
    """Wait until controller processes have logged the registration `times` times; return the node."""
    wait_until(lambda: broker.log.count("registered as broker 0") == times, 30, "the registration")
    stat = tree.exists(PATH)
    assert stat is not None
    return stat


def terminate(broker: Broker) -> None:
    psutil.Process(broker.pids("controller")[0]).terminate()


def confuse(broker: Broker) -> None:
    """Send an invalid message, which raises an error that nothing catches."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect(str(run_dir(broker.data_dir) / "controller.sock"))
        client.send(b"\x01?")


@pytest.mark.parametrize("end", [terminate, confuse])
def test_dead_controller_process_keeps_session(
    broker: Broker, tree: ZooKeeperTree, end: Callable[[Broker], None]
) -> None:
    """The broker continues to serve: no leader is elected, only another controller, at once."""
    registered = await_registered(broker, tree, 1)
    wait_until(lambda: tree.exists(znodes.CONTROLLER) is not None, 30, "the election of the controller")
    (first,) = broker.pids("controller")
    end(broker)
    broker.await_respawn("controller", first)
    assert await_registered(broker, tree, 2) == registered
    wait_until(lambda: (node := tree.exists(znodes.CONTROLLER)) and node.owner == registered.owner, 30, "an election")


def test_stopped_broker_ends_session(broker: Broker, tree: ZooKeeperTree) -> None:
    await_registered(broker, tree, 1)
    broker.stop()
    assert tree.exists(PATH) is None
    assert not (run_dir(broker.data_dir) / SESSION_FILE).exists()


def test_broker_ends_session_when_all_processes_get_sigterm(broker: Broker, tree: ZooKeeperTree) -> None:
    """A service manager signals all processes: the controller process may stop before the broker drains."""
    await_registered(broker, tree, 1)
    supervisor, controller = (psutil.Process(broker.pids(role)[0]) for role in ("supervisor", "controller"))
    supervisor.suspend()
    controller.terminate()
    assert not wait_dead([controller])
    supervisor.terminate()
    supervisor.resume()
    broker.stop()
    assert tree.exists(PATH) is None
    assert not (run_dir(broker.data_dir) / SESSION_FILE).exists()
