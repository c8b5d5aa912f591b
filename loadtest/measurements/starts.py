"""Start-up and memory: exec to the first Metadata response with all partitions, after a stop and after kill -9.

Each broker has a separate directory. A round is: start after a clean stop, idle memory, a load, memory under it,
kill -9 of all processes, start again. RabbitMQ has no partitions, so it has only the figures for one queue.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from odradek.loadtest.harness import wire
from odradek.loadtest.harness.brokers import Broker
from odradek.loadtest.harness.load_clients import Call, run

TOPIC = "started"
IDLE_SECONDS = 3


def _load(broker: Broker, partitions: int, scale: float) -> Call:
    if broker.speaks == "amqp":
        return Call("amqp", "produce", {"messages": 50_000, "size": 200}).scaled(scale)
    if partitions > 1:  # a little in every one of them
        return Call("raw", "produce", {"messages": 20_000, "partitions": partitions, "connections": 10}).scaled(scale)
    numbers = {"messages": 1_500_000, "size": 1000}
    return Call("client", "produce", numbers, ("linger.ms=5", "acks=1")).scaled(scale)


def prepared(kind: type[Broker], folder: Path, partitions: int) -> Broker:
    """A stopped broker whose directory holds a topic with that many partitions."""
    broker = kind(folder, {"num.partitions": partitions})
    try:
        broker.start()
        if broker.speaks == "kafka":
            wire.create(broker.port, TOPIC, partitions)
        run(_load(broker, partitions, 0.05), broker, TOPIC)
    finally:
        broker.stop()
    return broker


def once(broker: Broker, partitions: int, scale: float) -> dict[str, Any]:
    """One round, in seconds and MiB; `broker` is stopped before and after it."""
    expected = partitions if broker.speaks == "kafka" else 0
    try:
        clean = broker.start(expected)
        time.sleep(IDLE_SECONDS)
        idle = broker.memory()
        if broker.speaks == "kafka":
            wire.create(broker.port, TOPIC, partitions)  # it exists: wait until Kafka's leaders know that they lead
        cost = run(_load(broker, partitions, scale), broker, TOPIC)
        loaded = broker.memory()
        broker.kill()
        killed = broker.start(expected)
    finally:
        broker.stop()
    return {
        "clean": clean,
        "killed": killed,
        "idle_pss": idle.pss,
        "idle_rss": idle.rss,
        "loaded_pss": loaded.pss,
        "loaded_rss": loaded.rss,
        "rate": cost.rate,
    }
