"""AlterPartitionReassignments (key 45), versions 0 and 1 (KIP-455).

There is nowhere to move a replica to yet: a partition may be "moved" to where it is, anything else gets
INVALID_REPLICA_ASSIGNMENT, and there never is a move to cancel (NO_REASSIGNMENT_IN_PROGRESS).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.cluster.errors import (
    INVALID_REPLICA_ASSIGNMENT,
    NO_REASSIGNMENT_IN_PROGRESS,
    NONE,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from odradek.cluster.snapshot import Snapshot
from odradek.workers.api import Api, message_class
from odradek.workers.context import Context

if TYPE_CHECKING:
    from odradek.workers.worker import Worker


def handle(worker: Worker, request: Any, context: Context) -> Any:
    response = message_class("AlterPartitionReassignmentsResponse")
    topic_class = response.ReassignableTopicResponse
    topics = [
        topic_class(
            name=topic.name,
            partitions=[_partition(worker.snapshot, topic.name, partition) for partition in topic.partitions],
        )
        for topic in request.topics
    ]
    return response(error_code=NONE, error_message=None, responses=topics)


def _partition(snapshot: Snapshot, topic: str, asked: Any) -> Any:
    result = message_class("AlterPartitionReassignmentsResponse").ReassignableTopicResponse
    code, message = _outcome(snapshot, topic, asked)
    return result.ReassignablePartitionResponse(
        partition_index=asked.partition_index, error_code=code, error_message=message
    )


def _outcome(snapshot: Snapshot, topic: str, asked: Any) -> tuple[int, str | None]:
    info = snapshot.partition(topic, asked.partition_index)
    if info is None:
        return UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."
    if asked.replicas is None:
        return NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress."
    if sorted(asked.replicas) == sorted(info.replicas):
        return NONE, None
    known = ", ".join(str(broker) for broker in sorted(snapshot.brokers))
    return INVALID_REPLICA_ASSIGNMENT, f"Replicas can only be on {known}, and each there once."


API = Api(key=45, name="AlterPartitionReassignments", versions=(0, 1), handle=handle)
