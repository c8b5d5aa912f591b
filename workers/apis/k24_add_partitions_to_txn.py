"""AddPartitionsToTxn (key 24), versions 0 to 5: partitions a producer is about to write to in its transaction (KIP-98).

All are added or none: with one that does not exist, or is an internal topic's and asked for by a client, the others
get OPERATION_NOT_ATTEMPTED. v2+ know PRODUCER_FENCED.
v4+ are for brokers and name many transactions, to be added to or only verified (KIP-890). They are served to clients
as well, under the rules of clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from odradek.cluster import topicnames
from odradek.groups.errors import Error
from odradek.groups.offsets import TopicPartition
from odradek.groups.transactions.events import Producer
from odradek.workers.api import COORDINATOR, Api, message_class
from odradek.workers.context import Context
from odradek.workers.coordination import UNKNOWN, Coordinator, exists, for_old_producers

FENCED, MANY, ABORTABLE = 2, 4, 5

Errors = dict[TopicPartition, Error]


def handle(coordinator: Coordinator, request: Any, context: Context) -> Any:
    """Answered when it is in `__transaction_state`."""
    if context.version >= MANY:
        return _many(coordinator, request, context)
    producer = Producer(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
    )

    def answer(errors: Errors, empty: Iterable[str] = ()) -> None:
        said = {tp: for_old_producers(error, context.version, FENCED) for tp, error in errors.items()}
        response = message_class("AddPartitionsToTxnResponse")
        topics = _topics(said, response.AddPartitionsToTxnTopicResult, empty)
        context.reply(response(results_by_topic_v3_and_below=topics))

    topics = request.v3_and_below_topics
    _add(coordinator, producer, topics, answer, _internal(topics))
    return None


def _internal(topics: Any) -> Errors:
    """The errors of those that clients do not write to."""
    return {tp: Error.TOPIC_AUTHORIZATION_FAILED for tp in _partitions(topics) if tp[0] in topicnames.INTERNAL}


def _partitions(topics: Any) -> list[TopicPartition]:
    return [(topic.name, index) for topic in topics for index in topic.partitions]


def _refused(coordinator: Coordinator, wanted: list[TopicPartition], internal: Errors | None = None) -> Errors:
    """The errors of all of them where one does not exist, or is of `internal`."""
    missing = {tp: UNKNOWN for tp in wanted if not exists(coordinator.snapshot, tp)}
    wrong = {**missing, **(internal or {})}
    return {tp: wrong.get(tp, Error.OPERATION_NOT_ATTEMPTED) for tp in wanted} if wrong else {}


def _add(
    coordinator: Coordinator,
    producer: Producer,
    topics: Any,
    answer: Callable[..., None],
    internal: Errors | None = None,
) -> None:
    """`answer(errors, topics that are named though none of their partitions is wanted)`."""
    wanted = _partitions(topics)
    if errors := _refused(coordinator, wanted, internal):
        answer(errors)
        return

    def added(error: Error) -> None:
        answer(dict.fromkeys(wanted, error), [topic.name for topic in topics if not topic.partitions])

    coordinator.transactions.add(producer, wanted, added, coordinator.now)


def _topics(errors: Errors, topic_class: Any, empty: Iterable[str] = ()) -> list[Any]:
    """Each topic once, with each of its partitions once, however often they were asked for."""
    partition_class = topic_class.AddPartitionsToTxnPartitionResult
    rows: dict[str, list[Any]] = {name: [] for name in empty}
    for (name, index), error in errors.items():
        rows.setdefault(name, []).append(partition_class(partition_index=index, partition_error_code=error))
    return [topic_class(name=name, results_by_partition=found) for name, found in rows.items()]


def _many(coordinator: Coordinator, request: Any, context: Context) -> Any:
    response = message_class("AddPartitionsToTxnResponse")
    asked = request.transactions
    is_broker = coordinator.snapshot.admitted.takes(context.listener, context.client_host)
    results: dict[int, Any] = {}

    def answer(place: int, transaction: Any, errors: Errors, empty: Iterable[str] = ()) -> None:
        row = response.AddPartitionsToTxnResult
        topics = _topics(errors, row.AddPartitionsToTxnTopicResult, empty)
        results[place] = row(transactional_id=transaction.transactional_id, topic_results=topics)
        if len(results) == len(asked):
            rows = [results[at] for at in range(len(asked))]
            context.reply(response(error_code=Error.NONE, results_by_transaction=rows))

    for place, transaction in enumerate(asked):
        producer = Producer(transaction.transactional_id, transaction.producer_id, transaction.producer_epoch)
        if transaction.verify_only:
            wanted = _partitions(transaction.topics)
            answer(place, transaction, _verified(coordinator, producer, wanted, context.version))
        else:
            internal = {} if is_broker else _internal(transaction.topics)
            _add(coordinator, producer, transaction.topics, partial(answer, place, transaction), internal)
    return None if asked else response(error_code=Error.NONE, results_by_transaction=[])


def _verified(coordinator: Coordinator, producer: Producer, wanted: list[TopicPartition], version: int) -> Errors:
    """v4 does not know TRANSACTION_ABORTABLE."""
    errors = _refused(coordinator, wanted) or coordinator.transactions.verify(producer, wanted)
    if version >= ABORTABLE:
        return errors
    return {tp: Error.INVALID_TXN_STATE if e is Error.TRANSACTION_ABORTABLE else e for tp, e in errors.items()}


API = Api(key=24, name="AddPartitionsToTxn", versions=(0, 5), runs_in=COORDINATOR, handle=handle)
