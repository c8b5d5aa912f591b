"""OffsetDelete (key 47), version 0: forget committed offsets of a group (KIP-496).

Offsets of topics that members are subscribed to are kept: GROUP_SUBSCRIBED_TO_TOPIC. Answered when the tombstones
are in `__consumer_offsets`. An error of the group comes without partitions. Of topics without partitions those are in
the answer that do not exist, as with Kafka.
"""

from __future__ import annotations

from typing import Any

from odradek.groups.errors import Error
from odradek.groups.groups import PartitionErrors
from odradek.workers.api import COORDINATOR, Api, message_class
from odradek.workers.context import Context
from odradek.workers.coordination import UNKNOWN, Coordinator, answered, exists


def handle(coordinator: Coordinator, request: Any, context: Context) -> None:
    asked = [(topic.name, p.partition_index) for topic in request.topics for p in topic.partitions]
    known = [tp for tp in asked if exists(coordinator.snapshot, tp)]

    def answer(result: tuple[Error, PartitionErrors]) -> None:
        error, errors = result
        rows = [topic for topic in request.topics if answered(coordinator.snapshot, topic.name, topic)]
        context.reply(_response(rows, error, {**dict.fromkeys(asked, UNKNOWN), **errors}))

    coordinator.groups.delete_offsets(request.group_id, known, answer, coordinator.now)


def _response(rows: list[Any], error: Error, errors: PartitionErrors) -> Any:
    response = message_class("OffsetDeleteResponse")
    if error:
        return response(error_code=error, topics=[])
    topic_class = response.OffsetDeleteResponseTopic
    partition_class = topic_class.OffsetDeleteResponsePartition
    topics = [
        topic_class(
            name=topic.name,
            partitions=[
                partition_class(partition_index=p.partition_index, error_code=errors[topic.name, p.partition_index])
                for p in topic.partitions
            ],
        )
        for topic in rows
    ]
    return response(error_code=error, topics=topics)


API = Api(key=47, name="OffsetDelete", versions=(0, 0), runs_in=COORDINATOR, handle=handle)
