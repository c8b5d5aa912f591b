"""Compaction: compare Odradek's cleaner with Apache Kafka's, on the same segments.

    python -m odradek.loadtest.bench --rows compact-1k

This module writes the segments as a producer with default settings fills them, 16 KiB a batch, with random keys. Each
broker in turn gets hard links of them as a topic's partition. When it has opened them, the topic becomes compacted: the
clock and the CPU of all the broker's processes run from there until the cleaner's checkpoint is at the active segment.
A cleaned log is as large as its remaining records, and the old segments stay until the directory goes: 15 GB of disk
for 5 GB of records of 1 KB, 25 GB for as many of 100 B.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from odradek.loadtest.harness import wire
from odradek.loadtest.harness.brokers import ApacheKafka, Broker, Odradek
from odradek.loadtest.harness.store import Entry
from odradek.loadtest.harness.tools import BrokerError, say
from odradek.loadtest.measurements.compaction_data import fill

TOPIC = "compacted"
SECONDS = 3600
_CHECKPOINT = "cleaner-offset-checkpoint"
_SETTINGS = {"log.cleaner.backoff.ms": 100, "log.segment.delete.delay.ms": 3_600_000, "log.retention.ms": -1}
_COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.0"}


class Load(NamedTuple):
    """`records` records of `size` bytes, with random ones of `keys` keys."""

    title: str
    size: int
    records: int
    keys: int


LOADS = {
    "compact-1k": Load("5 GB of 1 KB records, 5 million keys", 1000, 5_000_000, 5_000_000),
    "compact-100": Load("5 GB of 100 B records, 20 million keys", 100, 50_000_000, 20_000_000),
}


class Kafka(ApacheKafka):
    """The Apache Kafka whose cleaner is compared with Odradek's."""

    release = "3.9.1"


KINDS: tuple[type[Broker], ...] = (Kafka, Odradek)


def once(kind: type[Broker], folder: Path, segments: Path, dirty_end: int) -> dict[str, float]:
    """Let a separate broker clean the segments; MB and CPU refer to the original records."""
    broker = kind(folder, _SETTINGS)
    try:
        _give(broker, segments)
        broker.start(1)
        size = sum(path.stat().st_size for path in segments.iterdir())
        began, cpu = time.monotonic(), broker.cpu()
        wire.configure(broker.port, TOPIC, _COMPACTED)
        _await(broker, dirty_end)
        seconds, spent = time.monotonic() - began, broker.cpu() - cpu
        left = sum(path.stat().st_size for path in (folder / "data" / f"{TOPIC}-0").glob("*.log"))
    finally:
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "seconds": seconds,
        "cpu": spent,
        "mb_s": size / 1e6 / seconds,
        "cpu_per_gb": spent / size * 1e9,
        "left": left,
    }


def _give(broker: Broker, segments: Path) -> None:
    """Create the topic, and replace its only segment by hard links of the segments."""
    broker.start()
    broker.create(TOPIC)
    broker.stop()
    partition = broker.folder / "data" / f"{TOPIC}-0"
    for path in partition.iterdir():
        if path.suffix in (".log", ".index", ".timeindex", ".snapshot"):
            path.unlink()
    for path in segments.iterdir():
        os.link(path, partition / path.name)
    (partition / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")


def _await(broker: Broker, dirty_end: int) -> None:
    """Wait until the checkpoint is at the end of the sealed segments."""
    path, deadline = broker.folder / "data" / _CHECKPOINT, time.monotonic() + SECONDS
    while f"{TOPIC} 0 {dirty_end}" not in (path.read_text().splitlines() if path.exists() else []):
        if time.monotonic() > deadline:
            raise BrokerError(f"{broker.name} has not cleaned the log:\n{broker.log_tail()}")
        time.sleep(0.05)


def measure(key: str, folder: Path, rounds: int, scale: float, kinds: Sequence[type[Broker]] = KINDS) -> Entry:
    """One row, in turn."""
    entry, wanted = Entry({}, rounds, scale), LOADS[key]
    segments = folder / "segments"
    try:
        random.seed(key)
        dirty_end = fill(segments, wanted.size, int(wanted.records * scale), int(wanted.keys * scale))
        for _ in range(rounds):
            for kind in kinds:
                found = once(kind, folder / kind.key, segments, dirty_end)
                say(f"{key}: {kind.name} " + ", ".join(f"{name} {value:,.2f}" for name, value in found.items()))
                entry.data.setdefault(kind.name, []).append(found)
    finally:
        shutil.rmtree(segments, ignore_errors=True)
    return entry
