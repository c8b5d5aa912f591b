"""OffsetFetch (key 9), versions 0 to 10.

v0 reads the offsets that OffsetCommit v0 wrote to the metadata tree. v1+ read `__consumer_offsets`: v2+ can ask for all
partitions of a group (a null list) and have a top-level error, v5+ leader epochs, v7+ `require_stable`
(KIP-447), v8+ many groups at once (KIP-709), v10 topic ids. A partition without a commit gets offset -1 without an
error, even if its topic does not exist. v9's member epoch is for KIP-848 groups, which are not supported yet.
Where the coordinator loads or is another broker's, v2 to v7 have the error at each partition, too, which Kafka leaves
out: aiokafka (0.14) reads only these, and would go on as if the group had committed nothing.
A group that is named twice is answered once, as first named: all its offsets may be megabytes.
The work runs in steps (broker.process.steps), but a group's offsets are read in one: a transaction commits all of its
offsets, or none.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, NamedTuple
from uuid import UUID

from odradek.groups.offsets import TopicPartition
from odradek.groups.records import OffsetValue
from odradek.protocol.errors import Error
from odradek.protocol.library import message_class
from odradek.workers.dispatch.api import COORDINATOR, Api, pieces
from odradek.workers.dispatch.authorization import DESCRIBE, GROUP, TOPIC
from odradek.workers.dispatch.context import Context
from odradek.workers.dispatch.coordination import NO_ID, UNKNOWN, Coordinator, exists, topic_name

GROUPS, TOPIC_IDS = 8, 10
NOTHING = -1
DENIED = Error.TOPIC_AUTHORIZATION_FAILED
_ELSEWHERE = (Error.COORDINATOR_LOAD_IN_PROGRESS, Error.NOT_COORDINATOR, Error.COORDINATOR_NOT_AVAILABLE)


class FetchedOffset(NamedTuple):
    """One partition's answer; `name` is None for an unknown topic id."""

    name: str | None
    topic_id: Any
    partition: int
    value: OffsetValue | None
    error: Error


def handle(coordinator: Coordinator, request: Any, context: Context) -> Any:
    if context.version >= GROUPS:
        return _fetch_groups(coordinator, request, context)
    if context.version == 0:
        _fetch_from_tree(coordinator, request, context)
        return None
    return _fetch_group(coordinator, request, context)


def _fetch_groups(coordinator: Coordinator, request: Any, context: Context) -> Iterator[None]:
    response = message_class("OffsetFetchResponse")
    group_class = response.OffsetFetchResponseGroup
    topic_class = group_class.OffsetFetchResponseTopics
    once: dict[str, Any] = {}
    for group in request.groups:
        once.setdefault(group.group_id, group)
    groups = []
    for name, group in once.items():
        error, found = yield from _fetch(coordinator, group, request.require_stable, context)
        topics = yield from _topics(found, topic_class, topic_class.OffsetFetchResponsePartitions)
        groups.append(group_class(group_id=name, topics=topics, error_code=error))
        yield
    context.reply(response(groups=groups))


def _fetch_group(coordinator: Coordinator, request: Any, context: Context) -> Iterator[None]:
    stable = context.version >= 7 and request.require_stable
    error, found = yield from _fetch(coordinator, request, stable, context)
    if error in _ELSEWHERE or (error and context.version < 2):  # which has no top-level error
        asked = [(topic.name, index) for topic in request.topics or () for index in topic.partition_indexes]
        found = [FetchedOffset(name, NO_ID, index, None, error) for name, index in asked]
    context.reply((yield from _flat_response(error, found)))


def _fetch(
    coordinator: Coordinator, group: Any, stable: bool, context: Context
) -> Generator[None, None, tuple[Error, list[FetchedOffset]]]:
    """One group's offsets, in the order of the request, but for topics that the client may not describe: these last."""
    version = context.version
    if not context.allows(DESCRIBE, GROUP, group.group_id):
        return Error.GROUP_AUTHORIZATION_FAILED, []
    if group.topics is None:
        return (yield from _fetch_all(coordinator, group.group_id, stable, context))
    requested: list[tuple[str | None, Any, int]] = []
    hidden: list[FetchedOffset] = []
    for topic in group.topics:
        yield
        name = topic_name(coordinator.snapshot, topic, version >= TOPIC_IDS)
        if name is not None and not context.allows(DESCRIBE, TOPIC, name):
            topic_id = topic.topic_id if version >= TOPIC_IDS else NO_ID
            hidden += [FetchedOffset(name, topic_id, index, None, DENIED) for index in topic.partition_indexes]
            continue
        requested += [(name, topic, index) for index in topic.partition_indexes]
    named = [(name, index) for name, _, index in requested if name is not None]
    error, offsets = coordinator.groups.fetch(group.group_id, named, stable)
    found: list[FetchedOffset] = []
    for piece in pieces(requested if not error else ()):
        yield
        found += [_found(offsets, name, topic, index, version) for name, topic, index in piece]
    return error, found if error else found + hidden


