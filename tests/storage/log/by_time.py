"""Queries by timestamp on a log that does not change."""

from __future__ import annotations

from collections.abc import Sequence

from odradek.storage.log.partition import Partition
from odradek.storage.log.timestamp_queries import MaxTimestamp, OffsetForTimestamp, TimestampAndOffset, TimestampQuery


def first_not_before(
    partition: Partition, values: Sequence[int], timestamp: int, limit: int
) -> TimestampAndOffset | None:
    """The first record below offset `limit` whose timestamp is at least `timestamp`."""
    return _answered(OffsetForTimestamp(timestamp), partition, values, limit)


def newest(partition: Partition, values: Sequence[int], limit: int) -> TimestampAndOffset | None:
    """The first record with the largest timestamp, where it is below offset `limit`."""
    return _answered(MaxTimestamp(), partition, values, limit)


def _answered(
    question: TimestampQuery, partition: Partition, values: Sequence[int], limit: int
) -> TimestampAndOffset | None:
    while not question.step(partition, values, limit):
        pass
    return question.found
