"""Administrative operations, as single requests to the controller.

Each function sends one request and returns the error codes of its rows. OSError and EOFError: the broker does not
answer. Versions are the oldest that have the needed fields, so that old encodings are sent as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...harness.wire import Wire

PREFERRED, UNCLEAN = 0, 1
Replicas = Mapping[tuple[str, int], list[int]]  # (topic, partition) → broker ids, the preferred leader first
_WAIT_MS = 5000


def reassign(wire: Wire, replicas: Replicas) -> list[int]:
    """AlterPartitionReassignments."""
    from kafka.protocol.admin import AlterPartitionReassignmentsRequest as Request

    topics = [
        Request.ReassignableTopic(
            name=topic,
            partitions=[
                Request.ReassignableTopic.ReassignablePartition(partition_index=index, replicas=replicas[topic, index])
                for index in indexes
            ],
        )
        for topic, indexes in _by_topic(replicas).items()
    ]
    answer = wire.call(Request[0](timeout_ms=_WAIT_MS, topics=topics))
    rows = [row.error_code for topic in answer.responses for row in topic.partitions]
    return [answer.error_code, *rows]


def elect(wire: Wire, kind: int, partitions: Iterable[tuple[str, int]]) -> list[int]:
    """ElectLeaders."""
    from kafka.protocol.admin import ElectLeadersRequest as Request

    topics = [
        Request.TopicPartitions(topic=topic, partitions=indexes) for topic, indexes in _by_topic(partitions).items()
    ]
    answer = wire.call(Request[1](election_type=kind, topic_partitions=topics, timeout_ms=_WAIT_MS))
    rows = [row.error_code for result in answer.replica_election_results for row in result.partition_result]
    return [answer.error_code, *rows]


def add_partitions(wire: Wire, topic: str, count: int) -> list[int]:
    """CreatePartitions: `count` partitions in total."""
    from kafka.protocol.admin import CreatePartitionsRequest as Request

    asked = Request.CreatePartitionsTopic(name=topic, count=count, assignments=None)
    answer = wire.call(Request[1](topics=[asked], timeout_ms=_WAIT_MS, validate_only=False))
    return [row.error_code for row in answer.results]


def create(wire: Wire, topic: str, assignments: Mapping[int, list[int]], **config: Any) -> list[int]:
    """CreateTopics with these replicas by partition; `_` in a config's name stands for `.`."""
    from kafka.protocol.admin import CreateTopicsRequest as Request

    asked = Request.CreatableTopic(
        name=topic,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            Request.CreatableTopic.CreatableReplicaAssignment(partition_index=index, broker_ids=replicas)
            for index, replicas in assignments.items()
        ],
        configs=[
            Request.CreatableTopic.CreatableTopicConfig(name=key.replace("_", "."), value=str(value))
            for key, value in config.items()
        ],
    )
    answer = wire.call(Request[4](topics=[asked], timeout_ms=_WAIT_MS, validate_only=False))
    return [row.error_code for row in answer.topics]


def delete(wire: Wire, topic: str) -> list[int]:
    """DeleteTopics."""
    from kafka.protocol.admin import DeleteTopicsRequest as Request

    answer = wire.call(Request[3](topic_names=[topic], timeout_ms=_WAIT_MS))
    return [row.error_code for row in answer.responses]


def set_config(wire: Wire, topic: str, key: str, value: object) -> list[int]:
    """IncrementalAlterConfigs of a topic."""
    from kafka.protocol.admin import IncrementalAlterConfigsRequest as Request

    asked = Request.AlterConfigsResource.AlterableConfig(name=key, config_operation=0, value=str(value))
    resource = Request.AlterConfigsResource(resource_type=2, resource_name=topic, configs=[asked])
    answer = wire.call(Request[0](resources=[resource], validate_only=False))
    return [row.error_code for row in answer.responses]


def _by_topic(partitions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, index in partitions:
        found.setdefault(topic, []).append(index)
    return found
