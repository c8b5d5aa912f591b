"""When a follower may ask for more before what has come is in its log. Pure.

The offset of a follower's fetch is its log end, says Kafka's protocol: the leader lets the high watermark rise to it
and its owner into the ISR. So it has to be true where that matters, even if the follower dies before it has written, or
its disk fails, or what came is corrupt, and the leader never hears otherwise. Strictly below the high watermark that
the leader told with the records nothing depends on it:
- The watermark does not go back while that leader leads, and a log end below it does not make it rise.
- Who joins the ISR has to be at the watermark at least. Who is in it is there already, or its disk has forgotten
  something: then it is a member that lacks records with this and without.
- Who is in the ISR below the watermark is below all that the leader had at any of its fetches, as the watermark stands
  still for it: this does not make it count as caught up, and it has to leave as soon as it would without.
- The records are committed: this leader does not cut them off and sends no others for these offsets.
- The log start in the fetch is the log's own: who deletes records is not told that they are gone before they are.
A leader of another epoch is told nothing of this, as each epoch begins with where the log ends (KIP-101).
"""

from __future__ import annotations

from typing import NamedTuple

from odradek.cluster.replication.fetch_session import Key
from odradek.protocol.fetch import FetchPart


class Coming(NamedTuple):
    """Records that are not in the log yet: where it will end with them, the epoch of the last one, and the high
    watermark that came with them."""

    key: Key
    end: int
    last_epoch: int
    hw: int


def beyond(asked: FetchPart, coming: Coming) -> FetchPart | None:
    """What to ask for next, behind the records that came when `asked`; None when they have to be in the log first."""
    if not asked.offset < coming.end < coming.hw or coming.last_epoch < 0:
        return None
    return asked._replace(offset=coming.end, last_epoch=coming.last_epoch)
