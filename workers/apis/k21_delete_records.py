"""DeleteRecords (key 21), versions 0 to 2: make an offset the first of a partition; -1 means the high watermark.

Segments wholly below it are let go at once (storage.trim). OFFSET_OUT_OF_RANGE above the high watermark;
POLICY_VIOLATION for topics that are only compacted, INVALID_TOPIC_EXCEPTION for internal ones, as Kafka has it.
While another process has a partition's lock the answer waits; and then, as long as the request's timeout allows, for
the followers that are there to let go of the records too. The low watermark is the lowest log start of all these.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from odradek.ipc import replicas, slots
from odradek.protocol import errors
from odradek.storage import trim
from odradek.storage.partition import Busy, Gone, Partition
from odradek.workers.api import SLICE_S, Api, message_class
from odradek.workers.context import Context
from odradek.workers.leadership import elsewhere, refusal

if TYPE_CHECKING:
    from odradek.cluster.snapshot import Snapshot
    from odradek.ipc.slots import Slot
    from odradek.workers.worker import Worker

HIGH_WATERMARK = -1
_POLICY_VIOLATION = 44


Place = tuple[str, int]
Outcome = tuple[int, int]  # low watermark, error


class _Work:
    """The partitions of one request, for a slice of time at once; tried again every millisecond until none is busy."""

    def __init__(self, worker: Worker, request: Any, context: Context) -> None:
        self._worker = worker
        self._context = context
        offsets = {(t.name, p.partition_index): p.offset for t in request.topics for p in t.partitions}
        self._left = deque((*place, offset) for place, offset in offsets.items())
        self._done: dict[Place, Outcome] = {}
        self._asked = list(self._left)
        self._timeout_ms = request.timeout_ms

    def run(self) -> bool:
        """Do what can be done now; returns True when all is, here, and answers once it is everywhere."""
        until = time.monotonic() + SLICE_S
        for _ in range(len(self._left)):
            topic, index, offset = self._left.popleft()
            try:
                self._done[(topic, index)] = self._delete(topic, index, offset)
            except Busy:
                self._left.append((topic, index, offset))
            if time.monotonic() >= until:
                break
        if self._left:
            return False
        wait = _Everywhere(self._worker, self._done, self._timeout_ms, lambda: self._context.reply(self._response()))
        if wait.look():
            wait.answer()
        else:
            self._worker.parking.park(wait)
        return True

    def _delete(self, topic: str, index: int, offset: int) -> Outcome:
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


class _Everywhere:
    """Partitions some of whose followers still have what was deleted (workers.parking.Parked).

    `done` has each one's log start, which is what is waited for; it becomes the low watermark.
    """

    waits_for = slots.ANYTHING

    def __init__(self, worker: Worker, done: dict[Place, Outcome], timeout_ms: int, answer: Callable[[], None]) -> None:
        self._worker = worker
        self._done = done
        self._left = {place: low for place, (low, error) in done.items() if not error}
        self.answer = answer
        self.deadline = time.monotonic() + timeout_ms / 1000
        self.finished = self.queued = False
        self.slots = self.find_slots()

    def find_slots(self) -> list[Slot]:
        found = (self._worker.partition_of(topic.encode(), index, False) for topic, index in self._left)
        return [partition.slot for partition in found if partition is not None]

    def look(self) -> bool:
        """Whether none is left to wait for."""
        for (topic, index), wanted in list(self._left.items()):
            partition = self._worker.partition_of(topic.encode(), index, False)
            low, error = -1, elsewhere(self._worker.snapshot, topic.encode(), index, False)
            if partition is not None:
                low, error = low_watermark(partition, self._worker.snapshot)
            self._done[topic, index] = low, error
            if error or low >= wanted:
                del self._left[topic, index]
        return not self._left

    def expire(self) -> None:
        """Time is up."""
        self.look()
        for place in self._left:
            self._done[place] = self._done[place][0], errors.REQUEST_TIMED_OUT
        self.answer()


def low_watermark(partition: Partition, snapshot: Snapshot) -> Outcome:
    """The lowest log start among the leader, which this is, and the followers whose brokers are there."""
    values = partition.slot.read()
    error = refusal(partition, values, -1)
    if error:
        return -1, error
    starts = [one.log_start for one in replicas.read(partition.slot) if one.broker in snapshot.brokers]
    return min(values[slots.F_LOG_START], *starts) if starts else values[slots.F_LOG_START], errors.NONE


def delete_below(partition: Partition, offset: int) -> tuple[int, int]:
    """Make `offset` the log's start: (log start, error). Busy when another process has the lock."""
    try:
        with partition.locked() as values:
            error = refusal(partition, tuple(values), -1)  # it may follow since it was looked at without the lock
            if error:
                return -1, error
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
