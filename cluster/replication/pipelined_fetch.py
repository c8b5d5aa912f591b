"""When a follower may fetch more before the received records are in its log. Pure.

In Kafka's protocol the offset of a follower's fetch is its log end: from it the leader advances the high watermark and
expands the ISR. So it must be true where that matters, even if the follower dies before its write, its disk fails or
the records are corrupt, and the leader never learns of it. Strictly below the high watermark that the leader sent with
the records, nothing depends on the offset:
- The watermark never goes back under that leader, and a log end below it does not advance it.
- A follower needs a log end at the watermark or above to join the ISR. An ISR member already has it, unless its disk
  lost records: then it lacks records with and without pipelining.
- An ISR member below the watermark is below the leader's log end at each of its fetches, as the watermark waits for it:
  pipelining does not make it count as caught up, and it leaves the ISR at the same time as without.
- The records are committed: this leader does not truncate them and sends no others for these offsets.
- The log start in the fetch is the log's own: a DeleteRecords client gets no early answer.
A leader of another epoch does not see the offset, as each epoch starts from the real log end (KIP-101).
"""

from __future__ import annotations

from typing import NamedTuple

from odradek.cluster.replication.fetch_session import Key
from odradek.protocol.fetch import FetchPartition


class PendingAppend(NamedTuple):
    """Received records that are not in the log yet: the log end after them, the epoch of the last one, and the high
    watermark in the same response."""

    key: Key
    end: int
    last_epoch: int
    hw: int


def beyond(sent: FetchPartition, pending: PendingAppend) -> FetchPartition | None:
    """The next fetch, after the records in response to `sent`; None when they must be in the log first."""
    if not sent.offset < pending.end < pending.hw or pending.last_epoch < 0:
        return None
    return sent._replace(offset=pending.end, last_epoch=pending.last_epoch)
