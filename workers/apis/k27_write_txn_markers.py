"""WriteTxnMarkers (key 27), versions 0 and 1: another broker's coordinator ends transactions in partitions of ours.

Our own coordinator writes its markers without asking anyone. Answered when all markers have an outcome; what failed is
the asker's to try again. In `__consumer_offsets` the transaction's offsets count from then on, or are gone. A request
of a connection that its coordinator has replaced since is refused, as far as this process knows: so late, its markers
would end the producers' next transactions (broker.coordinator_links). So is a marker of an id or epoch below 0, which
no producer has.

Commits are taken from brokers alone (cluster.admitted), aborts from administrators too (`kafka-transactions.sh abort`):
Kafka wants ClusterAction or Alter on the cluster, and there are no ACLs yet. An administrator's abort must end a
transaction that is open, with the epochs that DescribeProducers tells of it, in a few partitions at a time: each is a
turn of its lock, and a line of the log if it is refused. Others get an error on which coordinators
retry: Apache's lets a transaction hang at CLUSTER_AUTHORIZATION_FAILED, and the address of a broker may be new. It is
looked up again at once, so that the retry finds it known (workers.strangers).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from odradek.groups.errors import Error
from odradek.groups.offsets import TopicPartition
from odradek.workers.api import COORDINATOR, Api, message_class
from odradek.workers.context import Context
from odradek.workers.coordination import UNKNOWN, Coordinator, Wanted, exists

Outcome = dict[TopicPartition, Error]
GIVEN_UP = Error.NOT_LEADER_OR_FOLLOWER  # its coordinator has asked again since
NOT_A_BROKER = Error.NOT_LEADER_OR_FOLLOWER
MOST_OF_ADMINISTRATORS = 100  # partitions in one request; the tool names one

log = logging.getLogger(__name__)


def handle(coordinator: Coordinator, request: Any, context: Context) -> Any:
    """See above."""
    is_broker = coordinator.snapshot.admitted.takes(context.listener, context.client_host)
    if is_broker and not coordinator.admits_markers(context.client_id):
        return _response(request, [dict.fromkeys(_wanted(one).partitions, GIVEN_UP) for one in request.markers])
    outcomes: list[Outcome | None] = [None] * len(request.markers)
    left, refused = len(outcomes), 0
    few = sum(len(topic.partition_indexes) for one in request.markers for topic in one.topics) <= MOST_OF_ADMINISTRATORS

    def done(place: int, outcome: Outcome) -> None:
        nonlocal left
        outcomes[place] = outcome
        left -= 1
        if not is_broker and NOT_A_BROKER in outcome.values():
            coordinator.look_for_brokers()
        if not left:
            context.reply(_response(request, outcomes))

    for place, marker in enumerate(request.markers):
        wanted = _wanted(marker)._replace(only_open=not is_broker)
        if error := _nobody(marker):
            done(place, {tp: error if exists(coordinator.snapshot, tp) else UNKNOWN for tp in wanted.partitions})
        elif is_broker or (few and not wanted.commit):
            coordinator.write_markers(wanted, partial(done, place))
        else:
            refused += 1
            done(place, dict.fromkeys(wanted.partitions, NOT_A_BROKER))
    if refused:
        log.warning("%d markers from %s are refused: no registered broker's address", refused, context.client_host)
    return None if outcomes else _response(request, [])


def _nobody(marker: Any) -> Error:
    """Why a marker is of no producer: batches of such ids and epochs are nobody's. NONE when it is of one."""
    if marker.producer_id < 0:
        return Error.INVALID_PRODUCER_ID_MAPPING
    return Error.INVALID_PRODUCER_EPOCH if marker.producer_epoch < 0 else Error.NONE


def _wanted(marker: Any) -> Wanted:
    partitions = frozenset((topic.name, index) for topic in marker.topics for index in topic.partition_indexes)
    return Wanted(
        marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.transaction_result, partitions
    )


def _response(request: Any, outcomes: list[Outcome | None]) -> Any:
    response = message_class("WriteTxnMarkersResponse")
    row = response.WritableTxnMarkerResult
    topic_class = row.WritableTxnMarkerTopicResult
    partition_class = topic_class.WritableTxnMarkerPartitionResult

    def topics(marker: Any, outcome: Outcome) -> list[Any]:
        return [
            topic_class(
                name=topic.name,
                partitions=[
                    partition_class(partition_index=index, error_code=outcome[topic.name, index])
                    for index in topic.partition_indexes
                ],
            )
            for topic in marker.topics
            if topic.partition_indexes
        ]

    markers = [
        (marker, topics(marker, outcome or {})) for marker, outcome in zip(request.markers, outcomes, strict=True)
    ]
    return response(markers=[row(producer_id=marker.producer_id, topics=found) for marker, found in markers if found])


API = Api(key=27, name="WriteTxnMarkers", versions=(0, 1), runs_in=COORDINATOR, handle=handle)
