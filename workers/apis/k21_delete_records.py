"""DeleteRecords (key 21), versions 0 to 2: set the log start of a partition to an offset; -1 means the high watermark.

Segments wholly below it are deleted at once (storage.log.trim). OFFSET_OUT_OF_RANGE above the high watermark;
POLICY_VIOLATION for topics that are only compacted, INVALID_TOPIC_EXCEPTION for internal ones, as in Kafka. The answer
waits while another process has a partition's lock, and then, up to the request's timeout, until the live followers
have deleted the records too. The low watermark is the lowest log start of leader and live followers.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from odradek.ipc import replicas, slots
from odradek.protocol import errors
from odradek.protocol.library import message_class
from odradek.storage.log import trim
from odradek.storage.log.partition import Partition, PartitionRemoved
from odradek.workers.dispatch import retry_busy
from odradek.workers.dispatch.api import Api
from odradek.workers.dispatch.authorization import DELETE, TOPIC
from odradek.workers.dispatch.context import Context
from odradek.workers.dispatch.partition_check import elsewhere, refusal
from odradek.workers.fetch.fetching import storage_failed

if TYPE_CHECKING:
    from odradek.cluster.metadata.snapshot import Snapshot
    from odradek.ipc.slots import Slot
    from odradek.workers.dispatch.services import Services

HIGH_WATERMARK = -1


Place = tuple[str, int]
Outcome = tuple[int, int]  # low watermark, error


def handle(services: Services, request: Any, context: Context) -> Iterator[object]:
    """Delete in the local logs, each partition a step (Services.begin), and answer once all live replicas are done."""
    offsets = {(topic.name, part.partition_index): part.offset for topic in request.topics for part in topic.partitions}
    done: dict[Place, Outcome] = {}

    allowed = {topic.name: context.allows(DELETE, TOPIC, topic.name) for topic in request.topics}

    def delete(place: Place) -> None:
        denied = -1, errors.TOPIC_AUTHORIZATION_FAILED
        done[place] = _delete(services, *place, offsets[place]) if allowed[place[0]] else denied

    yield from retry_busy.each(offsets, delete)

    wait = _DelayedDeleteRecords(services, done, request.timeout_ms, context, _answering(offsets, done, context))
    if wait.try_complete():
        wait.answer()
    else:
        services.purgatory.watch(wait)


def _delete(services: Services, topic: str, index: int, offset: int) -> Outcome:
    partition = services.partition_of(topic.encode(), index, False)
    if partition is None:
        return -1, elsewhere(services.snapshot, topic.encode(), index, False)
    if services.snapshot.topics[topic].internal:
        return -1, errors.INVALID_TOPIC_EXCEPTION
    error = refusal(partition, partition.slot.read(), -1)
    if error:
        return -1, error
    if "delete" not in partition.config.cleanup_policy:  # an empty policy keeps everything, as in Kafka
        return -1, errors.POLICY_VIOLATION
    return delete_below(partition, offset)


def _answering(places: Iterable[Place], done: dict[Place, Outcome], context: Context) -> Iterator[None]:
    response = message_class("DeleteRecordsResponse")
    topic_class = response.DeleteRecordsTopicResult
    topics: dict[str, list[Any]] = {}
    for topic, index in places:
        low, error = done[topic, index]
        part = topic_class.DeleteRecordsPartitionResult(partition_index=index, low_watermark=low, error_code=error)
        topics.setdefault(topic, []).append(part)
        yield
    rows = [topic_class(name=name, partitions=parts) for name, parts in topics.items()]
    context.reply(response(throttle_time_ms=0, topics=rows))


class _DelayedDeleteRecords:
    """Waits for followers that still have deleted records (workers.dispatch.purgatory.DelayedOperation).

    `done` has each partition's log start, which the followers must reach; it becomes the low watermark.
    """

    waits_for = slots.ANYTHING

    def __init__(
        self, services: Services, done: dict[Place, Outcome], timeout_ms: int, context: Context,
        answering: Iterator[None],
    ) -> None:  # fmt: skip
        self._services = services
        self._done = done
        self._left = {place: low for place, (low, error) in done.items() if not error}
        self._context = context
        self._answering = answering
        self.deadline = time.monotonic() + timeout_ms / 1000
        self.finished = self.queued = False
        self.slots = self.find_slots()

    def find_slots(self) -> list[Slot]:
        found = (self._services.partition_of(topic.encode(), index, False) for topic, index in self._left)
        return [partition.slot for partition in found if partition is not None]

    def answer(self) -> None:
        self._context.begin(self._answering)

    def fail(self, fault: Exception) -> None:
        self._context.begin(_raised(fault))

    def try_complete(self) -> bool:
        """Update the outcomes; returns whether no partition is left to wait for."""
        for (topic, index), target in list(self._left.items()):
            partition = self._services.partition_of(topic.encode(), index, False)
            low, error = -1, elsewhere(self._services.snapshot, topic.encode(), index, False)
            if partition is not None:
                low, error = low_watermark(partition, self._services.snapshot)
            self._done[topic, index] = low, error
            if error or low >= target:
                del self._left[topic, index]
        return not self._left

    def expire(self) -> None:
        """The timeout has expired: answer with what there is."""
        self.try_complete()
        for place in self._left:
            self._done[place] = self._done[place][0], errors.REQUEST_TIMED_OUT
        self.answer()


def _raised(fault: Exception) -> Iterator[None]:
    yield
    raise fault


def low_watermark(partition: Partition, snapshot: Snapshot) -> Outcome:
    """The lowest log start of the leader, this broker, and the followers on live brokers."""
    values = partition.slot.read()
    error = refusal(partition, values, -1)
    if error:
        return -1, error
    starts = [one.log_start for one in replicas.read(partition.slot) if one.broker in snapshot.brokers]
    return min(values[slots.F_LOG_START], *starts) if starts else values[slots.F_LOG_START], errors.NONE


def delete_below(partition: Partition, offset: int) -> tuple[int, int]:
    """Make `offset` the log start: (log start, error). Raises LockNotAvailable when another process has the lock."""
    try:
        with partition.locked() as values:
            error = refusal(partition, tuple(values), -1)  # may be a follower since the check without the lock
            if error:
                return -1, error
            target = values[slots.F_HW] if offset == HIGH_WATERMARK else offset
            if not 0 <= target <= values[slots.F_HW]:
                return -1, errors.OFFSET_OUT_OF_RANGE
            trim.advance(partition, values, target)
            return values[slots.F_LOG_START], errors.NONE
    except PartitionRemoved:
        return -1, errors.UNKNOWN_TOPIC_OR_PARTITION
    except OSError as problem:
        storage_failed(partition, partition.slot.read(), problem)
        return -1, errors.KAFKA_STORAGE_ERROR


API = Api(key=21, name="DeleteRecords", versions=(0, 2), handle=handle)
