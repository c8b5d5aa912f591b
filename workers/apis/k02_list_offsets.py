"""ListOffsets (key 2), versions 0 to 11: the log's ends, and offsets by timestamp.

Timestamps -1 latest (high watermark; last stable offset with read_committed), -2 earliest, -3 that of the largest
timestamp (KIP-734, v7), -4 earliest local (v8, the same as -2: there is no tiered storage), -5 and -6 of tiered
storage (v9, v11: none). v0 answers with a list of segment boundaries instead (Kafka's legacyFetchOffsetsBefore);
a segment counts by when its file was last written.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from odradek.ipc import slots
from odradek.protocol import errors
from odradek.storage import names, times
from odradek.workers.api import Api, message_class
from odradek.workers.context import Context
from odradek.workers.leadership import elsewhere, refusal

if TYPE_CHECKING:
    from odradek.storage.partition import Partition
    from odradek.workers.worker import Worker

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL = -1, -2, -3, -4
_TIERED = (-5, -6)
_READ_COMMITTED = 1


def handle(worker: Worker, request: Any, context: Context) -> Any:
    """One answer for each partition asked for."""
    response = message_class("ListOffsetsResponse")
    topics = []
    for topic in request.topics:
        topic_class = response.ListOffsetsTopicResponse
        part_class = topic_class.ListOffsetsPartitionResponse
        parts = [part_class(**_answer(worker, topic.name, part, request, context)) for part in topic.partitions]
        topics.append(topic_class(name=topic.name, partitions=parts))
    return response(throttle_time_ms=0, topics=topics)


def _answer(worker: Worker, topic: str, part: Any, request: Any, context: Context) -> dict[str, Any]:
    index = part.partition_index
    partition = worker.partition_of(topic.encode(), index, False)
    if partition is None:
        return _error(index, elsewhere(worker.snapshot, topic.encode(), index, False), context.version)
    values = partition.slot.read()
    error = refusal(partition, values, part.current_leader_epoch)
    if error:
        return _error(index, error, context.version)
    try:
        if context.version == 0:
            found = _boundaries(partition, values, part.timestamp)[: max(0, part.max_num_offsets)]
            return {"partition_index": index, "error_code": errors.NONE, "old_style_offsets": found}
        return {"partition_index": index, "error_code": errors.NONE, **_find(partition, values, part, request)}
    except OSError:
        return _error(index, errors.KAFKA_STORAGE_ERROR, context.version)


def _error(index: int, error: int, version: int) -> dict[str, Any]:
    found: dict[str, Any] = (
        {"old_style_offsets": []} if version == 0 else {"timestamp": -1, "offset": -1, "leader_epoch": -1}
    )
    return {"partition_index": index, "error_code": error, **found}


def _find(partition: Partition, values: tuple[int, ...], part: Any, request: Any) -> dict[str, int]:
    epoch = values[slots.F_LEADER_EPOCH]
    hw, unstable = values[slots.F_HW], values[slots.F_UNSTABLE]
    committed = request.isolation_level == _READ_COMMITTED
    limit = min(hw, unstable) if committed and unstable >= 0 else hw
    wanted = part.timestamp
    if wanted == LATEST:
        return {"timestamp": -1, "offset": limit, "leader_epoch": epoch}
    if wanted in (EARLIEST, EARLIEST_LOCAL):
        return {"timestamp": -1, "offset": values[slots.F_LOG_START], "leader_epoch": epoch}
    if wanted in _TIERED:
        return {"timestamp": -1, "offset": -1, "leader_epoch": -1}
    found = (
        times.newest(partition, values, limit)
        if wanted == MAX_TIMESTAMP
        else times.first_not_before(partition, values, wanted, limit)
    )
    if found is None:
        return {"timestamp": -1, "offset": -1, "leader_epoch": -1}
    return {"timestamp": found.timestamp, "offset": found.offset, "leader_epoch": found.leader_epoch}


def _boundaries(partition: Partition, values: tuple[int, ...], timestamp: int) -> list[int]:
    """v0: segment starts written before `timestamp`, newest first, the log end counting as one."""
    bases = partition.bases(values[slots.F_ACTIVE_BASE], values[slots.F_GENERATION])
    log_start, hw = values[slots.F_LOG_START], values[slots.F_HW]
    points = [(max(base, log_start), _written_ms(partition, base)) for base in bases]
    if values[slots.F_ACTIVE_SIZE]:
        points.append((hw, time.time_ns() // 1_000_000))
    if timestamp == LATEST:
        chosen = points
    elif timestamp == EARLIEST:
        chosen = points[:1]
    else:
        chosen = [point for point in points if point[1] <= timestamp]
    return [offset for offset, _ in reversed(chosen)]


def _written_ms(partition: Partition, base: int) -> int:
    path = os.path.join(partition.directory, names.offset_name(base) + names.LOG)
    return os.stat(path).st_mtime_ns // 1_000_000


API = Api(key=2, name="ListOffsets", versions=(0, 11), handle=handle)
