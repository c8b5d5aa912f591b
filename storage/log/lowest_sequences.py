"""With which sequence a producer must begin in a partition after transactional batches of it were refused.

A partition lets a producer that it does not know begin with any sequence, since its records may have been deleted. A
client sends several batches without waiting. If the coordinator cannot answer for the first one and can for the second,
that one would begin, and every retry of the first would be out of order until the client gives up. So a worker notes
the lowest sequence that the coordinator's answer kept out (workers.produce.verification), and the append refuses what
begins above it; the client sends both again in order. Kafka's VerificationStateEntry does the same.

Owner     : one worker's Partition, and so the connection that the batches came by: a client that connects anew has none
            in flight, and sends them in order.
Lifetime  : until a transactional batch of the producer is in the log, or for producer.id.expiration.ms, as long as the
            partition would know the producer. It says nothing about a producer that the partition knows.
"""

from __future__ import annotations

from typing import NamedTuple

MOST = 100  # producers; the one that was noted first goes


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

    def note(self, producer_id: int, epoch: int, sequence: int, until_s: float) -> None:
        """A batch was refused: a lower sequence of the same epoch, or any of a later one, takes the place of what is
        noted."""
        known = self._rows.get(producer_id)
        if known is None:
            if len(self._rows) >= MOST:
                del self._rows[next(iter(self._rows))]
            self._rows[producer_id] = _Lowest(epoch, sequence, until_s)
        elif epoch > known.epoch or (epoch == known.epoch and sequence < known.sequence):
            self._rows[producer_id] = _Lowest(epoch, sequence, known.until_s)

    def refuses(self, producer_id: int, sequence: int, now_s: float) -> bool:
        """Whether this producer must begin with a lower sequence, whatever the epoch, as in Kafka."""
        known = self._rows.get(producer_id)
        if known is not None and known.until_s <= now_s:
            self.forget(producer_id)
            return False
        return known is not None and sequence > known.sequence

    def forget(self, producer_id: int) -> None:
        """The partition knows the producer now."""
        self._rows.pop(producer_id, None)
