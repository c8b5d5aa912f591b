"""ListPartitionReassignments (key 46), version 0 (KIP-455): the moves under way, of all topics (null) or of some."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from odradek.cluster.rules.errors import ApiError
from odradek.protocol.errors import NONE
from odradek.protocol.library import message_class
from odradek.workers.dispatch.administration import Controller
from odradek.workers.dispatch.api import CONTROLLER, Api
from odradek.workers.dispatch.context import Context


def handle(controller: Controller, request: Any, context: Context) -> Any:
    response = message_class("ListPartitionReassignmentsResponse")
    try:
        moves = controller.owner.moves()
    except ApiError as error:
        return response(error_code=error.code, error_message=error.message, topics=[])
    if request.topics is not None:
        requested = {(topic.name, index) for topic in request.topics for index in topic.partition_indexes}
        moves = {partition: move for partition, move in moves.items() if partition in requested}
    topic_class = response.OngoingTopicReassignment
    by_topic: dict[str, list[Any]] = defaultdict(list)
    for (name, index), move in sorted(moves.items()):
        by_topic[name].append(
            topic_class.OngoingPartitionReassignment(
                partition_index=index,
                replicas=list(move.replicas),
                adding_replicas=list(move.adding),
                removing_replicas=list(move.removing),
            )
        )
    topics = [topic_class(name=name, partitions=parts) for name, parts in by_topic.items()]
    return response(error_code=NONE, error_message=None, topics=topics)


API = Api(key=46, name="ListPartitionReassignments", versions=(0, 0), runs_in=CONTROLLER, handle=handle)
