"""AddPartitionsToTxn (key 24), versions 0 to 5: partitions a producer is about to write to in its transaction (KIP-98).

Adds all partitions or none: if one does not exist, or a client names one of an internal topic, the others get
OPERATION_NOT_ATTEMPTED. v2+ have PRODUCER_FENCED.
v4+ are for brokers and name many transactions, to add to or only to verify (KIP-890). Clients may use them as well,
under the rules for clients. Many partitions or transactions take many steps (broker.process.steps); the partitions of
one transaction are added in one step.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from typing import Any

from odradek.cluster.rules import topicnames
from odradek.groups.offsets import TopicPartition
from odradek.groups.transactions.events import Producer
from odradek.protocol.errors import Error
from odradek.protocol.library import message_class
from odradek.workers.dispatch.api import COORDINATOR, Api, pieces
from odradek.workers.dispatch.authorization import TOPIC, TRANSACTIONAL_ID, WRITE
from odradek.workers.dispatch.context import Context
from odradek.workers.dispatch.coordination import UNKNOWN, Coordinator, exists, for_old_producers

FENCED, MANY, ABORTABLE = 2, 4, 5

Errors = dict[TopicPartition, Error]


def handle(coordinator: Coordinator, request: Any, context: Context) -> Iterator[None]:
    """Answers when the partitions are in `__transaction_state`."""
    if context.version >= MANY:
        return _many(coordinator, request, context)
    return _one(coordinator, request, context)


def _one(coordinator: Coordinator, request: Any, context: Context) -> Iterator[None]:
    producer = Producer(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
    )
    response = message_class("AddPartitionsToTxnResponse")

    def answering(errors: Errors, empty: Iterable[str]) -> Iterator[None]:
        answers = {tp: for_old_producers(error, context.version, FENCED) for tp, error in errors.items()}
        topics = yield from _topics(answers, response.AddPartitionsToTxnTopicResult, empty)
        context.reply(response(results_by_topic_v3_and_below=topics))

    def answer(errors: Errors, empty: Iterable[str] = ()) -> None:
        context.finish(answering(errors, empty), len(errors))

    if not context.allows(WRITE, TRANSACTIONAL_ID, producer.transactional_id):
        partitions = yield from _partitions(request.v3_and_below_topics)
        answer(dict.fromkeys(partitions, Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        return
    yield from _add(coordinator, producer, request.v3_and_below_topics, answer, context)


def _partitions(topics: Any) -> Generator[None, None, list[TopicPartition]]:
    found: list[TopicPartition] = []
    for topic in topics:
        for some in pieces(topic.partitions):
            found += [(topic.name, index) for index in some]
            yield
    return found


def _refused(
    coordinator: Coordinator, partitions: list[TopicPartition], client: Context | None = None
) -> Generator[None, None, Errors]:  # fmt: skip
    """The errors of all partitions, if one does not exist or a client names one that it may not write to."""
    wrong: Errors = {}
    for some in pieces(partitions):
        wrong |= {tp: UNKNOWN for tp in some if not exists(coordinator.snapshot, tp)}
        if client is not None:
            wrong |= {tp: Error.TOPIC_AUTHORIZATION_FAILED for tp in some if not _may_write(client, tp[0])}
        yield
    return {tp: wrong.get(tp, Error.OPERATION_NOT_ATTEMPTED) for tp in partitions} if wrong else {}


def _may_write(client: Context, topic: str) -> bool:
    """Whether a client may write to a topic; only the coordinators write to internal ones."""
    return topic not in topicnames.INTERNAL and client.allows(WRITE, TOPIC, topic)


def _add(
    coordinator: Coordinator, producer: Producer, topics: Any, answer: Callable[..., None], client: Context | None
) -> Iterator[None]:  # fmt: skip
    """Add partitions and call `answer(errors, topics that are named without partitions)`."""
    partitions = yield from _partitions(topics)
    if errors := (yield from _refused(coordinator, partitions, client)):
        answer(errors)
        return

    def added(error: Error) -> None:
        answer(dict.fromkeys(partitions, error), [topic.name for topic in topics if not topic.partitions])

    coordinator.transactions.add(producer, partitions, added, coordinator.now)


def _topics(errors: Errors, topic_class: Any, empty: Iterable[str] = ()) -> Generator[None, None, list[Any]]:
    """Each topic once, with each of its partitions once, however often the request names them."""
    partition_class = topic_class.AddPartitionsToTxnPartitionResult
    rows: dict[str, list[Any]] = {name: [] for name in empty}
    for some in pieces(list(errors.items())):
        for (name, index), error in some:
            rows.setdefault(name, []).append(partition_class(partition_index=index, partition_error_code=error))
        yield
    topics: list[Any] = []
    for named in pieces(list(rows.items())):
        topics += [topic_class(name=name, results_by_partition=found) for name, found in named]
        yield
    return topics


def _many(coordinator: Coordinator, request: Any, context: Context) -> Iterator[None]:
    transactions = request.transactions
    is_broker = context.is_broker(coordinator.snapshot.admitted)
    results: dict[int, tuple[Errors, Iterable[str]]] = {}

    def answer(place: int, errors: Errors, empty: Iterable[str] = ()) -> None:
        results[place] = errors, empty
        if len(results) == len(transactions):
            elements = len(transactions) + sum(len(found) for found, _ in results.values())
            context.finish(_answering_many(transactions, results, context), elements)

    for place, transaction in enumerate(transactions):
        producer = Producer(transaction.transactional_id, transaction.producer_id, transaction.producer_epoch)
        if transaction.verify_only:
            partitions = yield from _partitions(transaction.topics)
            answer(place, (yield from _verified(coordinator, producer, partitions, context.version)))
        else:
            client = None if is_broker else context
            yield from _add(coordinator, producer, transaction.topics, partial(answer, place), client)
        yield
    if not transactions:
        yield from _answering_many(transactions, results, context)


def _answering_many(
    transactions: Any, results: dict[int, tuple[Errors, Iterable[str]]], context: Context
) -> Iterator[None]:  # fmt: skip
    response = message_class("AddPartitionsToTxnResponse")
    row = response.AddPartitionsToTxnResult
    rows = []
    for place, transaction in enumerate(transactions):
        topics = yield from _topics(results[place][0], row.AddPartitionsToTxnTopicResult, results[place][1])
        rows.append(row(transactional_id=transaction.transactional_id, topic_results=topics))
        yield
    context.reply(response(error_code=Error.NONE, results_by_transaction=rows))


def _verified(
    coordinator: Coordinator, producer: Producer, partitions: list[TopicPartition], version: int
) -> Generator[None, None, Errors]:  # fmt: skip
    """The outcome of a verification; v4 does not have TRANSACTION_ABORTABLE."""
    errors = (yield from _refused(coordinator, partitions)) or coordinator.transactions.verify(producer, partitions)
    if version >= ABORTABLE:
        return errors
    return {tp: Error.INVALID_TXN_STATE if e is Error.TRANSACTION_ABORTABLE else e for tp, e in errors.items()}


API = Api(key=24, name="AddPartitionsToTxn", versions=(0, 5), runs_in=COORDINATOR, handle=handle)
