"""StopReplica (key 5), versions 0 to 4: the elected controller stops replicas, and deletes some of their logs.

Served by members of a cluster on ZooKeeper. Deletion renames the log's directory; its files are removed later.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from odradek.cluster.decisions.broker_request_batch import StopReplica
from odradek.cluster.metadata.view import ControllerTerm
from odradek.protocol import interbroker
from odradek.workers.dispatch.api import CONTROLLER, Api
from odradek.workers.dispatch.context import Context

_ANY_EPOCH = -1


def handle(controller: Any, request: Any, context: Context) -> Any:
    stops = list(_stops(request, context.version))
    term = ControllerTerm.of(request, context.client_id, context.size)
    response = interbroker.message_class("StopReplicaResponse")

    def done(error: int, errors: dict[tuple[str, int], int]) -> None:
        rows = [
            response.PartitionError(
                topic_name=one.partition[0], partition_index=one.partition[1], error_code=errors.get(one.partition, 0)
            )
            for one in stops
        ]
        answer = response(error_code=error, partition_errors=rows)
        controller.when_published(lambda: context.reply(answer))

    controller.owner.controller_requests.stop_replica(term, stops, done)
    return None


def _stops(request: Any, version: int) -> Iterator[StopReplica]:
    if version >= 3:
        for topic in request.topic_states:
            for part in topic.partition_states:
                yield StopReplica((topic.topic_name, part.partition_index), part.leader_epoch, part.delete_partition)
    elif version >= 1:
        for topic in request.topics:
            for index in topic.partition_indexes:
                yield StopReplica((topic.name, index), _ANY_EPOCH, request.delete_partitions)
    else:
        for part in request.ungrouped_partitions:
            yield StopReplica((part.topic_name, part.partition_index), _ANY_EPOCH, request.delete_partitions)


API = Api(
    key=5, name="StopReplica", versions=(0, 4), runs_in=CONTROLLER, handle=handle,
    codec=interbroker.Codec("StopReplica"), flexible=2, between_brokers=True,
)  # fmt: skip
