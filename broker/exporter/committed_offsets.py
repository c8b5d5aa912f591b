"""The committed offsets of the groups that this broker coordinates, read from its log of `__consumer_offsets`.

State: for each partition of that topic that is led here, its replay (groups.loading) and the offset that it has
reached. Owner: the exporter process; nothing is written. What is above the high watermark may still be truncated and
is not read. A partition that was led by another broker meanwhile, or whose log was cut, is read again from its start.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import NamedTuple

from odradek.broker.process.partitions import Partitions
from odradek.cluster.rules.topicnames import OFFSETS
from odradek.groups.loading import GroupReplay
from odradek.ipc import slots
from odradek.protocol.batch import split
from odradek.storage.log import read
from odradek.storage.log.partition import Partition

log = logging.getLogger(__name__)

READ_BYTES = 1 << 20


class Committed(NamedTuple):
    """One committed offset."""

    group: str
    topic: str
    partition: int
    offset: int


class _Reading:
    """What was read of one partition."""

    def __init__(self, identity: tuple[int, ...]) -> None:
        self.identity = identity
        self.replay = GroupReplay()
        self.offset = 0


class CommittedOffsets:
    """Call `follow` before each look; iterates over all committed offsets."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions
        self._readings: dict[int, _Reading] = {}

    def __iter__(self) -> Iterator[Committed]:
        for reading in self._readings.values():
            for (group, (topic, partition)), found in reading.replay.offsets.items():
                yield Committed(_text(group), topic, partition, found.value.offset)

    def members(self) -> dict[str, int]:
        """The number of members of each group, as of its last rebalance."""
        readings = self._readings.values()
        found = ((name, value) for reading in readings for name, value in reading.replay.groups.items())
        return {_text(name): len(value.members) for name, value in found}

    def follow(self, seconds: float) -> None:
        """Read what has come, for at most so long."""
        until = time.monotonic() + seconds
        led = dict(self._led())
        for index in self._readings.keys() - led.keys():
            del self._readings[index]
        for index, partition in led.items():
            self._read(index, partition, until)

    def _led(self) -> Iterator[tuple[int, Partition]]:
        topic = self._partitions.snapshot.topics.get(OFFSETS)
        for index in range(len(topic) if topic is not None else 0):
            partition = self._partitions.log.get(OFFSETS, index)
            if partition is not None and partition.slot.read()[slots.F_STATE] == slots.LEADER:
                yield index, partition

    def _read(self, index: int, partition: Partition, until: float) -> None:
        try:
            while time.monotonic() < until and self._read_piece(index, partition):
                pass
        except (OSError, EOFError) as error:  # retention or compaction replaces files: the next look finds the new ones
            log.debug("%s-%d: %s", OFFSETS, index, error)

    def _read_piece(self, index: int, partition: Partition) -> bool:
        """Read up to READ_BYTES; False at the high watermark."""
        values = partition.slot.read()
        identity = values[slots.F_INCARNATION], values[slots.F_LED_SINCE], values[slots.F_TRUNCATIONS]
        reading = self._readings.get(index)
        if reading is None or reading.identity != identity:
            reading = self._readings[index] = _Reading(identity)
        start = max(reading.offset, values[slots.F_LOG_START])
        piece = read.fetch(partition, values, start, values[slots.F_HW], READ_BYTES)
        if piece is None:
            return False
        for batch in split(piece.read()):
            reading.replay.feed(batch)
        reading.offset = piece.following
        return True


def _text(group: str) -> str:
    """A group's name as UTF-8 can have it: other programs may have written any bytes into the log."""
    return group.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
