"""Becoming a partition's leader or follower, and a leader's changes of its ISR. Caller holds the partition's lock.

Called by the controller process alone, which knows what the cluster has decided
(broker.controller.replicas.replica_manager, broker.controller.member.isr). Each function ends with one publish; dying
before it leaves the former role, and the decision is carried out again. An epoch that was noted then would begin too
early: the former leader, or the one that is still followed, may write on meanwhile. So the slot is dirty from the note
to the publish, and repair takes the note back before anything else is written. The high watermark waits for every
replica that may be elected: a follower that is about to join the ISR counts before the metadata says so (JOINING), one
that is to leave counts until it says so (KIP-497's maximal ISR).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.ipc import replicas, slots
from odradek.ipc.replicas import IN, JOINING, OUT
from odradek.storage.log import roll

if TYPE_CHECKING:
    from odradek.ipc.slots import Fields
    from odradek.storage.log.partition import Partition

_NOTING = 1  # what any change of the active segment is called: repair knows what to do


def lead(
    partition: Partition, values: Fields, epoch: int, followers: Sequence[int], isr: Sequence[int], now_ms: int
) -> None:
    """Be the leader in `epoch`, with `isr` (broker ids, the leader's own among them) in sync.

    The epoch begins at the log end, and is in the epoch checkpoint before anything is written in it: a follower that
    asks where the former epoch ended is told rightly even if nothing follows (KIP-101). `now_ms` is CLOCK_MONOTONIC's.
    """
    went_on = _goes_on(values, epoch)
    if epoch > values[slots.F_EPOCH_NOTED]:
        partition.slot.dirty = _NOTING
        roll.note_epoch(partition, epoch, values[slots.F_LEO])
        values[slots.F_EPOCH_NOTED] = epoch
    if not went_on:
        values[slots.F_EPOCH_START], values[slots.F_LED_SINCE] = values[slots.F_LEO], epoch
    replicas.lead(partition.slot, followers, isr, now_ms, _known(values, epoch, followers, isr) if went_on else ())
    values[slots.F_STATE], values[slots.F_LEADER_EPOCH] = slots.LEADER, epoch
    _publish(partition, values, members=len(isr))
    partition.slot.dirty = 0


def _goes_on(values: Fields, epoch: int) -> bool:
    """Whether this broker led up to `epoch` without a break. Every decision takes the next epoch, so above that one
    another broker may have led, unnoticed here: followers may have truncated what they had fetched from this log, and
    acks=all that waits for them must not be answered by what they had.
    """
    return values[slots.F_STATE] == slots.LEADER and epoch <= values[slots.F_LEADER_EPOCH] + 1


def _known(values: Fields, epoch: int, followers: Sequence[int], isr: Sequence[int]) -> Sequence[int]:
    """Of whom a leader that goes on remembers how far they were.

    In a new epoch whoever is out of sync, perhaps because it died a moment ago, has to fetch before it may join again.
    """
    return followers if epoch == values[slots.F_LEADER_EPOCH] else isr


def follow(partition: Partition, values: Fields, epoch: int) -> None:
    """Be a follower of the leader in `epoch`; with -1 of none, so that nothing is fetched."""
    values[slots.F_STATE], values[slots.F_LEADER_EPOCH], values[slots.F_LED_SINCE] = slots.FOLLOWER, epoch, -1
    partition.slot.publish(values)


def expect(partition: Partition, values: Fields, joining: Sequence[int]) -> None:
    """From now on the high watermark waits for `joining` too: they are about to enter the ISR."""
    replicas.stand(partition.slot, dict.fromkeys(joining, JOINING))
    _publish(partition, values)


def decided(partition: Partition, values: Fields, isr: Sequence[int]) -> None:
    """The metadata has `isr`, the leader's own id among them: who is not in it counts no longer."""
    known = [replica.broker for replica in replicas.read(partition.slot)]
    replicas.stand(partition.slot, {broker: IN if broker in isr else OUT for broker in known})
    _publish(partition, values, members=len(isr))


def _publish(partition: Partition, values: Fields, members: int | None = None) -> None:
    slot, leo = partition.slot, values[slots.F_LEO]
    if members is not None:
        values[slots.F_ISR_COUNT] = members
    committed, values[slots.F_VOTERS] = replicas.committed(slot, leo)
    values[slots.F_HW] = max(values[slots.F_HW], min(leo, committed))
    slot.publish(values)
