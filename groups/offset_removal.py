"""Which offsets of a group may be removed, and the tombstones that remove them, in batches of bounded size."""

from __future__ import annotations

from collections.abc import Iterator

from odradek.groups.events import (
    Record,
)
from odradek.groups.group import CONSUMER, Group, State
from odradek.groups.log_writer import record_size
from odradek.groups.offsets import TopicPartition
from odradek.protocol.errors import Error

Tombstone = tuple[TopicPartition | None, Record]
"""The record, with the partition whose offset it deletes; None: the group itself."""
TOMBSTONE_BYTES = 16 * 1024


def in_pieces(tombstones: list[Tombstone]) -> Iterator[list[Tombstone]]:
    """Pieces of at most TOMBSTONE_BYTES, with at least one tombstone each."""
    some: list[Tombstone] = []
    size = 0
    for tombstone in tombstones:
        more = record_size(tombstone[1])
        if some and size + more > TOMBSTONE_BYTES:
            yield some
            some, size = [], 0
        some.append(tombstone)
        size += more
    if some:
        yield some


def deletable(group: Group, topic: str) -> Error:
    if group.state is State.EMPTY:
        return Error.NONE
    if group.subscribed is None or topic in group.subscribed:
        return Error.GROUP_SUBSCRIBED_TO_TOPIC
    return Error.NONE


def expired(group: Group, retention_ms: int, wall_ms: int) -> list[TopicPartition]:
    """Expired offsets. Retention runs from when the group became empty, else from each commit; never for used ones."""
    if group.protocol_type is None:
        return group.offsets.expired(wall_ms, retention_ms, None)
    if group.state is State.EMPTY:
        return group.offsets.expired(wall_ms, retention_ms, group.state_since_ms)
    if group.protocol_type == CONSUMER and group.state is State.STABLE and group.subscribed is not None:
        return group.offsets.expired(wall_ms, retention_ms, None, group.subscribed)
    return []
