"""DescribeProducers (key 61), version 0: who wrote to a partition lately, and whose transaction is open (KIP-664).

Read from the partition's producer table under its lock; the answer waits while another process has it. A
partition that is named twice is told once, however many producers it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.ipc import slots
from odradek.ipc.producers import ProducerEntry
from odradek.protocol import errors
from odradek.storage.partition import Busy, Gone
from odradek.workers.api import Api, message_class
from odradek.workers.context import Context
from odradek.workers.leadership import elsewhere, refusal

if TYPE_CHECKING:
    from odradek.workers.worker import Worker

Found = tuple[int, list[ProducerEntry]]


class _Work:
    """The partitions of one request; tried again every millisecond until none is busy."""

    def __init__(self, worker: Worker, request: Any, context: Context) -> None:
        self._worker = worker
        self._context = context
        self._topics = request.topics
        self._left = list({(topic.name, index): None for topic in request.topics for index in topic.partition_indexes})
        self._found: dict[tuple[str, int], Found] = {}

    def run(self) -> bool:
        """Look where that can be done now; answers and returns True when all is there."""
        left, self._left = self._left, []
        for topic, index in left:
            try:
                self._found[topic, index] = self._look(topic, index)
            except Busy:
                self._left.append((topic, index))
        if self._left:
            return False
        self._context.reply(_response(self._topics, self._found))
        return True

    def _look(self, topic: str, index: int) -> Found:
        partition = self._worker.partition_of(topic.encode(), index, False)
        if partition is None:
            return elsewhere(self._worker.snapshot, topic.encode(), index, False), []
        error = refusal(partition, partition.slot.read(), -1)
        if error:
            return error, []
        try:
            with partition.locked() as values:
                table = partition.producers.table(values[slots.F_PSTATE_GEN])
                return errors.NONE, list(table.entries()) if table is not None else []
        except Gone:
            return errors.UNKNOWN_TOPIC_OR_PARTITION, []
        except OSError:
            return errors.KAFKA_STORAGE_ERROR, []


def _response(topics: Any, found: dict[tuple[str, int], Found]) -> Any:
    response = message_class("DescribeProducersResponse")
    topic_class = response.TopicResponse
    partition_class = topic_class.PartitionResponse

    def partition(name: str, index: int) -> Any:
        error, entries = found[name, index]
        producers = [_producer(partition_class.ProducerState, entry) for entry in entries]
        return partition_class(partition_index=index, error_code=error, error_message=None, active_producers=producers)

    asked: dict[str, dict[int, None]] = {}
    for topic in topics:
        asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    rows = [topic_class(name=name, partitions=[partition(name, index) for index in asked[name]]) for name in asked]
    return response(throttle_time_ms=0, topics=rows)


def _producer(row: Any, entry: ProducerEntry) -> Any:
    return row(
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.batches[-1].last_sequence if entry.batches else -1,
        last_timestamp=entry.timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.txn_first,
    )


def handle(worker: Worker, request: Any, context: Context) -> None:
    """Answers once every partition has been looked at."""
    work = _Work(worker, request, context)
    if not work.run():
        worker.again(work.run)


API = Api(key=61, name="DescribeProducers", versions=(0, 0), handle=handle)
