"""How fast a follower with an empty disk copies a partition, beside one consumer that reads it of the same leader."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from odradek.loadtest.clients import Call, LoadError, run
from odradek.loadtest.clusters import Cluster
from odradek.loadtest.tools import say

CATCH_UP = "cluster-catch-up"
MESSAGES, SIZE = 2_000_000, 1000
_LONGEST_S = 300
_LATE = 2  # the member that copies


def catch_up(cluster: Cluster, scale: float) -> dict[str, Any]:
    """Bytes of message values a second of both; the follower from its first byte until it is in sync."""
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
    late = cluster.members[_LATE]
    late.stop()
    shutil.rmtree(late.folder / "data")
    late.launch()
    deadline = time.monotonic() + _LONGEST_S
    _await(lambda: _has_bytes(late.folder / "data" / f"{topic}-0"), deadline)
    began = time.monotonic()
    _await(lambda: _in_sync(cluster, topic), deadline)
    took = time.monotonic() - began
    late.started()
    cluster.wait_for_all()
    return took


def _await(there: Any, deadline: float) -> None:
    while not there():
        if time.monotonic() > deadline:
            raise LoadError(f"the follower has not caught up after {_LONGEST_S} s")
        time.sleep(0.005)


def _has_bytes(folder: Path) -> bool:
    return any(path.stat().st_blocks for path in folder.glob("*.log"))


def _in_sync(cluster: Cluster, topic: str) -> bool:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": cluster.members[0].bootstrap, "log_level": 0})
    try:
        return _LATE in admin.list_topics(topic, 10).topics[topic].partitions[0].isrs
    except KafkaException:
        return False
