"""The cost of one partition's table of idempotent producers: growth, expiry, its snapshot at a roll, a start.

    python -m odradek.loadtest.bench --rows producers-100k

Such work holds the partition's lock, appends wait for it, and clients see a pause. It is measured in one process with
the broker's own modules, on a partition in separate shared memory. Each producer has one batch. `odradek.producers.max`
is the number of producers, so that the next one makes the table forget the older half.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.loadtest.harness.store import Entry
from odradek.loadtest.harness.tools import say

if TYPE_CHECKING:
    from odradek.ipc.slots import Fields
    from odradek.storage.log.partition import Partition

ODRADEK = "Odradek"
STEPS = ("grow", "forget", "snapshot", "start")
_WRITTEN_MS = 1_700_000_000_000


class Load(NamedTuple):
    """`producers` producers in one partition."""

    title: str
    producers: int


LOADS = {
    "producers-100k": Load("100,000, the default of `odradek.producers.max`", 100_000),
    "producers-1m": Load("1,000,000", 1_000_000),
}


class Watch:
    """CPU ms of the code within `working`, the part of them within `locked`, and that of the longest hold."""

    def __init__(self) -> None:
        self.cpu = self.held = self.longest = 0.0

    @contextmanager
    def working(self) -> Iterator[None]:
        began = time.process_time()
        yield
        self.cpu += (time.process_time() - began) * 1000

    @contextmanager
    def locked(self, partition: Partition) -> Iterator[Fields]:
        with partition.locked() as values, self.holding():
            yield values

    @contextmanager
    def holding(self) -> Iterator[None]:
        began = time.process_time()
        yield
        spent = (time.process_time() - began) * 1000
        self.held, self.longest = self.held + spent, max(self.longest, spent)

    def named(self, step: str) -> dict[str, float]:
        return {f"{step}_cpu_ms": self.cpu, f"{step}_held_ms": self.held, f"{step}_longest_ms": self.longest}


def once(folder: Path, producers: int) -> dict[str, float]:
    """One round on a separate partition below `folder`."""
    with _partition(folder, producers) as partition:
        found = _grown(partition, producers).named("grow")
        _append(partition)
        found |= _rolled(partition).named("snapshot")
        found |= _forgotten(partition, producers).named("forget")
        found |= _started(partition).named("start")
        snapshot = max(Path(partition.directory).glob("*.snapshot"))
        return found | {"snapshot_mb": snapshot.stat().st_size / 1e6}


@contextmanager
def _partition(folder: Path, most: int) -> Iterator[Partition]:
    from odradek.ipc import region, roles, slots
    from odradek.ipc.shm import Shared
    from odradek.storage.config import LogConfig
    from odradek.storage.log.log import Log, PartitionLocation

    prefix, place = f"/odradek-bench{os.getpid()}-", PartitionLocation(bytes(16), 0, 1, str(folder))
    config = LogConfig.resolve({"odradek.producers.max": most})
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "t-0").mkdir(parents=True)
    try:
        shared = Shared.create(prefix, 1, 1)
        shared.slots[0].publish(slots.SlotState(incarnation=1, state=slots.LEADER))
        log = Log(shared, folder, roles.JANITOR, lambda topic, index: place, lambda topic: config)
        partition = log.get("t", 0)
        assert partition is not None
        yield partition
        log.close()
    finally:
        region.unlink_all(prefix)
        shutil.rmtree(folder, ignore_errors=True)


def _grown(partition: Partition, producers: int) -> Watch:
    """Add one producer after the other; only making room for the next ones counts."""
    from odradek.ipc.slots import F_PSTATE_GEN
    from odradek.storage.log import producer_capacity

    watch, known = Watch(), 0
    while known < producers:
        with watch.working(), watch.locked(partition) as values:
            producer_capacity.reserve(partition, values, [known])
        table: Any = partition.producers.table(values[F_PSTATE_GEN])
        with partition.locked():
            upto = min(known + table.words[2] - table.used, producers)
            for producer in range(known, upto):
                table.append(table.insert(producer, 0), (producer, 0, 0, 0, 0, 0, _WRITTEN_MS, 0))
        known = upto
    return watch


def _append(partition: Partition) -> None:
    """A batch that a roll can seal."""
    from odradek.protocol.records import batch_v2
    from odradek.storage.log.append import append
    from odradek.storage.log.log_batch import Batch

    data = bytearray(batch_v2.build([(0, _WRITTEN_MS, None, b"x", ())]))
    with partition.locked() as values:
        append(partition, values, [Batch(memoryview(data), 1, _WRITTEN_MS)], _WRITTEN_MS)


def _rolled(partition: Partition) -> Watch:
    from odradek.storage.log import roll

    watch = Watch()
    with watch.working(), watch.locked(partition) as values:
        roll.roll(partition, values)
    return watch


def _started(partition: Partition) -> Watch:
    """Like a start after a clean stop, with the roll's snapshot: the lock is held throughout."""
    from odradek.ipc import slots
    from odradek.storage.log import opening
    from odradek.storage.log.log import Log

    partition.slot.update(state=slots.RECOVERING)
    log_dir, watch = opening.LogDir.read(os.path.dirname(partition.directory), clean=True), Watch()
    with watch.working(), watch.holding():
        assert isinstance(partition.owner, Log)
        opened = opening.open_all(partition.owner, [("t", 0)], [log_dir], lambda: None)
    if opened != 1 or partition.state().state == slots.OFFLINE:
        raise OSError("the partition was not opened")
    return watch


def _forgotten(partition: Partition, producers: int) -> Watch:
    """The cost of the next producer when the table is full."""
    from odradek.storage.log import producer_capacity

    watch = Watch()
    with watch.working(), watch.locked(partition) as values:
        producer_capacity.reserve(partition, values, [producers])
    return watch


def measure(key: str, folder: Path, rounds: int, scale: float) -> Entry:
    """One row."""
    entry = Entry({ODRADEK: []}, rounds, scale)
    for turn in range(rounds):
        found = once(folder / key, int(LOADS[key].producers * scale))
        say(f"{key} {turn + 1}: " + ", ".join(f"{name} {value:,.1f}" for name, value in found.items()))
        entry.data[ODRADEK].append(found)
    return entry
