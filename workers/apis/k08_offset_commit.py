"""OffsetCommit (key 8), versions 0 to 10.

v0 stores offsets where 0.8 did, in the metadata tree at `/consumers/<group>/offsets/<topic>/<partition>`, through
the controller; OffsetFetch v1+ does not see them, as in Kafka. v1+ go to `__consumer_offsets` and are answered once
they are there. v1 has a commit time for each partition, v2-v4 a retention time, v6+ leader epochs, v7+ static members,
v10 topic ids in place of names.
Partitions that do not exist are refused one by one; the rest of the commit is valid.
Large requests are read and answered in steps (broker.process.steps); the existing partitions, whose offsets are
committed, are found in one step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from odradek.groups.events import Commit, Now
from odradek.groups.groups import PartitionErrors
from odradek.groups.offsets import TopicPartition
from odradek.groups.records import OffsetValue, java_length
from odradek.protocol.errors import Error
from odradek.protocol.library import message_class
from odradek.protocol.wire import INT64_MAX
from odradek.workers.dispatch.api import COORDINATOR, Api, pieces
from odradek.workers.dispatch.authorization import GROUP, READ, TOPIC
from odradek.workers.dispatch.context import Context
from odradek.workers.dispatch.coordination import NO_ID, UNKNOWN, Coordinator, answered, exists, topic_name

TOPIC_IDS = 10
LATEST_MS = INT64_MAX  # the latest time that a record can hold


def handle(coordinator: Coordinator, request: Any, context: Context) -> Iterator[None]:
    rows: list[tuple[str | None, Any]] = []
    requested: dict[TopicPartition, Any] = {}
    denied: PartitionErrors = {}
    if not context.allows(READ, GROUP, request.group_id):
        context.reply(_refused(request, Error.GROUP_AUTHORIZATION_FAILED))
        return
    for topic in request.topics:
        name = topic_name(coordinator.snapshot, topic, context.version >= TOPIC_IDS)
        rows.append((name, topic))
        if name is None:
            continue
        if not context.allows(READ, TOPIC, name):
            denied.update({(name, row.partition_index): Error.TOPIC_AUTHORIZATION_FAILED for row in topic.partitions})
            continue
        for piece in pieces(topic.partitions):
            requested.update(((name, partition.partition_index), partition) for partition in piece)
            yield
    existing = {tp: partition for tp, partition in requested.items() if exists(coordinator.snapshot, tp)}

    def answer(errors: PartitionErrors) -> None:
        found = {**dict.fromkeys(requested, UNKNOWN), **errors, **denied}
        context.begin(_answering(coordinator, rows, found, context))

    if not existing:
        answer({})
    elif context.version == 0:
        _commit_to_tree(coordinator, request.group_id, existing, answer)
    else:
        coordinator.groups.commit(_commit(request, existing, context.version, coordinator.now), answer, coordinator.now)


def _refused(request: Any, error: Error) -> Any:
    """The answer to a request of which nothing is committed."""
    response = message_class("OffsetCommitResponse")
    topic_class = response.OffsetCommitResponseTopic
    part_class = topic_class.OffsetCommitResponsePartition
    topics = [
        topic_class(
            name=topic.name or "",
            topic_id=topic.topic_id or NO_ID,
            partitions=[part_class(partition_index=row.partition_index, error_code=error) for row in topic.partitions],
        )
        for topic in request.topics
    ]
    return response(topics=topics)


def _commit(request: Any, existing: dict[TopicPartition, Any], version: int, now: Now) -> Commit:
    expire_ms = -1
    if 2 <= version <= 4 and request.retention_time_ms != -1:
        expire_ms = min(now.wall_ms + request.retention_time_ms, LATEST_MS)
    return Commit(
        request.group_id,
        request.member_id or "",
        request.group_instance_id if version >= 7 else None,
        request.generation_id_or_member_epoch,
        {tp: _value(partition, version, now, expire_ms) for tp, partition in existing.items()},
        unknown_group_is_not_found=version >= 9,
    )


def _value(partition: Any, version: int, now: Now, expire_ms: int) -> OffsetValue:
    dated = version == 1 and partition.commit_timestamp != -1
    return OffsetValue(
        partition.committed_offset,
        partition.committed_leader_epoch if version >= 6 else -1,
        partition.committed_metadata or "",
        partition.commit_timestamp if dated else now.wall_ms,
        expire_ms,
    )


def _commit_to_tree(coordinator: Coordinator, group: str, existing: dict[TopicPartition, Any], answer: Any) -> None:
    limit = coordinator.groups.config.max_metadata
    errors: PartitionErrors = {
        tp: Error.OFFSET_METADATA_TOO_LARGE if java_length(partition.committed_metadata or "") > limit else Error.NONE
        for tp, partition in existing.items()
    }
    offsets = {tp: existing[tp].committed_offset for tp, error in errors.items() if not error}

    def done(written: bool) -> None:
        if not written:
            errors.update(dict.fromkeys(offsets, Error.COORDINATOR_NOT_AVAILABLE))
        answer(errors)

    coordinator.tree_commit(group, offsets, done)


def _answering(
    coordinator: Coordinator, rows: list[tuple[str | None, Any]], errors: PartitionErrors, context: Context
) -> Iterator[None]:
    response = message_class("OffsetCommitResponse")
    topic_class = response.OffsetCommitResponseTopic
    partition_class = topic_class.OffsetCommitResponsePartition

    def one(name: str | None, index: int) -> Any:
        error = Error.UNKNOWN_TOPIC_ID if name is None else errors[name, index]
        return partition_class(partition_index=index, error_code=error)

    topics = []
    for name, topic in rows:
        if not answered(coordinator.snapshot, name, topic) and context.sees(READ, TOPIC, name or ""):
            continue
        partitions: list[Any] = []
        for piece in pieces(topic.partitions):
            partitions += [one(name, partition.partition_index) for partition in piece]
            yield
        topics.append(topic_class(name=topic.name or "", topic_id=topic.topic_id or NO_ID, partitions=partitions))
    context.reply(response(topics=topics))


API = Api(key=8, name="OffsetCommit", versions=(0, 10), runs_in=COORDINATOR, handle=handle)
