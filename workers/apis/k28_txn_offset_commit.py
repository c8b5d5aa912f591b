"""TxnOffsetCommit (key 28), versions 0 to 4: a group's offsets, committed if and when the transaction is (KIP-98).

When this is answered, the offsets are in `__consumer_offsets` and wait for the marker. The group's partition must be
part of the transaction (AddOffsetsToTxn), as verified with its coordinator: offsets that arrive after the transaction's
end would block the last stable offset of the partition forever. v2+ have leader epochs, v3+ the member and generation
that read the input (KIP-447), v4+ TRANSACTION_ABORTABLE. Left out: v5, for transactions of version 2 (KIP-890). Large
requests are read and answered in steps (broker.process.steps).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from odradek.cluster.rules.topicnames import OFFSETS
from odradek.groups.events import Commit, Now
from odradek.groups.groups import PartitionErrors
from odradek.groups.offsets import TopicPartition
from odradek.groups.records import OffsetValue
from odradek.groups.transactions.events import Producer
from odradek.protocol.errors import Error
from odradek.protocol.library import message_class
from odradek.workers.dispatch.api import COORDINATOR, Api, pieces
from odradek.workers.dispatch.authorization import GROUP, READ, TOPIC, TRANSACTIONAL_ID, WRITE
from odradek.workers.dispatch.context import Context
from odradek.workers.dispatch.coordination import UNKNOWN, Coordinator, answered, exists

EPOCHS, MEMBERS, ABORTABLE = 2, 3, 4

DENIED = Error.TOPIC_AUTHORIZATION_FAILED
SAID_AS = {
    Error.PRODUCER_FENCED: Error.INVALID_PRODUCER_EPOCH,
    Error.NETWORK_EXCEPTION: Error.COORDINATOR_LOAD_IN_PROGRESS,
    Error.NOT_COORDINATOR: Error.COORDINATOR_LOAD_IN_PROGRESS,
}
"""Errors of the verification as clients get them: an unknown outcome looks like a loading group, so they retry."""


def handle(coordinator: Coordinator, request: Any, context: Context) -> Iterator[None]:
    """See above."""
    if error := _refusal(request, context):
        everything = {(topic.name, row.partition_index): error for topic in request.topics for row in topic.partitions}
        yield from _answering(request.topics, everything, context)
        return
    requested: dict[TopicPartition, Any] = {}
    denied: PartitionErrors = {}
    for topic in request.topics:
        if not context.allows(READ, TOPIC, topic.name):
            denied.update({(topic.name, row.partition_index): DENIED for row in topic.partitions})
            continue
        for piece in pieces(topic.partitions):
            requested.update({(topic.name, row.partition_index): row for row in piece})
            yield
    existing = {tp: row for tp, row in requested.items() if exists(coordinator.snapshot, tp)}
    topics = [
        topic
        for topic in request.topics
        if answered(coordinator.snapshot, topic.name, topic) or not context.sees(READ, TOPIC, topic.name)
    ]

    def answer(errors: PartitionErrors) -> None:
        answers = {tp: _for_version(error, context.version) for tp, error in errors.items()}
        context.begin(_answering(topics, {**dict.fromkeys(requested, UNKNOWN), **answers, **denied}, context))

    def verified(error: Error) -> None:
        if error:
            answer(dict.fromkeys(existing, error))
        elif not existing:
            answer({})
        else:
            commit = _commit(request, existing, context.version, coordinator.now)
            coordinator.groups.commit(commit, answer, coordinator.now)

    if existing or not denied:
        _verify(coordinator, request, verified)
    else:
        answer({})


def _refusal(request: Any, context: Context) -> Error:
    """The error of a client that may not commit at all."""
    if not context.allows(WRITE, TRANSACTIONAL_ID, request.transactional_id):
        return Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return Error.NONE if context.allows(READ, GROUP, request.group_id) else Error.GROUP_AUTHORIZATION_FAILED


def _verify(coordinator: Coordinator, request: Any, verified: Callable[[Error], None]) -> None:
    """Check whether these offsets may be written."""
    if refusal := coordinator.groups.refusal(request.group_id):
        verified(refusal)
        return
    producer = Producer(request.transactional_id, request.producer_id, request.producer_epoch)
    partition = OFFSETS, coordinator.groups.partition_of(request.group_id)
    coordinator.verify(producer, partition, lambda error: verified(SAID_AS.get(error, error)))


def _commit(request: Any, existing: dict[Any, Any], version: int, now: Now) -> Commit:
    names_member = version >= MEMBERS
    return Commit(
        request.group_id,
        request.member_id if names_member else "",
        request.group_instance_id if names_member else None,
        request.generation_id if names_member else -1,
        {tp: _value(row, version, now) for tp, row in existing.items()},
        producer=(request.producer_id, request.producer_epoch),
    )


def _value(row: Any, version: int, now: Now) -> OffsetValue:
    epoch = row.committed_leader_epoch if version >= EPOCHS else -1
    return OffsetValue(row.committed_offset, epoch, row.committed_metadata or "", now.wall_ms)


def _for_version(error: Error, version: int) -> Error:
    """The error for a version: producers before 2.3 break on COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)."""
    if version < EPOCHS and error is Error.COORDINATOR_LOAD_IN_PROGRESS:
        return Error.COORDINATOR_NOT_AVAILABLE
    if version < ABORTABLE and error is Error.TRANSACTION_ABORTABLE:
        return Error.INVALID_TXN_STATE
    return error


def _answering(topics: list[Any], errors: PartitionErrors, context: Context) -> Iterator[None]:
    response = message_class("TxnOffsetCommitResponse")
    topic_class = response.TxnOffsetCommitResponseTopic
    partition_class = topic_class.TxnOffsetCommitResponsePartition
    rows = []
    for topic in topics:
        partitions: list[Any] = []
        for piece in pieces(topic.partitions):
            partitions += [
                partition_class(partition_index=row.partition_index, error_code=errors[topic.name, row.partition_index])
                for row in piece
            ]
            yield
        rows.append(topic_class(name=topic.name, partitions=partitions))
    context.reply(response(topics=rows))


API = Api(key=28, name="TxnOffsetCommit", versions=(0, 4), runs_in=COORDINATOR, handle=handle)
