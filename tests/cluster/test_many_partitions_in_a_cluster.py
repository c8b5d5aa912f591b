"""A request for thousands of partitions in a cluster: its controller serves others meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ..harness.cluster import Cluster
from ..harness.process import readable
from ..harness.wire import Wire

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1")]

MANY = 2_000
SECONDS = 600  # a disk may take its time


def create(name: str, partitions: int, validate_only: bool = False) -> Any:
    from kafka.protocol.admin import CreateTopicsRequest as Request

    topic = Request.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    return Request[4](topics=[topic], timeout_ms=60_000, validate_only=validate_only)


def shown(wire: Wire, name: str) -> int:
    """The number of partitions in Metadata; each has a leader."""
    rows = wire.metadata(name).topics[0].partitions
    assert all(row.leader_id == 0 for row in rows)
    return len(rows)


def test_other_requests_are_served_during_a_large_creation(tmp_path: Path) -> None:
    with Cluster(tmp_path, 1) as cluster:
        broker = cluster.broker(0)
        with broker.wire(SECONDS) as busy, broker.wire(SECONDS) as other:
            big, counts = create("big", MANY), []
            busy.put(big)
            while not readable(busy.socket, 0):
                assert other.call(create("small", 1, validate_only=True)).topics[0].error_code == 0
                counts.append(shown(other, "big"))
            assert busy.take(big).topics[0].error_code == 0
            assert shown(other, "big") == MANY
            assert counts.count(0) > 5, "requests were also answered after the writes to ZooKeeper"
            assert set(counts) <= {0, MANY}, "an incomplete topic is never published"
