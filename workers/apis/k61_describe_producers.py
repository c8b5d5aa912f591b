"""DescribeProducers (key 61), version 0: a partition's recent producers and their open transactions (KIP-664).

Read from a copy of the partition's producer table, which is made under its lock; the answer waits while another process
has the lock. A partition that is named twice is answered once: it may have many producers.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

from odradek.cluster.rules import topicnames
from odradek.ipc import slots
from odradek.ipc.producers import ProducerEntry, ProducerTable
from odradek.protocol import errors
from odradek.protocol.library import message_class
from odradek.storage.log.partition import LockNotAvailable, PartitionRemoved
from odradek.workers.dispatch import retry_busy
from odradek.workers.dispatch.api import Api
from odradek.workers.dispatch.authorization import READ, TOPIC
from odradek.workers.dispatch.context import Context
from odradek.workers.dispatch.partition_check import elsewhere, refusal
from odradek.workers.fetch.fetching import storage_failed

if TYPE_CHECKING:
    from odradek.workers.dispatch.services import Services

Place = tuple[str, int]
Found = tuple[int, ProducerTable | None]


def handle(services: Services, request: Any, context: Context) -> Iterator[object]:
    """Answers once every partition has been read; each is a step (Services.begin), and so is each producer."""
    found: dict[Place, Found] = {}

    allowed = {topic.name: _is_allowed(context, topic.name) for topic in request.topics}

    def look(place: Place) -> None:
        found[place] = _look(services, *place) if allowed[place[0]] else (errors.TOPIC_AUTHORIZATION_FAILED, None)

    requested = dict.fromkeys((topic.name, index) for topic in request.topics for index in topic.partition_indexes)
    topic_class = message_class("DescribeProducersResponse").TopicResponse
    topics = {topic.name: topic_class(name=topic.name, partitions=[]) for topic in request.topics}
    for place in requested:
        yield from retry_busy.each((place,), look)
        row = yield from _partition(topic_class.PartitionResponse, place[1], found.pop(place))
        topics[place[0]].partitions.append(row)
    context.reply(message_class("DescribeProducersResponse")(throttle_time_ms=0, topics=list(topics.values())))


def _is_allowed(context: Context, topic: str) -> bool:
    """Whether the client may read the topic; an invalid name has another error."""
    return topicnames.problem(topic) is not None or context.allows(READ, TOPIC, topic)


def _look(services: Services, topic: str, index: int) -> Found:
    partition = services.partition_of(topic.encode(), index, False)
    if partition is None:
        return elsewhere(services.snapshot, topic.encode(), index, False), None
    seen = partition.slot.read()
    error = refusal(partition, seen, -1)
    if error:
        return error, None
    try:
        with partition.locked() as values:
            table = partition.producers.table(values[slots.F_PSTATE_GEN])
            return errors.NONE, None if table is None else table.copied()
    except LockNotAvailable:
        raise
    except PartitionRemoved:
        return errors.UNKNOWN_TOPIC_OR_PARTITION, None
    except Exception as problem:
        storage_failed(partition, seen, problem)
        return errors.KAFKA_STORAGE_ERROR, None


def _partition(partition_class: Any, index: int, found: Found) -> Generator[None, None, Any]:
    error, table = found
    producers = []
    for entry in table.entries() if table is not None else ():
        producers.append(_producer(partition_class.ProducerState, entry))
        yield
    return partition_class(partition_index=index, error_code=error, error_message=None, active_producers=producers)


def _producer(row: Any, entry: ProducerEntry) -> Any:
    return row(
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.batches[-1].last_sequence if entry.batches else -1,
        last_timestamp=entry.timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.txn_first,
    )


API = Api(key=61, name="DescribeProducers", versions=(0, 0), handle=handle)
