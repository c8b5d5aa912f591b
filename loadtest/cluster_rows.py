"""What is done to clusters of three brokers: loads of one replicated partition, idleness, and the loss of a leader.

Partitions have factor 3 and min.insync.replicas=2; everything is written with acks=all.
"""

from __future__ import annotations

import signal
import threading
import time
from itertools import pairwise
from typing import Any

from odradek.loadtest.clients import Call, LoadError
from odradek.loadtest.clusters import Cluster
from odradek.loadtest.rows import Row, Target
from odradek.loadtest.tools import say

IDLE, FAILOVER = "cluster-idle", "cluster-failover"
IDLE_PARTITIONS, IDLE_SECONDS, SETTLE_SECONDS = 1000, 10, 10
FAILOVER_PARTITIONS = (1, 100, 1000)
_LONGEST_S = 60
_PAUSE_S = 0.002


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
    """CPU seconds a second and MiB of all brokers with a thousand partitions of which none is used."""
    topic = f"idle-{time.monotonic_ns()}"  # brokers are still deleting the last one's
    cluster.create(topic, IDLE_PARTITIONS)
    time.sleep(SETTLE_SECONDS)
    before, began = cluster.cpu(), time.monotonic()
    time.sleep(IDLE_SECONDS)
    cpu = (cluster.cpu() - before) / (time.monotonic() - began)
    memory = cluster.memory()
    cluster.delete(topic)
    return {"cpu": cpu, "rss": memory.rss, "pss": memory.pss}


def failover(cluster: Cluster, partitions: int) -> dict[str, Any]:
    """Seconds from kill -9 of the broker that leads all of a topic to the next acknowledged record of each partition.

    A client with librdkafka's defaults has a record on its way to each partition until each has had an answer.
    """
    topic = f"failover-{partitions}-{time.monotonic_ns()}"
    cluster.create(topic, partitions)
    load = _Sender(cluster.bootstrap, topic, partitions)
    load.start()
    if not load.all_answered_after(time.monotonic(), _LONGEST_S):
        raise LoadError(f"{cluster.name}: not every partition of {topic} takes records")
    time.sleep(1)
    killed = time.monotonic()
    cluster.members[0]._end(signal.SIGKILL)
    came_back = load.all_answered_after(killed + 0.001, _LONGEST_S)
    load.stop()
    cluster.members[0].start()
    cluster.wait_for_all()
    if not came_back:
        raise LoadError(f"{cluster.name}: not every partition of {topic} has a leader again")
    first, last = load.first_and_last(killed)
    say(f"failover of {partitions}: {cluster.name} first {first:.2f} s, all {last:.2f} s")
    return {"first": first, "last": last}


class _Sender(threading.Thread):
    """Keeps one record on its way to each partition of a topic; `answered` has the moments of the answers of each."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(daemon=True)
        from confluent_kafka import Producer

        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0})
        self._topic = topic
        self._free = list(range(partitions))
        self._answers: list[list[float]] = [[] for _ in range(partitions)]
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.is_set():
            free, self._free = self._free, []
            for partition in free:
                self._producer.produce(self._topic, b"x" * 200, partition=partition, on_delivery=self._answered)
            self._producer.poll(_PAUSE_S)

    def _answered(self, error: Any, message: Any) -> None:
        self._free.append(message.partition())
        if error is None:
            self._answers[message.partition()].append(time.monotonic())

    def all_answered_after(self, moment: float, seconds: float) -> bool:
        """Wait until every partition has had an answer later than `moment`."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if all(answers and answers[-1] > moment for answers in self._answers):
                return True
            time.sleep(0.005)
        return False

    def first_and_last(self, killed: float) -> tuple[float, float]:
        """Seconds from `killed` to the end of the longest pause of the quickest and the slowest partition."""
        pauses = [_pause_end(answers, killed) - killed for answers in self._answers]
        return min(pauses), max(pauses)

    def stop(self) -> None:
        """Send no more."""
        self._over.set()
        self.join()
        self._producer.purge()
        self._producer.flush(1)


def _pause_end(answers: list[float], killed: float) -> float:
    """When the longest pause that lasted beyond `killed` was over: answers on their way may come after it."""
    beyond = [(after - before, after) for before, after in pairwise(answers) if after > killed]
    return max(beyond, default=(0.0, killed))[1]
