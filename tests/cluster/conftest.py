"""What tests of a real cluster share, beside the `cluster` that each file starts as it needs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.cluster.tree.zookeeper import ZooKeeperTree

from ..harness.cluster import Cluster
from ..harness.zookeeper import ZooKeeper


@pytest.fixture
def tree(cluster: Cluster) -> Iterator[ZooKeeperTree]:
    """ZooKeeper as a tool sees it."""
    opened = ZooKeeperTree(cluster.zookeeper.connect)
    yield opened
    opened.close()


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[ZooKeeper]:
    """A server of its own, for who starts single brokers."""
    running = ZooKeeper(tmp_path / "zookeeper")
    running.start()
    yield running
    running.kill()
