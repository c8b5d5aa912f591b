"""Findings of `odradek status` with real brokers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ...harness.broker import Broker
from ...harness.cluster import Cluster
from ...harness.process import wait_until

pytestmark = pytest.mark.live


def _findings(broker: Broker) -> dict[str, dict[str, Any]]:
    shown = broker.command("status", "--json", str(broker.properties_file)).stdout
    return {one["name"]: one for one in json.loads(shown)["findings"]}


def test_a_killed_worker_is_found_before_the_tables(fresh_broker: Callable[..., Broker]) -> None:
    broker = fresh_broker()
    assert "process_restarted" not in _findings(broker)
    broker.await_respawn("worker", broker.kill_role("worker"))
    found = _findings(broker)["process_restarted"]
    assert found["severity"] == "warning" and found["text"].endswith("(restarts: 1)")
    lines = broker.command("status", str(broker.properties_file)).stdout.splitlines()
    assert any(" ended and was started again, last " in line for line in lines[: lines.index("")])


def test_zookeeper_is_away(tmp_path: Path) -> None:
    with Cluster(tmp_path, 1) as cluster:
        broker = cluster.broker(0)
        assert "zookeeper_lost" not in _findings(broker)
        cluster.zookeeper.kill()
        wait_until(lambda: "zookeeper_lost" in _findings(broker), 30, "the loss is shown")
        cluster.zookeeper.start()
        wait_until(lambda: "zookeeper_lost" not in _findings(broker), 60, "ZooKeeper is back")
