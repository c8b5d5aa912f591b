"""How fast a follower with an empty disk copies a partition, compared with one consumer that reads from its leader."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from odradek.loadtest.clusters.clusters import Cluster
from odradek.loadtest.harness.load_clients import Call, LoadError, run
from odradek.loadtest.harness.tools import say

CATCH_UP = "cluster-catch-up"
MESSAGES, SIZE = 2_000_000, 1000
_LONGEST_S = 300
_LATE = 2  # the member that copies


def catch_up(cluster: Cluster, scale: float) -> dict[str, Any]:
    """Bytes of message values a second of both; the follower's once it has begun."""
    topic, messages = f"catch-up-{time.monotonic_ns()}", max(1000, round(MESSAGES * scale))
    cluster.create(topic)
    sent = Call("client", "produce", {"messages": messages, "size": SIZE, "producers": 1}, ("acks=all", "linger.ms=5"))
    run(sent, cluster, topic)
    read = run(Call("client", "consume", {"messages": messages, "size": SIZE, "consumers": 1}), cluster, topic)
    took = _copy_anew(cluster, topic)
    cluster.delete(topic)
    found = {"copied": messages * SIZE / took, "read": read.rate * SIZE}
    say(f"catch-up: {cluster.name} {found['copied'] / 1e6:,.0f} MB/s, a consumer {found['read'] / 1e6:,.0f} MB/s")
    return found


def _copy_anew(cluster: Cluster, topic: str) -> float:
    """Seconds between its first tenth and its end, scaled to the whole: without the follower's start."""
    late, whole = cluster.members[_LATE], _bytes(cluster.members[0].folder / "data" / f"{topic}-0")
    late.stop()
    shutil.rmtree(late.folder / "data")
    late.launch()
    folder, deadline = late.folder / "data" / f"{topic}-0", time.monotonic() + _LONGEST_S
    _await(lambda: _bytes(folder) >= whole / 10, deadline)
    began, first = time.monotonic(), _bytes(folder)
    _await(lambda: _bytes(folder) >= whole, deadline)
    took = time.monotonic() - began
    _await(lambda: _in_sync(cluster, topic), deadline)
    late.started()
    cluster.wait_for_all()
    return took * whole / (whole - first)


def _await(there: Any, deadline: float) -> None:
    while not there():
        if time.monotonic() > deadline:
            raise LoadError(f"the follower has not caught up after {_LONGEST_S} s")
        time.sleep(0.005)


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.log"))


def _in_sync(cluster: Cluster, topic: str) -> bool:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": cluster.members[0].bootstrap, "log_level": 0})
    try:
        return _LATE in admin.list_topics(topic, 10).topics[topic].partitions[0].isrs
    except KafkaException:
        return False
