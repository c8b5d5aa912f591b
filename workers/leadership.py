"""Whether this broker speaks for a partition: asked by every API that reads one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.ipc import slots
from odradek.protocol import errors

if TYPE_CHECKING:
    from odradek.storage.partition import Partition

_STATES = {
    slots.LEADER: errors.NONE,
    slots.OFFLINE: errors.KAFKA_STORAGE_ERROR,
    slots.FOLLOWER: errors.NOT_LEADER_OR_FOLLOWER,
    slots.RECOVERING: errors.NOT_LEADER_OR_FOLLOWER,
}


def refusal(partition: Partition, values: tuple[int, ...], leader_epoch: int) -> int:
    """Why this broker cannot speak for the partition, or NONE. `leader_epoch` -1: the client does not know it."""
    if values[slots.F_INCARNATION] != partition.incarnation:
        return errors.UNKNOWN_TOPIC_OR_PARTITION
    error = _STATES.get(values[slots.F_STATE], errors.UNKNOWN_TOPIC_OR_PARTITION)
    if error == errors.NONE and 0 <= leader_epoch != values[slots.F_LEADER_EPOCH]:
        fenced = leader_epoch < values[slots.F_LEADER_EPOCH]
        return errors.FENCED_LEADER_EPOCH if fenced else errors.UNKNOWN_LEADER_EPOCH
    return error