def _fetch_all(
    coordinator: Coordinator, group: str, stable: bool, context: Context
) -> Generator[None, None, tuple[Error, list[FetchedOffset]]]:
    """All offsets of a group that the client may see; in versions with topic ids, without those of deleted topics."""
    topics, version = coordinator.snapshot.topics, context.version
    error, offsets = coordinator.groups.fetch(group, None, stable)
    found: list[FetchedOffset] = []
    for piece in pieces(list(offsets.items())):
        yield
        ids = {name: UUID(bytes=topics[name].id) for name in {name for (name, _), _ in piece} if name in topics}
        rows = [
            FetchedOffset(name, ids.get(name, NO_ID), index, *answer)
            for (name, index), answer in piece
            if context.sees(DESCRIBE, TOPIC, name)
        ]
        found += [row for row in rows if version < TOPIC_IDS or row.name in ids]
    return error, found


def _found(offsets: dict[TopicPartition, Any], name: str | None, topic: Any, index: int, version: int) -> FetchedOffset:
    topic_id = topic.topic_id if version >= TOPIC_IDS else NO_ID
    if name is None:
        return FetchedOffset(None, topic_id, index, None, Error.UNKNOWN_TOPIC_ID)
    return FetchedOffset(name, topic_id, index, *offsets[name, index])


def _fetch_from_tree(coordinator: Coordinator, request: Any, context: Context) -> None:
    partitions = [(topic.name, index) for topic in request.topics for index in topic.partition_indexes]
    denied = _denied(partitions, request.group_id, context)

    def done(offsets: dict[TopicPartition, int] | None) -> None:
        coordinator.begin(_answer_from_tree(coordinator, partitions, offsets, denied, context))

    coordinator.tree_fetch(request.group_id, [tp for tp in partitions if tp not in denied], done)


def _denied(partitions: list[TopicPartition], group: str, context: Context) -> dict[TopicPartition, Error]:
    """The errors of partitions whose offsets the client may not see."""
    if not context.allows(DESCRIBE, GROUP, group):
        return dict.fromkeys(partitions, Error.GROUP_AUTHORIZATION_FAILED)
    return {tp: DENIED for tp in partitions if not context.allows(DESCRIBE, TOPIC, tp[0])}


def _answer_from_tree(
    coordinator: Coordinator, partitions: list[TopicPartition], offsets: dict[TopicPartition, int] | None,
    denied: dict[TopicPartition, Error], context: Context,
) -> Iterator[None]:  # fmt: skip
    found = [
        FetchedOffset(tp[0], NO_ID, tp[1], None, denied[tp]) if tp in denied else _from_tree(coordinator, tp, offsets)
        for tp in partitions
    ]
    yield
    context.reply((yield from _flat_response(Error.NONE, found)))


def _from_tree(
    coordinator: Coordinator, tp: TopicPartition, offsets: dict[TopicPartition, int] | None
) -> FetchedOffset:
    """The answer from the tree; 0.8 reports an offset that was never committed by an error."""
    if offsets is None:
        return FetchedOffset(tp[0], NO_ID, tp[1], None, Error.COORDINATOR_NOT_AVAILABLE)
    if tp not in offsets or not exists(coordinator.snapshot, tp):
        return FetchedOffset(tp[0], NO_ID, tp[1], None, UNKNOWN)
    return FetchedOffset(tp[0], NO_ID, tp[1], OffsetValue(offsets[tp], -1, "", -1), Error.NONE)


# -- responses --------------------------------------------------------------------------------------------------


def _topics(found: list[FetchedOffset], topic_class: Any, partition_class: Any) -> Generator[None, None, list[Any]]:
    """The rows by topic."""
    topics: dict[tuple[str | None, Any], Any] = {}
    for piece in pieces(found):
        for row in piece:
            topic = topics.get((row.name, row.topic_id))
            if topic is None:
                topic = topics[row.name, row.topic_id] = _topic(topic_class, row)
            topic.partitions.append(_partition(partition_class, row))
        yield
    return list(topics.values())


def _topic(topic_class: Any, row: FetchedOffset) -> Any:
    """A topic row without partitions. Its class has no topic id below v8; the encoder omits the id below v10."""
    has_id = topic_class.__name__ == "OffsetFetchResponseTopics"
    return topic_class(name=row.name or "", partitions=[], **({"topic_id": row.topic_id} if has_id else {}))


def _partition(partition_class: Any, row: FetchedOffset) -> Any:
    value = row.value
    return partition_class(
        partition_index=row.partition,
        committed_offset=value.offset if value else NOTHING,
        committed_leader_epoch=value.leader_epoch if value else -1,
        metadata=value.metadata if value else "",
        error_code=row.error,
    )


def _flat_response(error: Error, found: list[FetchedOffset]) -> Generator[None, None, Any]:
    response = message_class("OffsetFetchResponse")
    topic_class = response.OffsetFetchResponseTopic
    topics = yield from _topics(found, topic_class, topic_class.OffsetFetchResponsePartition)
    return response(topics=topics, error_code=error)


API = Api(key=9, name="OffsetFetch", versions=(0, 10), runs_in=COORDINATOR, handle=handle)
