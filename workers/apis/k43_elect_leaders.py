"""ElectLeaders (key 43), versions 0 to 2: return leadership to preferred replicas, or to any (v1+, KIP-460).

Answered by the controller. Null asks for all partitions; the answer then omits those that need no election. Many
partitions take many steps (broker.process.steps). If this broker ceases to be the controller between two steps, the
client sends the whole request to the next one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterator
from typing import Any

from odradek.cluster.rules.errors import ApiError, Outcomes
from odradek.cluster.tree.znodes import Partition
from odradek.protocol.errors import ELECTION_NOT_NEEDED, INVALID_REQUEST, NONE
from odradek.protocol.library import message_class
from odradek.workers.dispatch.administration import Controller
from odradek.workers.dispatch.api import CONTROLLER, Api, pieces
from odradek.workers.dispatch.context import Context

_PREFERRED, _UNCLEAN = 0, 1
MANY = 1024  # elections in one step: they are written, and sent to the brokers, together


def handle(controller: Controller, request: Any, context: Context) -> Iterator[None]:
    response = message_class("ElectLeadersResponse")
    try:
        outcomes = yield from _elect(controller, request, context.version)
    except ApiError as error:
        context.reply(response(error_code=error.code, replica_election_results=[]))
        return
    unknown = context.version >= 1 and request.election_type not in (_PREFERRED, _UNCLEAN)
    answer = response(
        error_code=INVALID_REQUEST if unknown else NONE, replica_election_results=(yield from _results(outcomes))
    )
    controller.when_published(lambda: context.reply(answer))


def _elect(controller: Controller, request: Any, version: int) -> Generator[None, None, Outcomes]:
    """The outcome of each partition that the answer names."""
    if version >= 1 and request.election_type not in (_PREFERRED, _UNCLEAN):
        refused = ApiError(INVALID_REQUEST, f"Unknown election type {request.election_type}")
        return dict.fromkeys((yield from _named(request)), refused)
    unclean = version >= 1 and request.election_type == _UNCLEAN
    every = request.topic_partitions is None
    outcomes: Outcomes = {}
    for some in pieces(controller.owner.partitions() if every else (yield from _named(request)), MANY):
        outcomes |= controller.owner.elect_leaders(some, unclean)
        yield
    if not every:
        return outcomes
    return {one: error for one, error in outcomes.items() if not (error and error.code == ELECTION_NOT_NEEDED)}


def _named(request: Any) -> Generator[None, None, list[Partition]]:
    """The partitions that a request names, each once."""
    partitions: dict[Partition, None] = {}
    for topic in request.topic_partitions or ():
        for some in pieces(topic.partitions):
            partitions |= dict.fromkeys((topic.topic, index) for index in some)
            yield
    return list(partitions)


def _results(outcomes: Outcomes) -> Generator[None, None, list[Any]]:
    result = message_class("ElectLeadersResponse").ReplicaElectionResult
    by_topic: dict[str, list[Any]] = defaultdict(list)
    for some in pieces(list(outcomes.items())):
        for (topic, index), error in some:
            code, message = (error.code, error.message) if error else (NONE, None)
            by_topic[topic].append(result.PartitionResult(partition_id=index, error_code=code, error_message=message))
        yield
    results: list[Any] = []
    for rows in pieces(list(by_topic.items())):
        results += [result(topic=topic, partition_result=parts) for topic, parts in rows]
        yield
    return results


API = Api(key=43, name="ElectLeaders", versions=(0, 2), runs_in=CONTROLLER, handle=handle)
