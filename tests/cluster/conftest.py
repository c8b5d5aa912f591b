"""What tests of a real cluster share, beside the `cluster` that each file starts as it needs it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from odradek.cluster.zookeeper import ZooKeeperTree

from ..harness.cluster import Cluster


@pytest.fixture
def tree(cluster: Cluster) -> Iterator[ZooKeeperTree]:
    """ZooKeeper as a tool sees it."""
    opened = ZooKeeperTree(cluster.zookeeper.connect)
    yield opened
    opened.close()
