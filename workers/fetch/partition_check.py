"""Whether this broker speaks for a partition: asked by every API that reads one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.ipc import slots
from odradek.protocol import errors

if TYPE_CHECKING:
    from odradek.cluster.metadata.snapshot import Snapshot
    from odradek.storage.log.partition import Partition

_STATES = {
    slots.LEADER: errors.NONE,
    slots.OFFLINE: errors.KAFKA_STORAGE_ERROR,
    slots.FOLLOWER: errors.NOT_LEADER_OR_FOLLOWER,
    slots.RECOVERING: errors.NOT_LEADER_OR_FOLLOWER,
}


def refusal(partition: Partition, values: tuple[int, ...], leader_epoch: int, followers: bool = False) -> int:
    """Why this broker cannot speak for the partition, or NONE. `leader_epoch` -1: the client does not know it;
    below that it is an old one, where Fetch does not make it -1.

    `followers`: a follower speaks for it too. The epoch is looked at first (Kafka's Partition.getLocalLog): who comes
    with one that this broker does not know yet is told so, and not to look for another leader.
    """
    if values[slots.F_INCARNATION] != partition.incarnation:
        return errors.UNKNOWN_TOPIC_OR_PARTITION
    state = values[slots.F_STATE]
    if leader_epoch not in (-1, values[slots.F_LEADER_EPOCH]) and state in (slots.LEADER, slots.FOLLOWER):
        fenced = leader_epoch < values[slots.F_LEADER_EPOCH]
        return errors.FENCED_LEADER_EPOCH if fenced else errors.UNKNOWN_LEADER_EPOCH
    if followers and state == slots.FOLLOWER:
        return errors.NONE
    return _STATES.get(state, errors.UNKNOWN_TOPIC_OR_PARTITION)


def elsewhere(snapshot: Snapshot, topic: bytes, index: int, by_id: bool) -> int:
    """What to say of a partition that is not on this broker (`Worker.partition_of`): others may have it."""
    name = snapshot.by_id(topic) if by_id else topic.decode("utf-8", "replace")
    if name is None:
        return errors.UNKNOWN_TOPIC_ID
    if snapshot.partition(name, index) is None:
        return errors.UNKNOWN_TOPIC_OR_PARTITION
    return errors.NOT_LEADER_OR_FOLLOWER
