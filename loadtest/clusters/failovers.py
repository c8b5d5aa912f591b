"""The cost of a lost broker in a cluster of three: how long partitions take no records, and no topic can be created."""

from __future__ import annotations

import signal
import threading
import time
from itertools import pairwise
from typing import Any

from odradek.loadtest.clusters.clusters import Cluster
from odradek.loadtest.harness import wire
from odradek.loadtest.harness.load_clients import LoadError
from odradek.loadtest.harness.tools import say

FAILOVER, CONTROLLER = "cluster-failover", "cluster-controller"
FAILOVER_PARTITIONS, CONTROLLER_PARTITIONS = (1, 100, 1000), 1000
_LONGEST_S = 60
_PAUSE_S = 0.002
_ON_THEIR_WAY_S = 0.1  # responses sent before the kill have arrived by then


def failover(cluster: Cluster, partitions: int) -> dict[str, Any]:
    """Seconds from kill -9 of the leader of all of a topic to the next acknowledged record of each partition.

    A client with librdkafka's defaults has a record in flight to each partition until each has had a response.
    """
    topic = f"failover-{partitions}-{time.monotonic_ns()}"
    cluster.create(topic, partitions)
    load = _Sender(cluster.bootstrap, topic, partitions)
    load.start()
    if not load.all_answered_after(time.monotonic(), _LONGEST_S):
        raise LoadError(f"{cluster.name}: not every partition of {topic} accepts records")
    time.sleep(1)
    killed = time.monotonic()
    cluster.members[0]._end(signal.SIGKILL)
    came_back = load.all_answered_after(killed + _ON_THEIR_WAY_S, _LONGEST_S)
    load.stop()
    cluster.members[0].start()
    cluster.wait_for_all()
    if not came_back:
        raise LoadError(f"{cluster.name}: not every partition of {topic} has a leader again")
    first, last = load.first_and_last(killed)
    say(f"failover of {partitions}: {cluster.name} first {first:.2f} s, all {last:.2f} s")
    return {"first": first, "last": last}


def controller_failover(cluster: Cluster) -> dict[str, Any]:
    """Seconds from kill -9 of the controller to the next created topic, with a thousand existing partitions."""
    cluster.create(f"controlled-{time.monotonic_ns()}", CONTROLLER_PARTITIONS)
    lost = cluster.members[wire.controller(cluster.port)]
    others = [port for port in cluster.ports if port != lost.port]
    killed = time.monotonic()
    lost._end(signal.SIGKILL)
    while not wire.create_somewhere(others, f"next-{time.monotonic_ns()}", 2):
        if time.monotonic() - killed > _LONGEST_S:
            raise LoadError(f"{cluster.name}: no other controller after {_LONGEST_S} s")
        time.sleep(0.01)
    took = time.monotonic() - killed
    lost.start()
    cluster.wait_for_all()
    say(f"failover of the controller: {cluster.name} {took:.2f} s")
    return {"controller": took}


class _Sender(threading.Thread):
    """Keeps one record in flight to each partition of a topic; `_answers` has the times of each one's responses."""

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
        """Wait until every partition has had a response later than `moment`."""
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
        """Stop sending."""
        self._over.set()
        self.join()
        self._producer.purge()
        self._producer.flush(1)


def _pause_end(answers: list[float], killed: float) -> float:
    """The end of the longest pause that lasted beyond `killed`: responses in flight may arrive after it."""
    beyond = [(after - before, after) for before, after in pairwise(answers) if after > killed]
    return max(beyond, default=(0.0, killed))[1]
