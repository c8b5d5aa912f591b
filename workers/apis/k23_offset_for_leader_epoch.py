"""OffsetForLeaderEpoch (key 23), versions 0 to 4: where a leader epoch ended (KIP-101, KIP-320).

Consumers use it to notice that the log was truncated under them. Answered from the partition's epoch checkpoint;
the newest epoch ends at the log end, where the leader's own begins while nothing is written in it.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any

from odradek.ipc import slots
from odradek.protocol import errors
from odradek.storage.checkpoints import CheckpointError
from odradek.workers import leader_epochs
from odradek.workers.api import SLICE_S, Api, message_class
from odradek.workers.context import Context
from odradek.workers.leadership import elsewhere, refusal

if TYPE_CHECKING:
    from odradek.workers.worker import Worker


class _Work:
    """The partitions of one request, for a slice of time at once: each reads a file."""

    def __init__(self, worker: Worker, request: Any, context: Context) -> None:
        self._worker = worker
        self._context = context
        self._topics: list[tuple[str, list[dict[str, int]]]] = [(topic.topic, []) for topic in request.topics]
        self._left = deque(
            (topic.topic, part, rows)
            for topic, (_, rows) in zip(request.topics, self._topics, strict=True)
            for part in topic.partitions
        )

    def run(self) -> bool:
        """Go on; returns True when it is answered."""
        until = time.monotonic() + SLICE_S
        while self._left:
            topic, part, rows = self._left.popleft()
            rows.append(_answer(self._worker, topic, part))
            if self._left and time.monotonic() >= until:
                return False
        self._context.reply(self._response())
        return True

    def _response(self) -> Any:
        response = message_class("OffsetForLeaderEpochResponse")
        topic_class = response.OffsetForLeaderTopicResult
        topics = [
            topic_class(topic=name, partitions=[topic_class.EpochEndOffset(**row) for row in rows])
            for name, rows in self._topics
        ]
        return response(throttle_time_ms=0, topics=topics)


def handle(worker: Worker, request: Any, context: Context) -> None:
    """One answer for each partition asked for."""
    work = _Work(worker, request, context)
    if not work.run():
        worker.again(work.run)


def _answer(worker: Worker, topic: str, part: Any) -> dict[str, int]:
    unknown = {"partition": part.partition, "leader_epoch": -1, "end_offset": -1}
    partition = worker.partition_of(topic.encode(), part.partition, False)
    if partition is None:
        return {"error_code": elsewhere(worker.snapshot, topic.encode(), part.partition, False), **unknown}
    values = partition.slot.read()
    error = refusal(partition, values, part.current_leader_epoch)
    if error:
        return {"error_code": error, **unknown}
    try:
        cache = leader_epochs.of(partition, values)
    except (OSError, CheckpointError):
        return {"error_code": errors.KAFKA_STORAGE_ERROR, **unknown}
    epoch, end = cache.end_offset(part.leader_epoch, values[slots.F_LEO])
    return {"error_code": errors.NONE, "partition": part.partition, "leader_epoch": epoch, "end_offset": end}


API = Api(key=23, name="OffsetForLeaderEpoch", versions=(0, 4), handle=handle)
