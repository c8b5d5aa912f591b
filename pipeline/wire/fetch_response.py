"""A Fetch response, from version 4 on, whose records stay in the frame: kafka-python copies them.

Only what a reader of one partition needs. Tagged fields are skipped: a leader that moved says so by an error.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from odradek.protocol import wire

_THROTTLED = struct.Struct(">i")
_SESSION = struct.Struct(">hi")  # error, session id
_PART = struct.Struct(">ihqq")  # index, error, high watermark, last stable offset
_ABORTED = struct.Struct(">qq")
_SESSIONS_FROM, _LOG_START_FROM, _PREFERRED_FROM, _FLEXIBLE_FROM, _TOPIC_IDS_FROM = 7, 5, 11, 12, 13
_TOPIC_ID, _LOG_START, _PREFERRED = 16, 8, 4  # bytes


class AbortedTransaction(NamedTuple):
    """The producer of an aborted transaction, and its first offset."""

    producer_id: int
    first_offset: int


class PartitionData(NamedTuple):
    """A partition's row; `records` lie in the frame's buffer."""

    partition_index: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    aborted_transactions: list[AbortedTransaction]
    records: memoryview | None


class FetchResponse(NamedTuple):
    """The response; `error_code` is that of the session."""

    throttle_time_ms: int
    error_code: int
    partitions: list[PartitionData]


def decode(frame: memoryview, version: int) -> FetchResponse:
    """The response in `frame`, behind its header. ValueError, IndexError or struct.error for a malformed one."""
    end, flexible = len(frame), version >= _FLEXIBLE_FROM
    (throttled,), at, error = _THROTTLED.unpack_from(frame), _THROTTLED.size, 0
    if version >= _SESSIONS_FROM:
        error, _ = _SESSION.unpack_from(frame, at)
        at += _SESSION.size
    topics, at = wire.count(frame, at, end, flexible)
    parts: list[PartitionData] = []
    for _ in range(topics):
        at = at + _TOPIC_ID if version >= _TOPIC_IDS_FROM else wire.string(frame, at, end, flexible)[1]
        count, at = wire.count(frame, at, end, flexible)
        for _ in range(count):
            part, at = _partition(frame, at, version)
            parts.append(part)
        at = _behind_tags(frame, at, version)
    _behind_tags(frame, at, version)
    return FetchResponse(throttled, error, parts)


def _partition(frame: memoryview, at: int, version: int) -> tuple[PartitionData, int]:
    index, error, high_watermark, stable = _PART.unpack_from(frame, at)
    at += _PART.size + (_LOG_START if version >= _LOG_START_FROM else 0)
    aborted, at = _aborted(frame, at, version)
    at += _PREFERRED if version >= _PREFERRED_FROM else 0
    size, at = wire.span(frame, at, len(frame), version >= _FLEXIBLE_FROM)
    records = frame[at : at + size] if size >= 0 else None
    at = _behind_tags(frame, at + max(size, 0), version)
    return PartitionData(index, error, high_watermark, stable, aborted, records), at


def _aborted(frame: memoryview, at: int, version: int) -> tuple[list[AbortedTransaction], int]:
    count, at = wire.count(frame, at, len(frame), version >= _FLEXIBLE_FROM)
    found: list[AbortedTransaction] = []
    for _ in range(count):
        found.append(AbortedTransaction(*_ABORTED.unpack_from(frame, at)))
        at = _behind_tags(frame, at + _ABORTED.size, version)
    return found, at


def _behind_tags(frame: memoryview, at: int, version: int) -> int:
    return wire.skip_tags(frame, at, len(frame)) if version >= _FLEXIBLE_FROM else at
