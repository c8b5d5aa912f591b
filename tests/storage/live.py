"""A partition in a test's own shared memory, as any number of processes see it."""

from __future__ import annotations

import gc
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from odradek.ipc import region, slots
from odradek.ipc.roles import worker_role
from odradek.ipc.shm import Shared
from odradek.ipc.slots import SlotState
from odradek.protocol.records import batch_v2
from odradek.protocol.records.batch_v2 import Record
from odradek.storage.config import LogConfig
from odradek.storage.files import checkpoints
from odradek.storage.log import append, read
from odradek.storage.log.log import Log, PartitionLocation
from odradek.storage.log.log_batch import Batch
from odradek.storage.log.partition import Partition

NOW = 1_700_000_000_000


@dataclass
class Live:
    """One topic `t` with one partition in slot 0, incarnation 1."""

    root: Path
    prefix: str
    config: dict[str, Any] = field(default_factory=dict)
    logs: list[Log] = field(default_factory=list)

    def log(self, worker: int = 0) -> Log:
        """The log as a process sees it; call it again after a fork."""
        place = PartitionLocation(bytes(16), 0, 1, str(self.root))
        made = Log(
            Shared.attach(self.prefix),
            self.root,
            worker_role(worker),
            lambda topic, index: place if (topic, index) == ("t", 0) else None,
            lambda topic: LogConfig.resolve(self.config),
        )
        self.logs.append(made)
        return made

    def partition(self, worker: int = 0) -> Partition:
        partition = self.log(worker).get("t", 0)
        assert partition is not None
        return partition


@contextmanager
def live(root: Path, **config: Any) -> Iterator[Live]:
    """Make the directory and the shared memory; config with `_` for `.`."""
    prefix = f"/odradek-test{secrets.token_hex(4)}-"
    shared = Shared.create(prefix, 1, 1)
    shared.slots[0].publish(SlotState(incarnation=1, state=slots.LEADER))
    os.makedirs(root / "t-0", exist_ok=True)
    made = Live(root, prefix, {name.replace("_", "."): value for name, value in config.items()})
    try:
        yield made
    finally:
        for log in made.logs:
            log.close()
        made.logs.clear()
        gc.collect()  # the maps of former worlds, each with a descriptor
        region.unlink_all(prefix)


def batch(*values: bytes, producer: int = -1, epoch: int = 0, sequence: int = -1, timestamp: int = NOW) -> Batch:
    """A batch as it comes from a client."""
    idempotent = {"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequence} if producer >= 0 else {}
    rows: list[Record] = [(n, timestamp + n, b"k", value, []) for n, value in enumerate(values)]
    data = bytearray(batch_v2.build(rows, base_offset=0, **idempotent))
    last = timestamp + len(values) - 1
    return Batch(memoryview(data), len(values), last, producer, epoch if producer >= 0 else -1, sequence)


def note_flushed(partition: Partition) -> None:
    """Publish and checkpoint, as the janitor soon after a roll, that all sealed segments are flushed."""
    with partition.locked() as values:
        values[slots.F_FLUSHED] = max(values[slots.F_FLUSHED], values[slots.F_ACTIVE_BASE])
        partition.slot.publish(values)
    note_recovery_point(partition)


def note_recovery_point(partition: Partition) -> None:
    """As the janitor does each minute: write down what is flushed."""
    flushed, key = partition.state().flushed, (partition.topic, partition.index)
    checkpoints.write_offsets(os.path.dirname(partition.directory), checkpoints.RECOVERY_POINT, {key: flushed})


def put(partition: Partition, *batches: Batch, now_ms: int = NOW) -> list[int]:
    """Append; the base offsets."""
    with partition.locked() as values:
        append.append(partition, values, list(batches), now_ms)
    return [one.base_offset for one in batches]


def records(partition: Partition, offset: int | None = None, limit: int = 1 << 20) -> list[tuple[int, bytes]]:
    """(offset, value) of every record from `offset` (the log start) on, read as a consumer does."""
    found: list[tuple[int, bytes]] = []
    values = partition.slot.read()
    at = values[slots.F_LOG_START] if offset is None else offset
    first = at
    while True:
        values = partition.slot.read()
        piece = read.fetch(partition, values, at, values[slots.F_HW], limit)
        if piece is None:
            return found
        data, position = piece.read(), 0
        while position < len(data):
            size = int.from_bytes(data[position + 8 : position + 12], "big") + 12
            for number, _, _, value, _ in batch_v2.iterate(data[position : position + size]):
                assert value is not None
                if number >= first:
                    found.append((number, value))
            position += size
        at = found[-1][0] + 1 if found else at
        assert at == piece.following
