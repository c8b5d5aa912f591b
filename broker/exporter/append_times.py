"""The timestamps of records at given offsets, for lag in seconds.

With `message.timestamp.type=LogAppendTime` that is the time of the append, else the time that the producer has set.
Owner: the exporter process. A timestamp is kept until the same group asks for another offset of the same partition.
"""

from __future__ import annotations

from collections.abc import Hashable

from odradek.ipc import slots
from odradek.protocol.batch import MAGIC_AT
from odradek.protocol.records import batch_v2, message_sets
from odradek.protocol.records.errors import RecordError
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
        return -1 if piece is None else _in_batch(piece.read(), offset)
    except (OSError, EOFError, RecordError):  # files are being replaced, or the batch is damaged
        return -1


def _in_batch(batch: bytes, offset: int) -> int:
    if batch[MAGIC_AT] < 2:
        return next((one[1] for one in message_sets.iterate(batch) if one[0] >= offset), -1)
    head = batch_v2.header(batch)  # its base timestamp may be a delete horizon (KIP-534)
    if head.timestamp_type == batch_v2.LOG_APPEND_TIME:
        return head.max_timestamp
    return next((one[1] for one in batch_v2.iterate(batch) if one[0] >= offset), head.max_timestamp)
