"""Which partitions a broker's former life may still be about to join the ISR of (KIP-903, for ZooKeeper's mode). Pure.

A leader takes a follower into the ISR by what it fetched. If that follower then loses power, its log may end earlier
when it comes back; and the leader's write, which names the version of the state node, may come late, behind the
follower's next registration. Nor does the controller's write help that takes a dead broker out of ISRs: for it there is
nothing to write where the broker is out of sync, by what the controller has read.

What helps is another leader epoch. It changes the node, so that the write is refused, and it has the leader forget how
far followers out of sync were: one may join only by what it fetches in that epoch, of which a former life knows nothing
if it was not told. So each partition of which a broker is a replica out of sync gets one when the broker comes back,
but for those whose epoch began since it was told of none: after a death that is each partition which it was in sync of,
after a controlled shutdown each of all. What is left is what it was still catching up with: no write at all in a
cluster that is well, never more than one a partition and return, as many as the death of a broker in sync costs. A
controller that takes office does not know what was told of whom, and does the same for all brokers that are there.

A broker that is in an ISR by a write which lands after the controller has read that it was not leaves the ISR with that
epoch, if others are in it. `epoch` of a broker is its registration's czxid.

A controller may die before it has heard of the registration, and the late write land before the next one reads. So the
tree has which lives controllers have seen to, noted behind the epochs that those have cost
(broker.controller.elected.settled_lives). A broker in any other life was told of nothing to fetch, or only a moment
ago: where others stay it leaves the ISRs that it follows in (broker.controller.elected.state_loader: reborn). What is
not covered:
- Who shuts down is told of the epoch in which another leads what it led, and could have fetched in it before the new
  leader hears, in the same breath, that it is offline. Its log is synced when it stops.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import NamedTuple

from odradek.cluster.tree.znodes import Partition


class Outlived(NamedTuple):
    """In leader epochs up to `epoch` former lives of `brokers` may have fetched."""

    epoch: int
    brokers: frozenset[int]


class Lives:
    """What a controller knows of it in one time in office."""

    def __init__(self) -> None:
        self._epochs: dict[int, int] = {}  # of brokers, the last that are known
        self._unheard: defaultdict[int, set[Partition]] = defaultdict(set)  # whose epochs brokers were not told of
        self._outlived: dict[Partition, Outlived] = {}

    def begin(self, broker: int, epoch: int) -> bool:
        """A broker is there, and is told everything; whether it is another life of it."""
        another, self._epochs[broker] = self._epochs.get(broker) != epoch, epoch
        return another

    def epoch(self, broker: int) -> int | None:
        """The epoch of a broker's last life that is known."""
        return self._epochs.get(broker)

    def unheard(self, broker: int) -> Collection[Partition]:
        """Partitions of whose epochs no former life of a broker was told. It is told now."""
        return self._unheard.pop(broker, ())

    def outlive(self, partition: Partition, epoch: int, broker: int) -> None:
        """Former lives of a broker may have been told of this epoch."""
        known = self._outlived.get(partition, Outlived(epoch, frozenset()))
        self._outlived[partition] = Outlived(epoch, known.brokers | {broker})

    def outlived(self, partition: Partition, epoch: int) -> frozenset[int]:
        """Brokers that are in no ISR of this epoch by what their present lives have fetched."""
        known = self._outlived.get(partition)
        return frozenset() if known is None or known.epoch < epoch else known.brokers

    def begun(self, partition: Partition, untold: Iterable[int]) -> None:
        """A partition's next epoch is in the tree; some replicas' brokers are not told."""
        self._outlived.pop(partition, None)
        for broker in untold:
            self._unheard[broker].add(partition)

    def forget(self, partitions: Iterable[Partition]) -> None:
        """There are no such partitions any more."""
        partitions = list(partitions)
        for partition in partitions:
            self._outlived.pop(partition, None)
        for unheard in self._unheard.values():
            unheard.difference_update(partitions)
