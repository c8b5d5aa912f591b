"""Partitions whose ISR a restarted broker may join by fetches from before its restart (KIP-903, for ZooKeeper). Pure.

A leader adds a follower to the ISR by its fetches. If that follower then loses power, its log may end earlier when it
returns; and the leader's conditional write to the state node may land late, after the follower's next registration. The
controller's write that removes a dead broker from ISRs does not prevent this: where the controller has read that the
broker is out of sync, it has nothing to write.

A new leader epoch prevents it. It changes the node, so that the late write fails, and the leader drops the positions of
out-of-sync followers: a follower can join only by fetches in that epoch, which a former registration does not know
unless the controller sent it. So when a broker returns, each partition in which it is an out-of-sync replica gets a new
epoch, except where the current epoch began after the last one sent to the broker: after a crash, every partition in
which it was in sync; after a controlled shutdown, all partitions. This leaves the partitions that it was still catching
up with: no write in a healthy cluster, and at most one per partition and return, as many as the crash of an in-sync
broker costs. A newly elected controller does not know which broker got which epoch, and does the same for all live
brokers.

If a late write puts a broker into an ISR after the controller has read the opposite, the new epoch also removes it from
the ISR, provided that others are in it. `epoch` of a broker is its registration's czxid.

A controller may die before it sees the registration, and the late write may land before the next controller reads. So
the tree records which broker epochs controllers have handled, written after the leader epochs that those required
(broker.controller.elected.settled_epochs). A broker with any other epoch has no fetch instructions, or only very recent
ones: it leaves the ISRs in which it is a follower (broker.controller.elected.state_loader: restarted_members). Where
all members of an ISR have restarted unseen, one leads and the others leave: it may have committed records without them.
If its log directory then turns out to be broken, the partition has no leader until that is mended or
`unclean.leader.election.enable` allows another: records before availability. Not covered:
- While there is a controller, it sees a loss of all members at once as one change: NO_LEADER with the whole ISR. The
  first to return is elected, and the others stay in the ISR though it may have records that they lost with their power.
- A broker that shuts down receives the epoch in which another broker leads its partitions, and could fetch in it before
  the new leader learns, at the same moment, that the broker is offline. It syncs its log when it stops.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import NamedTuple

from odradek.cluster.tree.znodes import Partition


class StaleFollowers(NamedTuple):
    """`brokers` may have fetched in leader epochs up to `epoch` before they restarted."""

    epoch: int
    brokers: frozenset[int]


class BrokerEpochs:
    """What a controller knows of the brokers' epochs, for one controller epoch."""

    def __init__(self) -> None:
        self._epochs: dict[int, int] = {}  # the last known epoch of each broker
        self._unsent: defaultdict[int, set[Partition]] = defaultdict(set)  # epochs not sent to a broker
        self._stale: dict[Partition, StaleFollowers] = {}

    def begin(self, broker: int, epoch: int) -> bool:
        """Record a live broker, which receives the full state; whether it has registered again."""
        another, self._epochs[broker] = self._epochs.get(broker) != epoch, epoch
        return another

    def epoch(self, broker: int) -> int | None:
        """A broker's last known epoch."""
        return self._epochs.get(broker)

    def take_unsent(self, broker: int) -> Collection[Partition]:
        """Take the partitions whose epochs were not sent to any former registration of a broker; they are sent now."""
        return self._unsent.pop(broker, ())

    def mark_stale(self, partition: Partition, epoch: int, broker: int) -> None:
        """Record that a broker may have received this epoch before it restarted."""
        known = self._stale.get(partition, StaleFollowers(epoch, frozenset()))
        self._stale[partition] = StaleFollowers(epoch, known.brokers | {broker})

    def stale_followers(self, partition: Partition, epoch: int) -> frozenset[int]:
        """Brokers that have not fetched in this epoch since they restarted, so that an ISR has them by a late write."""
        known = self._stale.get(partition)
        return frozenset() if known is None or known.epoch < epoch else known.brokers

    def epoch_begun(self, partition: Partition, unsent_to: Iterable[int]) -> None:
        """Record that a partition's next epoch is in the tree and is not sent to the brokers in `unsent_to`."""
        self._stale.pop(partition, None)
        for broker in unsent_to:
            self._unsent[broker].add(partition)

    def forget(self, partitions: Iterable[Partition]) -> None:
        """Drop partitions that no longer exist."""
        partitions = list(partitions)
        for partition in partitions:
            self._stale.pop(partition, None)
        for unheard in self._unsent.values():
            unheard.difference_update(partitions)
