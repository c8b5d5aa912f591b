"""Helpers that create and run a log cleaner over the partitions of a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek.broker.janitor.log_cleaner import LogCleaner
from odradek.broker.process.checkpoint_lock import CheckpointLocks
from odradek.protocol.records import batch_v2
from odradek.storage.files import checkpoints
from odradek.storage.log.append import append
from odradek.storage.log.log_batch import Batch
from odradek.storage.log.partition import Partition

from ...partitions import Bench, now_ms

Maker = Callable[..., Bench]


def cleaner(bench: Bench, met: list[tuple[str, OSError]] | None = None, **config: Any) -> LogCleaner:
    """`met` collects disk errors; without it, there must be none."""
    settings = bench.config
    for name, value in config.items():
        settings = settings.with_value(name.replace("_", "."), value)

    def hear(partition: Partition, error: OSError) -> None:
        assert met is not None, f"{partition!r}: {error}"
        met.append((repr(partition), error))

    return LogCleaner(settings, lambda: bench.partitions, CheckpointLocks(bench.data.parent), hear)


def write(partition: Partition, count: int, keys: int = 3) -> None:
    for n in range(count):
        data = batch_v2.build([(0, now_ms(), b"%d" % (n % keys), b"x" * 100, ())])
        with partition.locked() as values:
            append(partition, values, [Batch(memoryview(bytearray(data)), 1, now_ms())], now_ms())


def until_idle(one: LogCleaner, backoff: float = 15000.0) -> int:
    """Run until the cleaner is idle; returns the number of steps."""
    for count in range(10_000):
        if one.step() == backoff:
            return count
    raise AssertionError("never idle")


def checkpoint(bench: Bench) -> dict[tuple[str, int], int]:
    return checkpoints.read_offsets(bench.data, checkpoints.CLEANER)
