"""ElectLeaders (key 43), versions 0 to 2: leadership back to preferred replicas, or to any (v1+, KIP-460).

Answered by the controller. Null asks for all partitions; those that need no election are then not in the answer.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from odradek.cluster.errors import ELECTION_NOT_NEEDED, INVALID_REQUEST, ApiError
from odradek.protocol.errors import NONE
from odradek.workers.administration import Controller
from odradek.workers.api import CONTROLLER, Api, message_class
from odradek.workers.context import Context

_PREFERRED, _UNCLEAN = 0, 1


def handle(controller: Controller, request: Any, context: Context) -> Any:
    response = message_class("ElectLeadersResponse")
    asked = request.topic_partitions
    wanted = None if asked is None else [(topic.topic, index) for topic in asked for index in topic.partitions]
    unclean = context.version >= 1 and request.election_type == _UNCLEAN
    if context.version >= 1 and request.election_type not in (_PREFERRED, _UNCLEAN):
        refused = ApiError(INVALID_REQUEST, f"Unknown election type {request.election_type}")
        return response(
            error_code=refused.code, replica_election_results=_results(dict.fromkeys(wanted or (), refused))
        )
    try:
        outcomes = controller.owner.elect_leaders(wanted, unclean)
    except ApiError as error:
        return response(error_code=error.code, replica_election_results=[])
    if wanted is None:
        outcomes = {one: error for one, error in outcomes.items() if not (error and error.code == ELECTION_NOT_NEEDED)}
    answer = response(error_code=NONE, replica_election_results=_results(outcomes))
    controller.when_published(lambda: context.reply(answer))
    return None


def _results(outcomes: dict[tuple[str, int], ApiError | None]) -> list[Any]:
    result = message_class("ElectLeadersResponse").ReplicaElectionResult
    by_topic: dict[str, list[Any]] = defaultdict(list)
    for (topic, index), error in outcomes.items():
        code, message = (error.code, error.message) if error else (NONE, None)
        by_topic[topic].append(result.PartitionResult(partition_id=index, error_code=code, error_message=message))
    return [result(topic=topic, partition_result=parts) for topic, parts in by_topic.items()]


API = Api(key=43, name="ElectLeaders", versions=(0, 2), runs_in=CONTROLLER, handle=handle)
