"""A coordinator's log in a real partition that is compacted: real storage below the state machines of groups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from odradek.ipc import slots
from odradek.protocol.batch import split
from odradek.protocol.records import batch_v2
from odradek.storage.log import read
from tests.storage.compaction.compaction_world import Producer, World


class CompactedLog:
    """Implements `groups.log_writer.CoordinatorLog` with one partition, 0."""

    def __init__(self, root: Path, **config: Any) -> None:
        settings = {"segment_bytes": 700, "delete_retention_ms": 1000, **config}
        self.log = World(root, index_interval_bytes=100, cleanup_policy="compact", **settings)

    def max_batch_bytes(self, partition: int) -> int:
        return self.log.partition.config.max_message_bytes

    def append(self, partition: int, batch: bytes) -> int:
        head = batch_v2.header(batch)
        rows = [(key, value, tuple(headers)) for _, _, key, value, headers in batch_v2.iterate(batch)]
        position = self.log.model.leo
        if head.is_transactional:
            producer = Producer(head.producer_id)
            producer.epoch = head.producer_epoch
            self.log.send_as_coordinator(rows, producer)
        else:
            self.log.send(rows)
        return position

    def passed(self, partition: int, end: int) -> bool:
        return self.log.partition.slot.read()[slots.F_HW] >= end

    def read_all(self, partition: int, at_once: int = 1 << 20) -> Iterator[bytes]:
        """Every batch, read in pieces of `at_once` bytes."""
        there, offset = self.log.partition, 0
        while True:
            values = there.slot.read()
            data = read.raw(there, values, max(offset, values[slots.F_LOG_START]), at_once)
            if not data:
                return
            for batch in split(data):
                yield batch
                offset = batch_v2.header(batch).last_offset + 1
