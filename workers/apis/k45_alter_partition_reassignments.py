"""AlterPartitionReassignments (key 45), versions 0 and 1 (KIP-455): move partitions to other replicas, or back (null).

Answered by the controller once the moves have begun; ListPartitionReassignments tells how they go. v1 can forbid that
the number of replicas changes (KIP-860).
"""

from __future__ import annotations

from typing import Any

from odradek.cluster.errors import INVALID_REPLICATION_FACTOR, NONE, ApiError
from odradek.workers.administration import Controller
from odradek.workers.api import CONTROLLER, Api, message_class
from odradek.workers.context import Context


def handle(controller: Controller, request: Any, context: Context) -> Any:
    targets = {
        (topic.name, part.partition_index): None if part.replicas is None else list(part.replicas)
        for topic in request.topics
        for part in topic.partitions
    }
    free = context.version < 1 or request.allow_replication_factor_change
    refused = {} if free else _other_factors(controller, targets)
    allowed = {partition: target for partition, target in targets.items() if partition not in refused}
    response = message_class("AlterPartitionReassignmentsResponse")
    try:
        refused |= controller.owner.reassign(allowed)
    except ApiError as error:
        return response(error_code=error.code, error_message=error.message, responses=[])
    topics = [_topic(topic, refused) for topic in request.topics]
    answer = response(error_code=NONE, error_message=None, responses=topics)
    controller.when_published(lambda: context.reply(answer))
    return None


def _other_factors(controller: Controller, targets: dict[tuple[str, int], Any]) -> dict[tuple[str, int], ApiError]:
    found = {partition: controller.snapshot.partition(*partition) for partition in targets}
    return {
        partition: ApiError(INVALID_REPLICATION_FACTOR, "The replication factor is changed though it may not.")
        for partition, target in targets.items()
        if target is not None and (info := found[partition]) is not None and len(target) != len(info.replicas)
    }


def _topic(topic: Any, refused: dict[tuple[str, int], ApiError]) -> Any:
    result = message_class("AlterPartitionReassignmentsResponse").ReassignableTopicResponse
    parts = []
    for part in topic.partitions:
        error = refused.get((topic.name, part.partition_index))
        code, message = (error.code, error.message) if error else (NONE, None)
        parts.append(
            result.ReassignablePartitionResponse(
                partition_index=part.partition_index, error_code=code, error_message=message
            )
        )
    return result(name=topic.name, partitions=parts)


API = Api(key=45, name="AlterPartitionReassignments", versions=(0, 1), runs_in=CONTROLLER, handle=handle)
