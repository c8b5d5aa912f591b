"""DeleteRecords (key 21), versions 0 to 2: make an offset the first of a partition; -1 means the high watermark.

Segments wholly below it are let go at once (storage.trim). OFFSET_OUT_OF_RANGE above the high watermark;
POLICY_VIOLATION for topics that are only compacted, INVALID_TOPIC_EXCEPTION for internal ones, as Kafka has it.
While another process has a partition's lock the answer waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.ipc import slots
from odradek.protocol import errors
from odradek.storage import trim
from odradek.storage.partition import Busy, Gone, Partition
from odradek.workers.api import Api, message_class
from odradek.workers.context import Context
from odradek.workers.leadership import elsewhere, refusal

if TYPE_CHECKING:
    from odradek.workers.worker import Worker

HIGH_WATERMARK = -1
_POLICY_VIOLATION = 44


class _Work:
    """The partitions of one request; tried again every millisecond until none is busy."""

    def __init__(self, worker: Worker, request: Any, context: Context) -> None:
        self._worker = worker
        self._context = context
        self._left = [(t.name, p.partition_index, p.offset) for t in request.topics for p in t.partitions]
        self._done: dict[tuple[str, int], tuple[int, int]] = {}
        self._asked = list(self._left)

    def run(self) -> bool:
        """Do what can be done now; answers and returns True when all is."""
        left, self._left = self._left, []
        for topic, index, offset in left:
            try:
                self._done[(topic, index)] = self._delete(topic, index, offset)
            except Busy:
                self._left.append((topic, index, offset))
        if self._left:
            return False
        self._context.reply(self._response())
        return True

    def _delete(self, topic: str, index: int, offset: int) -> tuple[int, int]:
        """(low watermark, error) of one partition."""
        partition = self._worker.partition_of(topic.encode(), index, False)
        if partition is None:
            return -1, elsewhere(self._worker.snapshot, topic.encode(), index, False)
        if self._worker.snapshot.topics[topic].internal:
            return -1, errors.INVALID_TOPIC_EXCEPTION
        error = refusal(partition, partition.slot.read(), -1)
        if error:
            return -1, error
        if partition.config.cleanup_policy == ("compact",):
            return -1, _POLICY_VIOLATION
        return delete_below(partition, offset)

    def _response(self) -> Any:
        response = message_class("DeleteRecordsResponse")
        topics: dict[str, list[Any]] = {}
        topic_class = response.DeleteRecordsTopicResult
        for topic, index, _ in self._asked:
            low, error = self._done[(topic, index)]
            part = topic_class.DeleteRecordsPartitionResult(partition_index=index, low_watermark=low, error_code=error)
            topics.setdefault(topic, []).append(part)
        return response(
            throttle_time_ms=0, topics=[topic_class(name=name, partitions=parts) for name, parts in topics.items()]
        )


def delete_below(partition: Partition, offset: int) -> tuple[int, int]:
    """Make `offset` the log's start: (log start, error). Busy when another process has the lock."""
    try:
        with partition.locked() as values:
            wanted = values[slots.F_HW] if offset == HIGH_WATERMARK else offset
            if not 0 <= wanted <= values[slots.F_HW]:
                return -1, errors.OFFSET_OUT_OF_RANGE
            trim.advance(partition, values, wanted)
            return values[slots.F_LOG_START], errors.NONE
    except Gone:
        return -1, errors.UNKNOWN_TOPIC_OR_PARTITION
    except OSError:
        return -1, errors.KAFKA_STORAGE_ERROR


def handle(worker: Worker, request: Any, context: Context) -> None:
    """Answers once every partition is done."""
    work = _Work(worker, request, context)
    if not work.run():
        worker.again(work.run)


API = Api(key=21, name="DeleteRecords", versions=(0, 2), handle=handle)
