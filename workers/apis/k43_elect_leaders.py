"""ElectLeaders (key 43), versions 0 to 2: leadership back to preferred replicas, or to any (v1+, KIP-460).

With one broker every partition has its preferred leader: ELECTION_NOT_NEEDED, or, when all partitions are asked for
(null), an answer without any. A partition whose preferred replica is not there gets PREFERRED_LEADER_NOT_AVAILABLE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.cluster.errors import ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION
from odradek.cluster.snapshot import Snapshot
from odradek.protocol import errors
from odradek.workers.api import Api, message_class
from odradek.workers.context import Context

if TYPE_CHECKING:
    from odradek.workers.worker import Worker

_MESSAGES = {
    ELECTION_NOT_NEEDED: "Leader election not needed for topic partition.",
    PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader was not available.",
    UNKNOWN_TOPIC_OR_PARTITION: "The partition does not exist.",
}


def handle(worker: Worker, request: Any, context: Context) -> Any:
    snapshot = worker.snapshot
    everything = request.topic_partitions is None
    if everything:
        asked = [(name, list(range(len(topic)))) for name, topic in snapshot.topics.items()]
    else:
        asked = [(topic.topic, topic.partitions) for topic in request.topic_partitions]
    results = [_topic(snapshot, name, partitions, everything) for name, partitions in asked]
    response = message_class("ElectLeadersResponse")
    elected = [result for result in results if result.partition_result]
    return response(error_code=errors.NONE, replica_election_results=elected)


def _topic(snapshot: Snapshot, name: str, partitions: list[int], everything: bool) -> Any:
    result = message_class("ElectLeadersResponse").ReplicaElectionResult
    outcomes = [(index, _outcome(snapshot, name, index)) for index in partitions]
    return result(
        topic=name,
        partition_result=[
            result.PartitionResult(partition_id=index, error_code=code, error_message=_MESSAGES[code])
            for index, code in outcomes
            if not (everything and code == ELECTION_NOT_NEEDED)
        ],
    )


def _outcome(snapshot: Snapshot, name: str, index: int) -> int:
    info = snapshot.partition(name, index)
    if info is None:
        return UNKNOWN_TOPIC_OR_PARTITION
    return ELECTION_NOT_NEEDED if info.leader == info.replicas[0] else PREFERRED_LEADER_NOT_AVAILABLE


API = Api(key=43, name="ElectLeaders", versions=(0, 2), handle=handle)
