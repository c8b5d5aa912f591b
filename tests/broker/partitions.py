"""A broker's partitions without its processes: shared memory, a snapshot, recovered logs, appends."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

from odradek.broker import config as configuration
from odradek.broker.config import BrokerConfig
from odradek.broker.process.partitions import Partitions
from odradek.cluster.metadata.snapshot import raw_snapshot
from odradek.ipc import roles, slots
from odradek.ipc.shm import Shared
from odradek.ipc.slots import SlotState
from odradek.protocol.records import batch_v2
from odradek.storage.log import opening
from odradek.storage.log.append import append
from odradek.storage.log.log_batch import Batch
from odradek.storage.log.partition import Partition


class Bench:
    """One topic `t` with some partitions; call `close` at the end."""

    def __init__(self, folder: Path, count: int = 1, clean: bool = False, **topic_config: Any) -> None:
        """`topic_config` has `_` for `.` in its names."""
        self.data = folder / "data"
        self.run_dir = folder / "run"
        self.config: BrokerConfig = configuration.resolve({"log.dirs": str(self.data), "broker.id": "0"})
        self.config = self.config.with_clean([clean])
        for path in (self.data, self.run_dir):
            path.mkdir(exist_ok=True)
        self.shared = Shared.create(f"/odradek-test-{os.getpid()}-{time.monotonic_ns()}-", 1, 16)
        self._count = count
        self._begin(1)
        self._publish(topic_config)
        self.partitions = Partitions(self.shared, self.run_dir, self.config, roles.JANITOR)
        self._open()

    def _begin(self, incarnation: int) -> None:
        """Create empty directories, and slots from `incarnation` on."""
        for index in range(self._count):
            (self.data / f"t-{index}").mkdir(exist_ok=True)
            self.shared.slots[index].publish(SlotState(incarnation=incarnation + index, state=slots.RECOVERING))

    def _publish(self, topic_config: dict[str, Any]) -> None:
        self._topic_config = topic_config
        config = {key.replace("_", "."): str(value) for key, value in topic_config.items()}
        rows = [[n, self.shared.slots[n].state().incarnation, 0, 0, [0], [0], 0] for n in range(self._count)]
        topic = {"id": "01" * 16, "internal": False, "config": config, "partitions": rows}
        version = self.shared.metadata.version + 1
        raw = raw_snapshot(version, "c", 0, [], {"t": topic}, {})
        self.shared.metadata.publish(version, json.dumps(raw).encode())

    def _open(self) -> None:
        self.partitions.follow()
        opening.open_all(self.partitions.log, self.partitions.names(), self.partitions.log_dirs(), lambda: None)

    def configure(self, **topic_config: Any) -> None:
        """Replace the configs of the topic."""
        self._publish({**self._topic_config, **topic_config})
        self.partitions.follow()

    def make_again(self) -> None:
        """Delete the topic and create it again with the same name, directories and slots."""
        for index in range(self._count):
            shutil.rmtree(self.data / f"t-{index}")
        self._begin(self.shared.slots[0].state().incarnation + self._count)
        self._publish(self._topic_config)
        self._open()

    def partition(self, index: int = 0) -> Partition:
        found = self.partitions.log.get("t", index)
        assert found is not None
        return found

    def append(
        self, index: int = 0, timestamp: int | None = None, producer: int = -1, sequence: int = 0,
        key: bytes | None = None,
    ) -> int:  # fmt: skip
        """Append one record; returns the log end offset."""
        when = timestamp if timestamp is not None else now_ms()
        data = bytearray(
            batch_v2.build(
                [(0, when, key, b"x" * 100, ())],
                producer_id=producer,
                producer_epoch=0 if producer >= 0 else -1,
                base_sequence=sequence if producer >= 0 else -1,
            )
        )
        batch = Batch(memoryview(data), 1, when, producer, 0 if producer >= 0 else -1, sequence)
        with self.partition(index).locked() as values:
            end = append(self.partition(index), values, [batch], now_ms())
        assert batch.error == 0
        return end

    def files(self, suffix: str, index: int = 0) -> list[str]:
        return sorted(name for name in os.listdir(self.data / f"t-{index}") if name.endswith(suffix))

    def close(self) -> None:
        self.partitions.log.close()
        self.shared.destroy()


def now_ms() -> int:
    return time.time_ns() // 1_000_000
