"""The sequence with which a producer must begin in a partition after refused transactional batches.

A partition accepts any first sequence from a producer that it does not know, since its records may have been deleted. A
client sends several batches without waiting. If the coordinator cannot answer for the first one and can for the second,
the second would be the first in the log, and every retry of the first would be out of order until the client gives up.
So a worker notes the lowest sequence that the coordinator's answer kept out (workers.produce.verification), and the
append refuses a higher first sequence; the client sends both again in order. Kafka's VerificationStateEntry does the
same.

Owner     : one worker's Partition, and so the connection of the batches: a client that reconnects has none in flight,
            and sends them in order.
Lifetime  : until a transactional batch of the producer is in the log, or for producer.id.expiration.ms, as long as the
            partition would know the producer. It has no effect for a producer that the partition knows.
"""

from __future__ import annotations

from typing import NamedTuple

MOST = 100  # producers; the oldest entry is dropped


class _Lowest(NamedTuple):
    epoch: int
    sequence: int
    until_s: float


class LowestSequences:
    """The lowest refused sequence of each producer id; false while there is none. Times are of one steady clock."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: dict[int, _Lowest] = {}

    def __bool__(self) -> bool:
        return bool(self._rows)

    def record(self, producer_id: int, epoch: int, sequence: int, until_s: float) -> None:
        """Note a refused batch: a lower sequence of the same epoch, or any of a later epoch, replaces the noted one."""
        known = self._rows.get(producer_id)
        if known is None:
            if len(self._rows) >= MOST:
                del self._rows[next(iter(self._rows))]
            self._rows[producer_id] = _Lowest(epoch, sequence, until_s)
        elif epoch > known.epoch or (epoch == known.epoch and sequence < known.sequence):
            self._rows[producer_id] = _Lowest(epoch, sequence, known.until_s)

    def refuses(self, producer_id: int, sequence: int, now_s: float) -> bool:
        """Whether this producer must begin with a lower sequence, regardless of the epoch, as in Kafka."""
        known = self._rows.get(producer_id)
        if known is not None and known.until_s <= now_s:
            self.forget(producer_id)
            return False
        return known is not None and sequence > known.sequence

    def forget(self, producer_id: int) -> None:
        """Drop the entry: the partition knows the producer now."""
        self._rows.pop(producer_id, None)
