"""ListOffsets (key 2), versions 0 to 11: the log's ends, and offsets by timestamp.

Timestamps: -1 latest (high watermark; last stable offset with read_committed), -2 earliest, -3 the record with the
largest timestamp (KIP-734, v7), -4 earliest local (v8, the same as -2: there is no tiered storage), -5 and -6 of tiered
storage (v9, v11: none). Others, and those of later versions, get UNSUPPORTED_VERSION, whether or not the partition
exists; a partition that is named twice gets INVALID_REQUEST (v1+). v0 answers with a list of segment boundaries instead
(Kafka's legacyFetchOffsetsBefore); a segment counts by the modification time of its file. v0 answers a repeated query
once: the list may be long.
Followers, identified by a replica id, see the whole log.
A new leader whose high watermark is still below the start of its epoch does not know yet what is committed: for the
latest offset, and for times without a committed record, it answers OFFSET_NOT_AVAILABLE (v5+) or LEADER_NOT_AVAILABLE.
A search through a log's segments, of which there may be ten thousand, runs in steps (storage.log.timestamp_queries).
"""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

from odradek.ipc import slots
from odradek.protocol import errors
from odradek.protocol.library import message_class
from odradek.storage.files import names
from odradek.storage.log import timestamp_queries
from odradek.workers.dispatch.api import Api
from odradek.workers.dispatch.authorization import DESCRIBE, TOPIC
from odradek.workers.dispatch.context import Context
from odradek.workers.dispatch.partition_check import elsewhere, refusal
from odradek.workers.fetch.fetching import SegmentsChanged, tried

if TYPE_CHECKING:
    from odradek.storage.log.partition import Partition
    from odradek.workers.dispatch.services import Services

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL = -1, -2, -3, -4
_SINCE = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, -5: 9, -6: 11}  # version of the request
_NEVER = 1 << 15
_READ_COMMITTED = 1
_CONSUMER, _DEBUGGER = -1, -2  # replica ids; a follower answers the latter too
_NOTHING = {"timestamp": -1, "offset": -1, "leader_epoch": -1}
_UNFINISHED: dict[str, Any] = {}  # the search needs more steps


def handle(services: Services, request: Any, context: Context) -> Iterator[None]:
    """One answer for each requested partition, in steps (Services.begin)."""
    response = message_class("ListOffsetsResponse")
    topic_class = response.ListOffsetsTopicResponse
    twice = _twice(request) if context.version else frozenset()
    topics = []
    for name, requested in _requested_topics(request, context.version):
        parts, allowed = [], context.allows(DESCRIBE, TOPIC, name)
        for part in requested:
            found = _refused(part, context.version, (name, part.partition_index) in twice, allowed)
            found = found or (yield from _answer(services, name, part, request, context))
            parts.append(topic_class.ListOffsetsPartitionResponse(**found))
            yield
        topics.append(topic_class(name=name, partitions=parts))
    context.reply(response(throttle_time_ms=0, topics=topics))


def _twice(request: Any) -> frozenset[tuple[str, int]]:
    counts = Counter((topic.name, part.partition_index) for topic in request.topics for part in topic.partitions)
    return frozenset(key for key, count in counts.items() if count > 1)


def _requested_topics(request: Any, version: int) -> Iterator[tuple[str, list[Any]]]:
    """The queries by topic."""
    if version:
        yield from ((topic.name, topic.partitions) for topic in request.topics)
        return
    once: dict[str, dict[tuple[int, int], Any]] = {}
    for topic in request.topics:
        parts = once.setdefault(topic.name, {})
        for part in topic.partitions:
            parts.setdefault((part.partition_index, part.timestamp), part)
    yield from ((name, list(parts.values())) for name, parts in once.items())


def _refused(part: Any, version: int, twice: bool, allowed: bool) -> dict[str, Any] | None:
    """The answer to an invalid query."""
    if not allowed:
        return _error(part.partition_index, errors.TOPIC_AUTHORIZATION_FAILED, version)
    if twice:
        return _error(part.partition_index, errors.INVALID_REQUEST, version)
    if part.timestamp < 0 and version < _SINCE.get(part.timestamp, _NEVER):
        return _error(part.partition_index, errors.UNSUPPORTED_VERSION, version)
    return None


def _answer(
    services: Services, topic: str, part: Any, request: Any, context: Context
) -> Generator[None, None, dict[str, Any]]:  # fmt: skip
    index, version = part.partition_index, context.version
    partition = services.partition_of(topic.encode(), index, False)
    if partition is None:
        return _error(index, elsewhere(services.snapshot, topic.encode(), index, False), version)
    known = services.authorization.knows(context.principal)
    if not known and services.unregistered.refuses(request.replica_id, context.listener, context.client_host):
        return _error(index, errors.TOPIC_AUTHORIZATION_FAILED, version)
    search = _search(part.timestamp, version)
    try:
        while (found := tried(partition, _look, part, request, version, search)) is _UNFINISHED:
            yield
    except SegmentsChanged:
        return _error(index, _later(version), version)
    return _error(index, errors.KAFKA_STORAGE_ERROR, version) if found is None else found


