"""LeaderAndIsr (key 4), versions 0 to 7: the elected controller makes this broker leader or follower of partitions.

Served by members of a cluster on ZooKeeper. Answered when every replica has its role, with an error for each one that
has not. Versions without topic ids (0 to 4) do not change a topic's known id.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any
from uuid import UUID

from odradek.cluster.metadata.view import NO_ID, ControllerTerm, PartitionUpdate
from odradek.protocol import interbroker
from odradek.protocol.errors import NONE
from odradek.workers.dispatch.api import CONTROLLER, Api
from odradek.workers.dispatch.context import Context

BY_ID = 5


def handle(controller: Any, request: Any, context: Context) -> Any:
    updates = [
        _partition_update(name, topic_id, part) for name, topic_id, part in _partitions(request, context.version)
    ]
    term = ControllerTerm.of(request, context.client_id, context.size)

    def done(error: int, errors: dict[tuple[str, int], int]) -> None:
        context.reply(_response(context.version, error, updates, errors))

    controller.owner.controller_requests.leader_and_isr(term, updates, done)
    return None


def _partitions(request: Any, version: int) -> list[tuple[str, bytes, Any]]:
    if version < 2:
        return [(part.topic_name, NO_ID, part) for part in request.ungrouped_partition_states]
    return [
        (topic.topic_name, topic.topic_id.bytes if version >= BY_ID and topic.topic_id else NO_ID, part)
        for topic in request.topic_states
        for part in topic.partition_states
    ]


def _partition_update(name: str, topic_id: bytes, part: Any) -> PartitionUpdate:
    return PartitionUpdate(
        name, topic_id, part.partition_index, part.controller_epoch, part.leader, part.leader_epoch, list(part.isr),
        part.partition_epoch, list(part.replicas), bool(getattr(part, "is_new", False)),
    )  # fmt: skip


def _response(version: int, error: int, updates: list[PartitionUpdate], errors: dict[tuple[str, int], int]) -> Any:
    response = interbroker.message_class("LeaderAndIsrResponse")
    rows = [(one, errors.get((one.topic, one.number), NONE)) for one in updates]
    if version < BY_ID:
        return response(
            error_code=error,
            partition_errors=[
                response.PartitionError(topic_name=one.topic, partition_index=one.number, error_code=code)
                for one, code in rows
            ],
        )
    by_topic: dict[bytes, list[Any]] = defaultdict(list)
    for one, code in rows:
        part = response.TopicError.PartitionError(partition_index=one.number, error_code=code)
        by_topic[one.topic_id].append(part)
    topics = [
        response.TopicError(topic_id=UUID(bytes=topic_id), partition_errors=parts)
        for topic_id, parts in by_topic.items()
    ]
    return response(error_code=error, topics=topics)


API = Api(
    key=4, name="LeaderAndIsr", versions=(0, 7), runs_in=CONTROLLER, handle=handle,
    codec=interbroker.Codec("LeaderAndIsr"), flexible=4, between_brokers=True,
)  # fmt: skip
