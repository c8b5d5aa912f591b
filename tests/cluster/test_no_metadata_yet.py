"""A broker without metadata: no elected controller knows it yet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from odradek.cluster.tree import znodes
from odradek.cluster.tree.zookeeper import ZooKeeperTree
from odradek.ipc import processes, roles
from odradek.ipc.rundir import shm_prefix
from odradek.ipc.shm import Shared

from ..harness.broker import Broker
from ..harness.process import await_turns, wait_until
from ..harness.zookeeper import ZooKeeper

ELSEWHERE = 99  # the id of an elected broker that does nothing

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1"), pytest.mark.timeout(120)]


@pytest.fixture
def tree(zookeeper: ZooKeeper) -> Iterator[ZooKeeperTree]:
    """A tree in which another broker is the controller."""
    opened = ZooKeeperTree(zookeeper.connect)
    opened.create(znodes.CONTROLLER, znodes.encode_controller(ELSEWHERE, 0), ephemeral=True)
    yield opened
    opened.close()


@pytest.fixture
def broker(zookeeper: ZooKeeper, tree: ZooKeeperTree, tmp_path: Path) -> Iterator[Broker]:
    running = Broker(tmp_path / "broker", broker_id=7, zookeeper_connect=zookeeper.connect)
    try:
        yield running.start()
    finally:
        running.close()


def test_broker_without_metadata_names_itself(broker: Broker, tree: ZooKeeperTree) -> None:
    """If librdkafka gets no brokers, it sends nothing more on that connection, and tries no other server."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    assert [*admin.list_topics(timeout=20).brokers] == [7]
    tree.delete(znodes.CONTROLLER)
    wait_until(lambda: admin.list_topics(timeout=20).controller_id == 7, 30, "the same client to learn of a controller")


def test_broker_is_ready_once_it_has_metadata(zookeeper: ZooKeeper, tree: ZooKeeperTree, tmp_path: Path) -> None:
    """An admin client of librdkafka that gets no controller waits until its request times out."""
    broker = Broker(tmp_path / "broker", broker_id=7, zookeeper_connect=zookeeper.connect)
    try:
        broker.launch()
        wait_until(lambda: tree.exists(f"{znodes.BROKER_IDS}/7"), 30, "the broker to register")
        table = Shared.attach(shm_prefix(broker.data_dir)).processes
        others = (roles.FIRST_WORKER, roles.ACCEPTOR, roles.COORDINATOR, roles.JANITOR)
        running = lambda: all(table.get(role, "state") == processes.RUNNING for role in others)  # noqa: E731
        wait_until(running, 30, "all processes but the controller to run")
        assert broker.process is not None
        await_turns(broker.process.pid)
        assert "READY" not in broker.log
        tree.delete(znodes.CONTROLLER)
        broker.await_ready()
        assert AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=20).controller_id == 7
    finally:
        broker.close()
