"""Produce, Fetch and ListOffsets at a chosen version over a raw connection, with the answer's one partition."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from ...harness.wire import Wire

NO_ID = uuid.UUID(int=0)


def supports(wire: Wire, key: int, version: int) -> bool:
    """Does the broker say that it answers this version?"""
    low, high = wire.api_versions().get(key, (1, 0))
    return low <= version <= high


def produce_request(
    topic: str | uuid.UUID,
    records: bytes | None,
    *,
    version: int = 7,
    acks: int = -1,
    partition: int = 0,
    transactional_id: str | None = None,
    timeout_ms: int = 10_000,
) -> Any:
    """A Produce request for one partition; from version 13 `topic` is an id."""
    from kafka.protocol.producer import ProduceRequest as Request

    data = Request.TopicProduceData.PartitionProduceData(index=partition, records=records)
    named = {"topic_id": topic} if isinstance(topic, uuid.UUID) else {"name": topic}
    topics = [Request.TopicProduceData(partition_data=[data], **named)]
    return Request[version](transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, topic_data=topics)


def produce(wire: Wire, topic: str | uuid.UUID, records: bytes | None, **options: Any) -> Any:
    """The partition's part of the answer."""
    answer = wire.call(produce_request(topic, records, **options))
    return answer.responses[0].partition_responses[0]


def fetch_request(
    topic: str | uuid.UUID,
    offset: int,
    *,
    version: int = 11,
    partition: int = 0,
    wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 50_000_000,
    partition_bytes: int = 1_000_000,
    isolation: int = 0,
    epoch: int = -1,
) -> Any:
    """A Fetch request for one partition without a session; from version 13 `topic` is an id."""
    parts = [
        part(partition, offset, partition_bytes, epoch),
    ]
    return session_request(
        [(topic, parts)],
        version=version,
        wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation=isolation,
    )


def part(partition: int, offset: int, max_bytes: int = 1_000_000, epoch: int = -1) -> Any:
    """One partition of a Fetch request."""
    from kafka.protocol.consumer import FetchRequest as Request

    return Request.FetchTopic.FetchPartition(
        partition=partition,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=max_bytes,
    )


def session_request(
    topics: Sequence[tuple[str | uuid.UUID, list[Any]]],
    *,
    version: int = 11,
    session: int = 0,
    session_epoch: int = -1,
    forget: list[tuple[str | uuid.UUID, list[int]]] = [],  # noqa: B006 (never changed)
    wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 50_000_000,
    isolation: int = 0,
) -> Any:
    """A Fetch request of any shape."""
    from kafka.protocol.consumer import FetchRequest as Request

    return Request[version](
        cluster_id=None,
        replica_id=-1,
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation,
        session_id=session,
        session_epoch=session_epoch,
        topics=[Request.FetchTopic(partitions=parts, **_named(topic)) for topic, parts in topics],
        forgotten_topics_data=[
            Request.ForgottenTopic(partitions=numbers, **_named(topic)) for topic, numbers in forget
        ],
        rack_id="",
    )


def _named(topic: str | uuid.UUID) -> dict[str, Any]:
    return {"topic_id": topic} if isinstance(topic, uuid.UUID) else {"topic": topic}


def fetch(wire: Wire, topic: str | uuid.UUID, offset: int, **options: Any) -> Any:
    """The partition's part of the answer."""
    answer = wire.call(fetch_request(topic, offset, **options))
    return answer.responses[0].partitions[0]


def list_offsets(
    wire: Wire, topic: str, timestamp: int, *, version: int = 5, partition: int = 0, isolation: int = 0
) -> Any:
    """The partition's part of the answer."""
    from kafka.protocol.consumer import ListOffsetsRequest as Request

    asked = Request.ListOffsetsTopic.ListOffsetsPartition(
        partition_index=partition, current_leader_epoch=-1, timestamp=timestamp, max_num_offsets=10
    )
    topics = [Request.ListOffsetsTopic(name=topic, partitions=[asked])]
    extra = {"timeout_ms": 10_000} if version >= 10 else {}
    request = Request[version](replica_id=-1, isolation_level=isolation, topics=topics, **extra)
    return wire.call(request).topics[0].partitions[0]


def producer_id(wire: Wire, **fields: Any) -> tuple[int, int]:
    """A new producer id and its epoch."""
    from kafka.protocol.producer import InitProducerIdRequest as Request

    asked = {"transactional_id": None, "transaction_timeout_ms": 60_000, **fields}
    request = Request[3](producer_id=-1, producer_epoch=-1, **asked)
    answer = wire.call(request)
    while answer.error_code == 14:  # COORDINATOR_LOAD_IN_PROGRESS
        answer = wire.call(request)
    assert answer.error_code == 0, answer
    return answer.producer_id, answer.producer_epoch
