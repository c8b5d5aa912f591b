"""Brokers and partitions as Metadata, DescribeCluster and DescribeTopicPartitions report them to one listener.

Clients get the brokers' addresses as advertised for the listener they connected to.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple
from uuid import UUID

from odradek.cluster.metadata.snapshot import Broker, PartitionInfo, Snapshot
from odradek.cluster.rules import topicnames
from odradek.protocol import errors
from odradek.workers.dispatch.authorization import CLUSTER, DESCRIBE
from odradek.workers.dispatch.context import Context

NOT_ASKED = -(1 << 31)  # the bit field when the client did not ask for operations
NO_ID = UUID(int=0)


def bits(operations: Iterable[int]) -> int:
    """Operations as the protocol's bit field."""
    return sum(1 << operation for operation in operations)


def cluster_operations(context: Context) -> frozenset[int]:
    """What the client may do with the cluster; nothing, unless it may describe it."""
    return context.rights.operations(CLUSTER) if context.allows(DESCRIBE, CLUSTER) else frozenset()


class Node(NamedTuple):
    """A broker with its address for a listener's clients."""

    id: int
    host: str
    port: int
    rack: str | None


def nodes(snapshot: Snapshot, listener: str) -> list[Node]:
    """Brokers that have an endpoint for `listener`."""
    found = (_node(broker, listener) for broker in snapshot.brokers.values())
    return [node for node in found if node is not None]


def _node(broker: Broker, listener: str) -> Node | None:
    endpoint = broker.endpoints.get(listener)
    return Node(broker.id, endpoint[0], endpoint[1], broker.rack) if endpoint else None


def leadership(snapshot: Snapshot, info: PartitionInfo, listener: str) -> tuple[int, int]:
    """(error code, leader id or -1) of a partition for clients of `listener`."""
    leader = snapshot.brokers.get(info.leader)
    if leader is None:
        return errors.LEADER_NOT_AVAILABLE, -1
    if listener not in leader.endpoints:
        return errors.LISTENER_NOT_FOUND, -1
    return errors.NONE, leader.id


def online(snapshot: Snapshot, brokers: Iterable[int], listener: str) -> list[int]:
    """Those of `brokers` that are registered and have an endpoint for `listener`."""
    return [b for b in brokers if b in snapshot.brokers and listener in snapshot.brokers[b].endpoints]


def offline(snapshot: Snapshot, info: PartitionInfo, listener: str) -> list[int]:
    """Replicas on brokers not `online` for `listener`, and those that the controller marks as offline."""
    live = set(online(snapshot, info.replicas, listener)).difference(info.offline)
    return [broker for broker in info.replicas if broker not in live]


def unknown_topic(name: str) -> int:
    """The error for a topic that does not exist: a different one if the name is invalid."""
    return errors.INVALID_TOPIC_EXCEPTION if topicnames.problem(name) else errors.UNKNOWN_TOPIC_OR_PARTITION


def topic_uuid(snapshot: Snapshot, name: str) -> UUID:
    """A topic's id for a response, all zeros for one that does not exist."""
    return UUID(bytes=snapshot.topics[name].id) if name in snapshot.topics else NO_ID


def requested_id(topic: Any) -> bytes | None:
    """The 16-byte id by which a request names a topic, None when it has none (older versions, all zeros)."""
    topic_id = getattr(topic, "topic_id", None)
    return topic_id.bytes if topic_id is not None and topic_id.int else None
