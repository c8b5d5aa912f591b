"""The lag of consumer groups, in records and in seconds.

The lag is what `odradek consumer-groups --describe` shows: the high watermark less the committed offset. In seconds it
is the age of the record that the group reads next, and 0 for a group that has read all. For partitions without a
replica on this broker, neither is known here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from odradek.broker.exporter.append_times import AppendTimes
from odradek.broker.exporter.committed_offsets import Committed, CommittedOffsets
from odradek.broker.process.partitions import Partitions
from odradek.ipc import slots
from odradek.storage.log.partition import Partition


class Lag(NamedTuple):
    """The lag of one group in one partition; None: not known here."""

    group: str
    topic: str
    partition: int
    committed: int
    records: int | None
    seconds: float | None


class GroupLag:
    """Measures the lag of all groups whose offsets are known here."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions
        self._times = AppendTimes()
        self.committed = CommittedOffsets(partitions)

    def measure(self, now_ms: int) -> list[Lag]:
        """The lag of each group in each partition with a committed offset."""
        found = list(self._measure(now_ms))
        self._times.forget({(one.group, one.topic, one.partition) for one in found if one.records})
        return found

    def _measure(self, now_ms: int) -> Iterator[Lag]:
        for one in self.committed:
            partition = self._partitions.log.get(one.topic, one.partition)
            values = partition.slot.read() if partition is not None else ()
            if partition is None or values[slots.F_INCARNATION] != partition.incarnation:  # the slot is another's now
                yield Lag(*one, None, None)
            else:
                yield self._lag(one, partition, values[slots.F_HW], now_ms)

    def _lag(self, one: Committed, partition: Partition, end: int, now_ms: int) -> Lag:
        records = max(0, end - one.offset)
        if not records:
            return Lag(*one, 0, 0.0)
        time_ms = self._times.at((one.group, one.topic, one.partition), partition, one.offset)
        return Lag(*one, records, max(0, now_ms - time_ms) / 1000 if time_ms >= 0 else None)
