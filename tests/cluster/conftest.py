"""Fixtures for tests of a real cluster; each file starts its own `cluster`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.cluster.tree.zookeeper import ZooKeeperTree

from ..harness.cluster import Cluster
from ..harness.zookeeper import ZooKeeper


@pytest.fixture
def tree(cluster: Cluster) -> Iterator[ZooKeeperTree]:
    """A ZooKeeper session of a tool."""
    opened = ZooKeeperTree(cluster.zookeeper.connect)
    yield opened
    opened.close()


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[ZooKeeper]:
    """A ZooKeeper server for tests that start single brokers."""
    running = ZooKeeper(tmp_path / "zookeeper")
    running.start()
    yield running
    running.kill()
