"""OffsetDelete (key 47), version 0: delete committed offsets of a group (KIP-496).

Offsets of topics that members are subscribed to are kept: GROUP_SUBSCRIBED_TO_TOPIC. Answered when the tombstones
are in `__consumer_offsets`. An answer with a group error has no partitions. A topic that the request names without
partitions is in the answer only if it does not exist, as in Kafka. Many partitions take many steps
(broker.process.steps), but their offsets are deleted in one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from odradek.groups.groups import PartitionErrors
from odradek.groups.offsets import TopicPartition
from odradek.protocol.errors import Error
from odradek.protocol.library import message_class
from odradek.workers.dispatch.api import COORDINATOR, Api, pieces
from odradek.workers.dispatch.authorization import DELETE, GROUP, READ, TOPIC
from odradek.workers.dispatch.context import Context
from odradek.workers.dispatch.coordination import UNKNOWN, Coordinator, answered, exists

DENIED = Error.TOPIC_AUTHORIZATION_FAILED


def handle(coordinator: Coordinator, request: Any, context: Context) -> Iterator[None]:
    if not context.allows(DELETE, GROUP, request.group_id):
        yield from _answering([], Error.GROUP_AUTHORIZATION_FAILED, {}, context)
        return
    requested: list[TopicPartition] = []
    existing: list[TopicPartition] = []
    denied: PartitionErrors = {}
    for topic in request.topics:
        if not context.allows(READ, TOPIC, topic.name):
            denied.update({(topic.name, row.partition_index): DENIED for row in topic.partitions})
            continue
        for some in pieces(topic.partitions):
            named = [(topic.name, part.partition_index) for part in some]
            requested += named
            existing += [tp for tp in named if exists(coordinator.snapshot, tp)]
            yield

    def answer(result: tuple[Error, PartitionErrors]) -> None:
        error, errors = result
        rows = [
            topic
            for topic in request.topics
            if answered(coordinator.snapshot, topic.name, topic) or not context.sees(READ, TOPIC, topic.name)
        ]
        results = {**dict.fromkeys(requested, UNKNOWN), **errors, **denied}
        context.finish(_answering([] if error else rows, error, results, context), len(requested) + len(rows))

    coordinator.groups.delete_offsets(request.group_id, existing, answer, coordinator.now)


def _answering(rows: list[Any], error: Error, errors: PartitionErrors, context: Context) -> Iterator[None]:
    response = message_class("OffsetDeleteResponse")
    topic_class = response.OffsetDeleteResponseTopic
    partition_class = topic_class.OffsetDeleteResponsePartition
    topics = []
    for topic in rows:
        partitions: list[Any] = []
        for some in pieces(topic.partitions):
            partitions += [
                partition_class(partition_index=p.partition_index, error_code=errors[topic.name, p.partition_index])
                for p in some
            ]
            yield
        topics.append(topic_class(name=topic.name, partitions=partitions))
        yield
    context.reply(response(error_code=error, topics=topics))


API = Api(key=47, name="OffsetDelete", versions=(0, 0), runs_in=COORDINATOR, handle=handle)
