"""Reading from the nearest replica (KIP-392): selects the follower to which a leader redirects a consumer.

Only with replica.selector.class set to Kafka's RackAwareReplicaSelector, the only selector that comes with Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.ipc import replicas

if TYPE_CHECKING:
    from odradek.cluster.metadata.snapshot import Snapshot
    from odradek.ipc.slots import Slot

NOBODY = -1
FIRST = 11  # the first version of Fetch with a rack and a preferred read replica
_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def by_rack(selector: str | None) -> bool:
    """Whether replica.selector.class selects by rack."""
    return selector == _SELECTOR


def replica(snapshot: Snapshot, own: int, slot: Slot, rack: str, listener: str, offset: int) -> int:
    """The follower in `rack` to fetch from, NOBODY when the leader, broker `own`, is as good.

    It must be in sync, have `offset` in its log and have an endpoint for `listener`. Of several, the one with the
    highest log end is selected (Kafka's ReplicaView.comparator).
    """
    brokers = snapshot.brokers
    if own in brokers and brokers[own].rack == rack:
        return NOBODY
    near = (
        (one.leo, one.caught_up_ms, one.broker)
        for one in replicas.read(slot)
        if one.isr_status == replicas.IN
        and one.log_start <= offset <= one.leo
        and one.broker in brokers
        and brokers[one.broker].rack == rack
        and listener in brokers[one.broker].endpoints
    )
    return max(near, default=(0, 0, NOBODY))[2]
