"""Becoming a partition's leader or follower, and a leader's changes of its ISR. Caller holds the partition's lock.

Only the controller process calls it, which knows the cluster's decisions (broker.controller.replicas.replica_manager,
broker.controller.member.isr_keeper). Each function ends with one publish; a death before it leaves the former role, and
the decision is executed again. An epoch recorded before such a death would begin too early: the former leader, or the
leader still followed, may continue to write meanwhile. So the slot is dirty from that record to the publish, and repair
removes the record before anything else is written. The high watermark waits for every replica that may be elected: a
follower that is about to join the ISR counts before the metadata has it (JOINING), one that is to leave counts until
the metadata drops it (KIP-497's maximal ISR).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.ipc import replicas, slots
from odradek.ipc.replicas import IN, JOINING, OUT
from odradek.storage.log import roll
from odradek.storage.log.partition import APPENDING

if TYPE_CHECKING:
    from odradek.ipc.slots import Fields
    from odradek.storage.log.partition import Partition


def become_leader(
    partition: Partition, values: Fields, epoch: int, followers: Sequence[int], isr: Sequence[int], now_ms: int
) -> None:
    """Become the leader in `epoch`, with `isr` (broker ids, including the leader's own) in sync.

    The epoch begins at the log end, and is in the epoch checkpoint before the first write in it: a follower that
    requests the former epoch's end gets the right answer even without such a write (KIP-101). `now_ms` is
    CLOCK_MONOTONIC's.
    """
    went_on = _continues(values, epoch)
    if epoch > values[slots.F_LATEST_EPOCH]:
        partition.slot.dirty = APPENDING
        roll.record_epoch(partition, epoch, values[slots.F_LEO])
        values[slots.F_LATEST_EPOCH] = epoch
    if not went_on:
        values[slots.F_EPOCH_START], values[slots.F_LED_SINCE] = values[slots.F_LEO], epoch
    replicas.set_followers(
        partition.slot, followers, isr, now_ms, _kept_followers(values, epoch, followers, isr) if went_on else ()
    )
    values[slots.F_STATE], values[slots.F_LEADER_EPOCH] = slots.LEADER, epoch
    _publish(partition, values, members=len(isr))
    partition.slot.dirty = 0


def _continues(values: Fields, epoch: int) -> bool:
    """Whether this broker led up to `epoch` without a break. Every decision takes the next epoch, so above the next one
    another broker may have led, unnoticed here: followers may have truncated records fetched from this log, and their
    former log ends must not complete an acks=all request.
    """
    return values[slots.F_STATE] == slots.LEADER and epoch <= values[slots.F_LEADER_EPOCH] + 1


def _kept_followers(values: Fields, epoch: int, followers: Sequence[int], isr: Sequence[int]) -> Sequence[int]:
    """The followers whose progress a continuing leader keeps.

    In a new epoch a follower out of sync, perhaps because it just died, has to fetch before it may join again.
    """
    return followers if epoch == values[slots.F_LEADER_EPOCH] else isr


def become_follower(partition: Partition, values: Fields, epoch: int) -> None:
    """Become a follower of the leader in `epoch`; -1 means no leader, so that nothing is fetched."""
    values[slots.F_STATE], values[slots.F_LEADER_EPOCH], values[slots.F_LED_SINCE] = slots.FOLLOWER, epoch, -1
    partition.slot.publish(values)


def await_joining(partition: Partition, values: Fields, joining: Sequence[int]) -> None:
    """Make the high watermark wait for `joining` too: they are about to enter the ISR."""
    replicas.set_isr_status(partition.slot, dict.fromkeys(joining, JOINING))
    _publish(partition, values)


def apply_isr(partition: Partition, values: Fields, isr: Sequence[int]) -> None:
    """Apply the metadata's `isr`, which includes the leader's own id: other followers no longer count."""
    known = [replica.broker for replica in replicas.read(partition.slot)]
    replicas.set_isr_status(partition.slot, {broker: IN if broker in isr else OUT for broker in known})
    _publish(partition, values, members=len(isr))


def _publish(partition: Partition, values: Fields, members: int | None = None) -> None:
    slot, leo = partition.slot, values[slots.F_LEO]
    if members is not None:
        values[slots.F_ISR_COUNT] = members
    committed, values[slots.F_HW_QUORUM] = replicas.committed(slot, leo)
    values[slots.F_HW] = max(values[slots.F_HW], min(leo, committed))
    slot.publish(values)
