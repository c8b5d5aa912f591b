"""The dashboard and the alert rules in a real Prometheus, which scrapes a cluster under load."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ....harness.browser import PICTURES
from ....harness.cluster import Cluster
from ....harness.process import free_port, wait_until
from ....harness.prometheus import Prometheus
from . import drawing, load, panels

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1"), pytest.mark.needs("prometheus")]

SECONDS = 90 if os.environ.get(PICTURES) else 8  # shown, after all panels have data


@contextmanager
def metered_cluster(folder: Path) -> Iterator[tuple[Cluster, list[str]]]:
    """Three brokers, and the addresses of their exporters."""
    cluster = Cluster(folder)
    addresses = [f"127.0.0.1:{free_port()}" for _ in cluster.brokers]
    for broker, address in zip(cluster.brokers, addresses, strict=True):
        broker.set(odradek_metrics_listener=address)
    with cluster:
        yield cluster, addresses


def test_a_picture_of_the_dashboard(tmp_path: Path) -> None:
    """Each panel has data; Prometheus takes each alert rule, and in a broker that works none fires."""
    with (
        metered_cluster(tmp_path / "cluster") as (cluster, addresses),
        Prometheus(tmp_path, addresses, panels.METRICS / "alerts.yml") as prometheus,
        load.running(cluster.bootstrap),
    ):
        found: list[list[str]] = []
        wait_until(lambda: found.append(empty(prometheus)) or not found[-1], 120, fail=False)
        assert found[-1] == []
        time.sleep(SECONDS)
        now = time.time()
        shown = panels.ask(prometheus, now - SECONDS, now)
        rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
    assert {rule["name"]: (rule["health"], rule["state"]) for rule in rules if rule["state"] == "firing"} == {}
    assert len(rules) > 10 and {rule["health"] for rule in rules} == {"ok"}
    assert {series.legend for panel in shown if panel.title == "Records in" for series in panel.series} == {*addresses}
    drawing.draw(shown, Path(os.environ.get(PICTURES) or tmp_path) / "dashboard.png")


def empty(prometheus: Prometheus) -> list[str]:
    """The titles of the panels without data in the last seconds."""
    now = time.time()
    return [panel.title for panel in panels.ask(prometheus, now - 3, now) if not panel.series]
