"""WriteTxnMarkers (key 27), versions 0 and 1: another broker's coordinator ends transactions in partitions of this one.

This broker's own coordinator writes its markers directly. Answered when all markers have an outcome; the sender retries
failed ones. In `__consumer_offsets` the transaction's offsets are then committed or dropped. A request is refused if
this process knows that its coordinator has replaced the connection since: such late markers would end the producers'
next transactions (broker.coordinator.broker_channels). A marker with an id or epoch below 0, which no producer has, is
refused too.

Only brokers may commit (cluster.configs.admitted), administrators may also abort (`kafka-transactions.sh abort`): with
an authorizer these need ClusterAction and Alter on the cluster. An administrator's abort must end an open
transaction, with the epochs from DescribeProducers, in a few partitions at a time: each one takes the partition's lock,
and a log line if it is refused. Other senders get an error on which coordinators retry: Apache's lets a transaction
hang at CLUSTER_AUTHORIZATION_FAILED, and the address of a broker may be new. The brokers are looked up again at once,
so that the retry finds the address known (workers.dispatch.unregistered_brokers).
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Sequence
from functools import partial
from typing import Any

from odradek.groups.offsets import TopicPartition
from odradek.protocol.errors import Error
from odradek.protocol.library import message_class
from odradek.workers.dispatch.api import COORDINATOR, Api, pieces
from odradek.workers.dispatch.context import Context
from odradek.workers.dispatch.coordination import UNKNOWN, Coordinator, TxnMarkerEntry, exists

Outcome = dict[TopicPartition, Error]
GIVEN_UP = Error.NOT_LEADER_OR_FOLLOWER  # the coordinator has sent the request again since
NOT_A_BROKER = Error.NOT_LEADER_OR_FOLLOWER
MOST_OF_ADMINISTRATORS = 100  # partitions in an administrator's request; the tool names one

log = logging.getLogger(__name__)


def handle(coordinator: Coordinator, request: Any, context: Context) -> Iterator[None]:
    """See above. Many markers take many steps (broker.process.steps)."""
    is_broker = context.is_broker(coordinator.snapshot.admitted)
    if is_broker and not coordinator.admits_markers(context.client_id):
        late = [dict.fromkeys(_entry(one).partitions, GIVEN_UP) for one in request.markers]
        yield from _answering(request, late, context)
        return
    outcomes: list[Outcome | None] = [None] * len(request.markers)
    left, refused = len(outcomes), 0
    named = sum(len(topic.partition_indexes) for one in request.markers for topic in one.topics)

    def done(place: int, outcome: Outcome) -> None:
        nonlocal left
        outcomes[place] = outcome
        left -= 1
        if not is_broker and NOT_A_BROKER in outcome.values():
            coordinator.look_for_brokers()
        if not left:
            context.finish(_answering(request, outcomes, context), len(outcomes) + named)

    for place, marker in enumerate(request.markers):
        entry = _entry(marker)._replace(only_open=not is_broker)
        if error := _negative_id(marker):
            done(place, (yield from _refusals(coordinator, list(entry.partitions), error)))
        elif is_broker or (named <= MOST_OF_ADMINISTRATORS and not entry.commit):
            coordinator.write_markers(entry, partial(done, place))
        else:
            refused += 1
            done(place, dict.fromkeys(entry.partitions, NOT_A_BROKER))
        yield
    if refused:
        log.warning("rejected %d markers from %s: not the address of a registered broker", refused, context.client_host)
    if not outcomes:
        yield from _answering(request, [], context)


def _refusals(
    coordinator: Coordinator, partitions: list[TopicPartition], error: Error
) -> Generator[None, None, Outcome]:  # fmt: skip
    refused: Outcome = {}
    for some in pieces(partitions):
        refused |= {tp: error if exists(coordinator.snapshot, tp) else UNKNOWN for tp in some}
        yield
    return refused


def _negative_id(marker: Any) -> Error:
    """The error of a marker with a producer id or epoch that no producer has; else NONE."""
    if marker.producer_id < 0:
        return Error.INVALID_PRODUCER_ID_MAPPING
    return Error.INVALID_PRODUCER_EPOCH if marker.producer_epoch < 0 else Error.NONE


def _entry(marker: Any) -> TxnMarkerEntry:
    partitions = frozenset((topic.name, index) for topic in marker.topics for index in topic.partition_indexes)
    return TxnMarkerEntry(
        marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.transaction_result, partitions
    )


def _answering(request: Any, outcomes: Sequence[Outcome | None], context: Context) -> Iterator[None]:
    response = message_class("WriteTxnMarkersResponse")
    row = response.WritableTxnMarkerResult
    markers = []
    for marker, outcome in zip(request.markers, outcomes, strict=True):
        if topics := (yield from _topics(row.WritableTxnMarkerTopicResult, marker, outcome or {})):
            markers.append(row(producer_id=marker.producer_id, topics=topics))
        yield
    context.reply(response(markers=markers))


def _topics(topic_class: Any, marker: Any, outcome: Outcome) -> Generator[None, None, list[Any]]:
    partition_class = topic_class.WritableTxnMarkerPartitionResult
    topics = []
    for topic in marker.topics:
        partitions: list[Any] = []
        for some in pieces(topic.partition_indexes):
            partitions += [partition_class(partition_index=at, error_code=outcome[topic.name, at]) for at in some]
            yield
        if partitions:
            topics.append(topic_class(name=topic.name, partitions=partitions))
    return topics


API = Api(key=27, name="WriteTxnMarkers", versions=(0, 1), runs_in=COORDINATOR, handle=handle)
