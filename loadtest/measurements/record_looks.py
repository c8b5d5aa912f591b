"""The cost of checking the records of each batch: the same load to two topics of one broker, in turn.

One topic has the default settings, the other `odradek.producers.trusted`, which skips the check
(workers.produce.record_check). It is also part of `make bench`, for Odradek alone: Apache Kafka has no such setting.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import NamedTuple

from odradek.loadtest.harness import wire
from odradek.loadtest.harness.brokers import Broker, Odradek
from odradek.loadtest.harness.load_clients import run
from odradek.loadtest.harness.store import Entry
from odradek.loadtest.harness.tools import say, touch_memory
from odradek.loadtest.measurements.rows import ROWS, check_end

LOOKED_AT, TRUSTED = "looked at", "trusted"
_CONFIGS = {LOOKED_AT: {}, TRUSTED: {"odradek.producers.trusted": "true"}}


class Load(NamedTuple):
    """The load of a row of the table, and the CPU that the check may add."""

    row: str
    most: float


LOADS = {
    "look-batch1": Load("batch1", 0.10),
    "look-batch50": Load("batch50", 0.25),
    "look-full": Load("full", 0.25),
    "look-full-lz4": Load("full-lz4", 0.25),
}


def measure(key: str, folder: Path, rounds: int, scale: float) -> Entry:
    """One row, in turn, after one warm-up round."""
    entry = Entry({}, rounds, scale)
    with Odradek(folder / key) as broker:
        broker.start()
        for turn in range(rounds + 1):
            for name, configs in _CONFIGS.items():
                found = _once(LOADS[key].row, broker, scale, configs)
                say(f"{key} {turn or 'warm-up'}: {name} {found['cpu_us']:.3f} µs")
                if turn:
                    entry.data.setdefault(name, []).append(found)
    return entry


def _once(key: str, broker: Broker, scale: float, configs: dict[str, str]) -> dict[str, float]:
    row = next(row for row in ROWS if row.key == key)
    call = row.kafka.scaled(scale * row.more)
    touch_memory(call.sent * call.size)
    topic = f"look-{uuid.uuid4().hex[:8]}"
    broker.create(topic)
    if configs:
        wire.configure(broker.port, topic, configs)
    cost = run(call, broker, topic)
    check_end(broker, topic, call)
    broker.delete(topic)
    return cost.as_dict()
