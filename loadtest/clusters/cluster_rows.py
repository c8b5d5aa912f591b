"""The work on clusters of three brokers: loads of one replicated partition, and idleness.

Partitions have factor 3 and min.insync.replicas=2; all writes use acks=all.
"""

from __future__ import annotations

import time
from typing import Any

from odradek.loadtest.clusters.clusters import Cluster
from odradek.loadtest.harness.load_clients import Call
from odradek.loadtest.measurements.rows import Row, Target

IDLE = "cluster-idle"
IDLE_PARTITIONS, IDLE_SECONDS, SETTLE_SECONDS = 1000, 20, 10


def _send(messages: int, size: int, batch: int) -> Call:
    settings = (f"batch.num.messages={batch}", "linger.ms=5", "acks=all")
    return Call("client", "produce", {"messages": messages, "size": size, "producers": 1}, settings)


ROWS = (
    Row(
        "cluster-batch1",
        "200 B, batch 1, many in flight",
        _send(15_000, 200, 1),
        Target(rate=5, cpu=1 / 5),
        more=4,
    ),
    Row("cluster-batch50", "200 B, batch 50", _send(400_000, 200, 50), Target(rate=3, cpu=1 / 3), more=2),
    Row("cluster-full", "1 KB, full batches", _send(400_000, 1000, 10_000), Target(rate=1.5, cpu=1 / 2)),
    Row(
        "cluster-latency",
        "1,000 msg/s of 200 B, produce to ack",
        Call("client", "latency", {"rate": 1000, "seconds": 5, "size": 200}, ("acks=all", "linger.ms=0")),
        Target(p50=1 / 2, p99=1 / 5),
        latency=True,
    ),
)


def idle(cluster: Cluster) -> dict[str, Any]:
    """CPU seconds a second and MiB of all brokers with a thousand unused partitions."""
    topic = f"idle-{time.monotonic_ns()}"  # brokers still delete the previous topic
    cluster.create(topic, IDLE_PARTITIONS)
    time.sleep(SETTLE_SECONDS)
    before, began = cluster.cpu(), time.monotonic()
    time.sleep(IDLE_SECONDS)
    cpu = (cluster.cpu() - before) / (time.monotonic() - began)
    memory = cluster.memory()
    cluster.delete(topic)
    return {"cpu": cpu, "rss": memory.rss, "pss": memory.pss}
