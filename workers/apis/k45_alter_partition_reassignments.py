"""AlterPartitionReassignments (key 45), versions 0 and 1 (KIP-455): move partitions to other replicas, or back (null).

Answered by the controller once the moves have begun; ListPartitionReassignments shows their progress. v1 can forbid
changes of the replication factor (KIP-860). Each partition is a separate change, as in Kafka, and many take many steps
(broker.process.steps). If this broker ceases to be the controller between two steps, the client sends the whole request
to the next one.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

from odradek.cluster.rules.errors import ApiError
from odradek.cluster.tree.znodes import Partition
from odradek.protocol.errors import INVALID_REPLICATION_FACTOR, NONE
from odradek.protocol.library import message_class
from odradek.workers.dispatch.administration import Controller
from odradek.workers.dispatch.api import CONTROLLER, Api, pieces
from odradek.workers.dispatch.context import Context

FEW = 16  # moves that begin in one step: each waits for ZooKeeper

Targets = Mapping[Partition, Sequence[int] | None]


def handle(controller: Controller, request: Any, context: Context) -> Iterator[None]:
    response = message_class("AlterPartitionReassignmentsResponse")
    targets = yield from _targets(request)
    free = context.version < 1 or request.allow_replication_factor_change
    refused: dict[Partition, ApiError] = {}
    try:
        for some in pieces(list(targets.items()), FEW):
            refused |= _begun(controller, dict(some), free)
            yield
    except ApiError as error:
        context.reply(response(error_code=error.code, error_message=error.message, responses=[]))
        return
    topics = yield from _topics(request, refused)
    answer = response(error_code=NONE, error_message=None, responses=topics)
    controller.when_published(lambda: context.reply(answer))


def _targets(request: Any) -> Generator[None, None, Targets]:
    targets: dict[Partition, Sequence[int] | None] = {}
    for topic in request.topics:
        for some in pieces(topic.partitions):
            targets |= {
                (topic.name, part.partition_index): None if part.replicas is None else list(part.replicas)
                for part in some
            }
            yield
    return targets


def _begun(controller: Controller, targets: Targets, free: bool) -> dict[Partition, ApiError]:
    """Begin some moves; returns the errors of the refused ones."""
    refused = {} if free else _other_factors(controller, targets)
    allowed = {partition: target for partition, target in targets.items() if partition not in refused}
    return refused | controller.owner.reassign(allowed)


def _other_factors(controller: Controller, targets: Targets) -> dict[Partition, ApiError]:
    found = {partition: controller.snapshot.partition(*partition) for partition in targets}
    return {
        partition: ApiError(INVALID_REPLICATION_FACTOR, "Changing the replication factor is not allowed.")
        for partition, target in targets.items()
        if target is not None and (info := found[partition]) is not None and len(target) != len(info.replicas)
    }


def _topics(request: Any, refused: Mapping[Partition, ApiError]) -> Generator[None, None, list[Any]]:
    topic_class = message_class("AlterPartitionReassignmentsResponse").ReassignableTopicResponse
    topics = []
    for topic in request.topics:
        parts: list[Any] = []
        for some in pieces(topic.partitions):
            parts += [
                _part(topic_class, part.partition_index, refused.get((topic.name, part.partition_index)))
                for part in some
            ]
            yield
        topics.append(topic_class(name=topic.name, partitions=parts))
        yield
    return topics


def _part(topic_class: Any, index: int, error: ApiError | None) -> Any:
    code, message = (error.code, error.message) if error else (NONE, None)
    return topic_class.ReassignablePartitionResponse(partition_index=index, error_code=code, error_message=message)


API = Api(key=45, name="AlterPartitionReassignments", versions=(0, 1), runs_in=CONTROLLER, handle=handle)
