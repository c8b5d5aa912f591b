"""A Fetch for one partition, without a session."""

from __future__ import annotations

import uuid
from typing import Any

from kafka.protocol.consumer import FetchRequest

from odradek.pipeline.types import NO_ID, Leader, Partition
from odradek.pipeline.wire.fetch_response import FetchResponse, PartitionData
from odradek.pipeline.wire.retries import RetryLater, check
from odradek.pipeline.wire.settings import Address, Settings

_LAST_BY_NAME = 12  # from version 13 on topics have ids


def request(settings: Settings, key: Partition, leader: Leader, offset: int, committed: bool, most: int) -> Any:
    """Wait briefly for at least one byte: the range's end is there already, or nearly. `most` bytes, or one batch.

    From version 13 on the fetch names the topic's id, so that a recreated topic of the same name does not respond.
    """
    row = FetchRequest.FetchTopic.FetchPartition(
        partition=key[1], current_leader_epoch=leader.epoch, fetch_offset=offset,
        last_fetched_epoch=-1, log_start_offset=-1, partition_max_bytes=most,
    )  # fmt: skip
    topic = FetchRequest.FetchTopic(topic=key[0], topic_id=uuid.UUID(bytes=leader.topic_id), partitions=[row])
    return FetchRequest(
        max_wait_ms=settings.fetch_wait_ms, min_bytes=1, max_bytes=most,
        isolation_level=int(committed), session_id=0, session_epoch=-1, topics=[topic],
        forgotten_topics_data=[], rack_id="", min_version=4,
        max_version=_LAST_BY_NAME if leader.topic_id == NO_ID else FetchRequest.max_version,
    )  # fmt: skip


def part(answer: FetchResponse, index: int) -> PartitionData | None:
    """The response's row for the partition; None when a quota leaves it empty (KIP-219). RetryLater for an error."""
    check(answer.error_code, "its leader")
    rows = answer.partitions
    if not rows and answer.throttle_time_ms > 0:
        return None
    if [row.partition_index for row in rows] != [index]:
        raise RetryLater("its leader responds for other partitions")
    return rows[0]


def address(leader: Leader) -> Address:
    """The leader's address."""
    return leader.host, leader.port
