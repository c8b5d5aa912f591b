"""The timestamps of records at given offsets, for lag in seconds (`record_times`).

Owner: the exporter process. A timestamp is kept until the same group asks for another offset of the same partition.
"""

from __future__ import annotations

from collections.abc import Hashable

from odradek.ipc import slots
from odradek.protocol.records.errors import RecordError
from odradek.protocol.records.record_times import timestamp_at
from odradek.storage.log import read
from odradek.storage.log.partition import Partition

_FIRST_BATCH = 1  # bytes: a fetch returns the first batch whole


class AppendTimes:
    """Looks timestamps up."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[int, int]] = {}  # by asker: an offset and its timestamp

    def at(self, asker: Hashable, partition: Partition, offset: int) -> int:
        """The timestamp of the first record from `offset` on, in ms since 1970; -1 where there is none to read."""
        known = self._known.get(asker)
        if known is None or known[0] != offset:
            known = self._known[asker] = offset, _timestamp(partition, offset)
        return known[1]

    def forget(self, others_than: set[Hashable]) -> None:
        """Drop the timestamps of all other askers."""
        for asker in self._known.keys() - others_than:
            del self._known[asker]


def _timestamp(partition: Partition, offset: int) -> int:
    values = partition.slot.read()
    offset = max(offset, values[slots.F_LOG_START])
    try:
        piece = read.fetch(partition, values, offset, values[slots.F_LEO], _FIRST_BATCH)
        return -1 if piece is None else timestamp_at(piece.read(), offset)
    except (OSError, EOFError, RecordError):  # files are being replaced, or the batch is damaged
        return -1