def _search(timestamp: int, version: int) -> SegmentBoundaries | timestamp_queries.TimestampQuery | None:
    """The search through the log's segments, if the answer needs one."""
    if version == 0:
        return SegmentBoundaries()
    if timestamp == MAX_TIMESTAMP:
        return timestamp_queries.MaxTimestamp()
    return timestamp_queries.OffsetForTimestamp(timestamp) if timestamp >= 0 else None


def _look(
    partition: Partition, values: tuple[int, ...], part: Any, request: Any, version: int,
    search: SegmentBoundaries | timestamp_queries.TimestampQuery | None,
) -> dict[str, Any]:  # fmt: skip
    """The answer, or _UNFINISHED."""
    index, limit = part.partition_index, _limit(values, request)
    error = refusal(partition, values, part.current_leader_epoch, followers=request.replica_id == _DEBUGGER)
    if error:
        return _error(index, error, version)
    if search is not None and not search.step(partition, values, limit):
        return _UNFINISHED
    if isinstance(search, SegmentBoundaries):
        found = search.chosen(part.timestamp, values, limit)[: max(0, part.max_num_offsets)]
        return {"partition_index": index, "error_code": errors.NONE, "old_style_offsets": found}
    offset = _found(search, values, part.timestamp, limit)
    if request.replica_id == _CONSUMER and (offset is None or part.timestamp == LATEST) and _lags(values):
        return _error(index, _later(version), version)
    return {"partition_index": index, "error_code": errors.NONE, **(offset or _NOTHING)}


def _later(version: int) -> int:
    """The error on which clients retry."""
    return errors.OFFSET_NOT_AVAILABLE if version >= 5 else errors.LEADER_NOT_AVAILABLE


def _error(index: int, error: int, version: int) -> dict[str, Any]:
    found: dict[str, Any] = {"old_style_offsets": []} if version == 0 else _NOTHING
    return {"partition_index": index, "error_code": error, **found}


def _limit(values: tuple[int, ...], request: Any) -> int:
    """The end of the log for this client: followers see all of it."""
    if request.replica_id != _CONSUMER:
        return values[slots.F_LEO]
    return slots.last_stable(values) if request.isolation_level == _READ_COMMITTED else values[slots.F_HW]


def _lags(values: tuple[int, ...]) -> bool:
    """Whether records that were committed under the last leader may lie above a new leader's high watermark."""
    return values[slots.F_STATE] == slots.LEADER and values[slots.F_EPOCH_START] > values[slots.F_HW]


def _found(
    search: timestamp_queries.TimestampQuery | None, values: tuple[int, ...], timestamp: int, limit: int
) -> dict[str, int] | None:  # fmt: skip
    """The answer; None: no record below `limit` has that timestamp or a later one."""
    if search is not None:
        return None if search.found is None else search.found._asdict()
    epoch = values[slots.F_LEADER_EPOCH]
    if timestamp == LATEST:
        return {"timestamp": -1, "offset": limit, "leader_epoch": epoch}
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return {"timestamp": -1, "offset": values[slots.F_LOG_START], "leader_epoch": epoch}
    return _NOTHING  # timestamps of tiered storage


class SegmentBoundaries:
    """v0: the base offsets and write times of segments, collected in steps like a TimestampQuery."""

    def __init__(self) -> None:
        self._points: list[tuple[int, int]] = []  # base offset, time

    def step(self, partition: Partition, values: tuple[int, ...], limit: int) -> bool:
        """Do one step; returns whether it was the last. FileNotFoundError: repeat it."""
        bases = partition.bases(values[slots.F_ACTIVE_BASE], values[slots.F_GENERATION])
        known = bisect_right(bases, self._points[-1][0]) if self._points else 0
        some = bases[known : known + timestamp_queries.SEGMENTS]
        self._points += [(base, _written_ms(partition, base)) for base in some]
        if len(some) == timestamp_queries.SEGMENTS:
            return False
        self._points = [point for point in self._points if point[0] >= bases[0]]  # the others were deleted meanwhile
        return True

    def chosen(self, timestamp: int, values: tuple[int, ...], limit: int) -> list[int]:
        """The starts of segments written before `timestamp`, newest first; the log end counts as one."""
        points = [(max(base, values[slots.F_LOG_START]), written) for base, written in self._points]
        if values[slots.F_ACTIVE_SIZE]:
            points.append((values[slots.F_LEO], time.time_ns() // 1_000_000))
        if timestamp == LATEST:
            chosen = points
        elif timestamp == EARLIEST:
            chosen = points[:1]
        else:
            chosen = [point for point in points if point[1] <= timestamp]
        return list(dict.fromkeys(min(offset, limit) for offset, _ in reversed(chosen)))


def _written_ms(partition: Partition, base: int) -> int:
    path = os.path.join(partition.directory, names.offset_name(base) + names.LOG)
    return os.stat(path).st_mtime_ns // 1_000_000


API = Api(key=2, name="ListOffsets", versions=(0, 11), handle=handle)
