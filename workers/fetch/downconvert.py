"""Down-conversion for clients that know only message formats 0 and 1: records are read, converted, sent from memory.

Converting occupies the worker's loop for some 10 µs per record. So one request gets SHARE bytes converted, of a
partition not many more than 20,000 records (protocol.records.convert), and at least one batch, however many bytes and
partitions it asks for. The first partition rotates from
request to request, as these versions have no order other than the request's.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.storage.files.openfile import FileSlice
    from odradek.storage.log.partition import Partition

log = logging.getLogger(__name__)

SHARE = 256 << 10  # bytes as stored


class Budget:
    """How much one request may still have converted."""

    def __init__(self, turn: int) -> None:
        self.turn = turn  # number of the request, which selects the first partition
        self.left = SHARE
        self.spent = False  # records are left out because of it
        self._less = False

    def order(self, count: int) -> list[int]:
        """The order in which `count` partitions are read."""
        first = self.turn % count if count else 0
        return [*range(first, count), *range(first)]

    def limit(self, requested: int) -> int:
        """How many bytes of records may be read for a request for `requested` bytes."""
        self._less = self.left < requested
        self.spent = self.spent or not self.left
        return min(requested, self.left)

    def take(self, piece: FileSlice, upto: int) -> None:
        """Account for the converted `piece` of a log that may be read up to offset `upto`."""
        self.left = max(0, self.left - piece.size)
        self.spent = self.spent or (self._less and piece.following < upto)


def for_version(
    partition: Partition, piece: FileSlice, offset: int, version: int, most: int, budget: Budget
) -> bytes | None:
    """The slice as a message set for Fetch `version` below 4; None when such a client cannot read it (zstd).

    Before KIP-74 (version 3) the limit of `most` bytes was hard: the client sees a cut message and asks for more. But a
    first batch that fits as stored is sent whole however much it grew, as in Kafka: otherwise a client with the same
    limit as the producers would never get past it.
    """
    from odradek.protocol.records import convert
    from odradek.protocol.records.errors import RecordError

    try:
        found = convert.down(piece.read(), 1 if version >= 2 else 0, offset, room=most if version < 3 else None)
    except RecordError as error:
        log.warning("%r: cannot convert offset %d for an old client: %s", partition, offset, error)
        return None
    budget.spent = budget.spent or found.cut
    return found.data
