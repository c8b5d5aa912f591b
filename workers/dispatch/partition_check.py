"""Checks whether this broker may answer for a partition; every API that reads one calls it."""

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
    """The error if this broker cannot answer for the partition, or NONE. `leader_epoch` -1: the client does not know
    it; lower values count as old epochs, unless Fetch turns them into -1.

    `followers`: a follower may answer too. The epoch is checked first (Kafka's Partition.getLocalLog): a client with an
    epoch newer than this broker's gets UNKNOWN_LEADER_EPOCH, and does not look for another leader.
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
    """The error for a partition that is not on this broker (`Worker.partition_of`): others may have it."""
    name = snapshot.by_id(topic) if by_id else topic.decode("utf-8", "replace")
    if name is None:
        return errors.UNKNOWN_TOPIC_ID
    if snapshot.partition(name, index) is None:
        return errors.UNKNOWN_TOPIC_OR_PARTITION
    return errors.NOT_LEADER_OR_FOLLOWER
