"""OffsetForLeaderEpoch (key 23), versions 0 to 4: the end offset of a leader epoch (KIP-101, KIP-320).

Consumers use it to detect log truncation. Answered from the partition's epoch checkpoint; the newest epoch ends at the
log end, where the leader's own epoch begins as long as it has no records.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from odradek.ipc import slots
from odradek.protocol import errors
from odradek.protocol.library import message_class
from odradek.workers.dispatch.api import Api
from odradek.workers.dispatch.authorization import CLUSTER, CLUSTER_ACTION, DESCRIBE, TOPIC
from odradek.workers.dispatch.context import Context
from odradek.workers.dispatch.partition_check import elsewhere, refusal
from odradek.workers.fetch import leader_epochs
from odradek.workers.fetch.fetching import storage_failed

if TYPE_CHECKING:
    from odradek.workers.dispatch.services import Services


def handle(services: Services, request: Any, context: Context) -> Iterator[None]:
    """One answer for each requested partition; each reads a file, and is a step (Services.begin)."""
    response = message_class("OffsetForLeaderEpochResponse")
    topic_class = response.OffsetForLeaderTopicResult
    is_broker = context.sees(CLUSTER_ACTION, CLUSTER)
    topics = []
    for topic in request.topics:
        rows = []
        allowed = is_broker or context.allows(DESCRIBE, TOPIC, topic.topic)
        for part in topic.partitions:
            found = _answer(services, topic.topic, part) if allowed else _error(part, errors.TOPIC_AUTHORIZATION_FAILED)
            rows.append(topic_class.EpochEndOffset(**found))
            yield
        topics.append(topic_class(topic=topic.topic, partitions=rows))
    context.reply(response(throttle_time_ms=0, topics=topics))


def _error(part: Any, error: int) -> dict[str, int]:
    return {"error_code": error, "partition": part.partition, "leader_epoch": -1, "end_offset": -1}


def _answer(services: Services, topic: str, part: Any) -> dict[str, int]:
    partition = services.partition_of(topic.encode(), part.partition, False)
    if partition is None:
        return _error(part, elsewhere(services.snapshot, topic.encode(), part.partition, False))
    values = partition.slot.read()
    error = refusal(partition, values, part.current_leader_epoch)
    if error:
        return _error(part, error)
    try:
        epoch, end = leader_epochs.of(partition, values).end_offset(part.leader_epoch, values[slots.F_LEO])
    except Exception as problem:
        storage_failed(partition, values, problem)
        return _error(part, errors.KAFKA_STORAGE_ERROR)
    return {"error_code": errors.NONE, "partition": part.partition, "leader_epoch": epoch, "end_offset": end}


API = Api(key=23, name="OffsetForLeaderEpoch", versions=(0, 4), handle=handle)
