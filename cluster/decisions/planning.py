"""Plans for CreateTopics and CreatePartitions: pure functions from a request and the snapshot to a plan.

The order of checks, error codes and messages are those of Kafka's admin manager, because clients' tests check them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from odradek.cluster.decisions.alter import validate_topic
from odradek.cluster.decisions.assignment import assign
from odradek.cluster.metadata.snapshot import Snapshot
from odradek.cluster.rules import topicnames, validation
from odradek.cluster.rules.errors import ApiError
from odradek.protocol.errors import (
    BROKER_NOT_AVAILABLE,
    INVALID_CONFIG,
    INVALID_PARTITIONS,
    INVALID_REPLICA_ASSIGNMENT,
    INVALID_REQUEST,
    INVALID_TOPIC_EXCEPTION,
    POLICY_VIOLATION,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_TOPIC_OR_PARTITION,
)

MOST_PARTITIONS = 10_000  # per request, as with KRaft: each is a directory, and other requests wait meanwhile


class TopicRequest(NamedTuple):
    """One topic of a CreateTopics request; -1 stands for the broker's default."""

    name: str
    partitions: int = -1
    factor: int = -1
    assignments: Mapping[int, Sequence[int]] = {}
    configs: Mapping[str, str | None] = {}
    repeated: frozenset[int] = frozenset()  # partitions that have more than one assignment


class TopicPlan(NamedTuple):
    """A topic to create: replicas of each partition, and its config overrides."""

    name: str
    replicas: dict[int, list[int]]
    configs: dict[str, str]

    @property
    def factor(self) -> int:
        """The number of replicas of each partition."""
        return len(self.replicas[0])


class TopicDefaults(NamedTuple):
    """num.partitions and default.replication.factor."""

    partitions: int = 1
    factor: int = 1


def automatic(name: str, brokers: int, config: Mapping[str, Any]) -> TopicRequest:
    """The request for an automatically created topic; internal topics have their own settings.

    `config`: typed broker configs. Factors are limited to the number of `brokers`, so that one broker with Kafka's
    defaults (3 for internal topics) works.
    """
    if name == topicnames.OFFSETS:
        partitions, factor = config["offsets.topic.num.partitions"], config["offsets.topic.replication.factor"]
        return TopicRequest(name, partitions, min(factor, brokers), {}, internal_configs(name, brokers, config))
    if name == topicnames.TRANSACTIONS:
        partitions = config["transaction.state.log.num.partitions"]
        factor = config["transaction.state.log.replication.factor"]
        return TopicRequest(name, partitions, min(factor, brokers), {}, internal_configs(name, brokers, config))
    return TopicRequest(name)


def internal_configs(name: str, brokers: int, config: Mapping[str, Any]) -> dict[str, str | None]:
    """Config overrides of an internal topic; {} for any other."""
    if name == topicnames.OFFSETS:
        segment = str(config["offsets.topic.segment.bytes"])
        return {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": segment}
    if name == topicnames.TRANSACTIONS:
        return {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "unclean.leader.election.enable": "false",
            "min.insync.replicas": str(min(config["transaction.state.log.min.isr"], brokers)),
            "segment.bytes": str(config["transaction.state.log.segment.bytes"]),
        }
    return {}


def check_total(partitions: int) -> None:
    """ApiError unless one request may create that many partitions."""
    if partitions > MOST_PARTITIONS:
        message = f"One request may create {MOST_PARTITIONS} partitions, not {partitions}."
        raise ApiError(POLICY_VIOLATION, message)


def plan_topic(request: TopicRequest, snapshot: Snapshot, defaults: TopicDefaults) -> TopicPlan:
    """The plan for one topic; ApiError with Kafka's code and message when it cannot be created."""
    if request.name in snapshot.topics:
        raise ApiError(TOPIC_ALREADY_EXISTS, f"Topic '{request.name}' already exists.")
    missing = [name for name, value in request.configs.items() if value is None]
    if missing:
        raise ApiError(INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(missing)}")
    replicas = _replicas(request, snapshot, defaults)
    _check_name(request.name, snapshot)
    _check_replicas(replicas, snapshot)
    configs = {name: str(value) for name, value in request.configs.items()}
    validate_topic(configs, snapshot)
    return TopicPlan(request.name, replicas, configs)


def _replicas(request: TopicRequest, snapshot: Snapshot, defaults: TopicDefaults) -> dict[int, list[int]]:
    if request.assignments:
        if request.partitions != -1 or request.factor != -1:
            raise ApiError(
                INVALID_REQUEST,
                "Both numPartitions or replicationFactor and replicasAssignments were set. "
                "Both cannot be used at the same time.",
            )
        if request.repeated:
            message = f"Partition {min(request.repeated)} has more than one manual assignment."
            raise ApiError(INVALID_REPLICA_ASSIGNMENT, message)
        return {index: list(brokers) for index, brokers in sorted(request.assignments.items())}
    racks = {broker.id: broker.rack for broker in snapshot.brokers.values()}
    partitions = defaults.partitions if request.partitions == -1 else request.partitions
    factor = defaults.factor if request.factor == -1 else request.factor
    check_total(partitions)  # num.partitions may be any number
    return assign(racks, partitions, factor)


def _check_name(name: str, snapshot: Snapshot) -> None:
    topicnames.validate(name)
    other = topicnames.collision(name, snapshot.topics)
    if other:
        raise ApiError(INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topics: {other}")


def _check_replicas(replicas: Mapping[int, Sequence[int]], snapshot: Snapshot) -> None:
    """Rules for a manual assignment (our own assignments always satisfy them)."""
    if len({len(brokers) for brokers in replicas.values()}) != 1:
        raise ApiError(INVALID_REPLICA_ASSIGNMENT, "All partitions should have the same number of replicas")
    for brokers in replicas.values():
        if len(brokers) != len(set(brokers)):
            raise ApiError(INVALID_REPLICA_ASSIGNMENT, f"Duplicate replica assignment found: {dict(replicas)}")
        validation.check_replicas(brokers)
        unknown = [broker for broker in brokers if broker not in snapshot.brokers]
        if unknown:
            raise ApiError(INVALID_REPLICA_ASSIGNMENT, f"Unknown broker(s) in replica assignment: {_join(unknown)}.")
    if sorted(replicas) != list(range(len(replicas))):
        raise ApiError(INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence")


def plan_partitions(
    topic: str, count: int, assignments: Sequence[Sequence[int]] | None, snapshot: Snapshot
) -> dict[int, list[int]]:
    """Replicas of the partitions that bring `topic` up to `count`; ApiError with Kafka's code and message."""
    if topic not in snapshot.topics:
        raise ApiError(UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic}' does not exist.")
    existing = snapshot.topics[topic].partitions
    if not existing or not existing[0].replicas:
        raise ApiError(UNKNOWN_TOPIC_OR_PARTITION, f"This broker does not know the partitions of topic '{topic}' yet.")
    if count < len(existing):
        raise ApiError(
            INVALID_PARTITIONS,
            f"Topic currently has {len(existing)} partitions, which is higher than the requested {count}.",
        )
    if count == len(existing):
        raise ApiError(INVALID_PARTITIONS, f"Topic already has {len(existing)} partitions.")
    validation.check_partitions(count)
    if assignments is not None:
        return _given_partitions(count - len(existing), len(existing), assignments, snapshot, existing[0].replicas)
    racks = {broker.id: broker.rack for broker in snapshot.brokers.values()}
    start = next((i for i, broker in enumerate(sorted(racks)) if broker >= existing[0].replicas[0]), 0)
    return assign(racks, count - len(existing), len(existing[0].replicas), start, len(existing))


def _given_partitions(
    increment: int, first: int, assignments: Sequence[Sequence[int]], snapshot: Snapshot, like: Sequence[int]
) -> dict[int, list[int]]:
    unknown = sorted({broker for brokers in assignments for broker in brokers} - set(snapshot.brokers))
    if unknown:
        raise ApiError(INVALID_REPLICA_ASSIGNMENT, f"Unknown broker(s) in replica assignment: {_join(unknown)}.")
    if len(assignments) != increment:
        raise ApiError(
            INVALID_REPLICA_ASSIGNMENT,
            f"Increasing the number of partitions by {increment} but {len(assignments)} assignments provided.",
        )
    planned = {first + index: list(brokers) for index, brokers in enumerate(assignments)}
    for index, brokers in planned.items():
        if len(brokers) != len(set(brokers)):
            raise ApiError(
                INVALID_REPLICA_ASSIGNMENT,
                f"Duplicate brokers not allowed in replica assignment: {_join(brokers)} for partition id {index}.",
            )
        if len(brokers) != len(like):
            raise ApiError(
                INVALID_REPLICA_ASSIGNMENT,
                f"Inconsistent replication factor between partitions, partition 0 has {len(like)} "
                f"while partition {index} has {len(brokers)}.",
            )
        validation.check_replicas(brokers)
    return planned


def _join(brokers: Sequence[int]) -> str:
    return ", ".join(str(broker) for broker in brokers)


def check_broker(broker: int, snapshot: Snapshot) -> None:
    """ApiError BROKER_NOT_AVAILABLE unless `broker` is alive."""
    if broker not in snapshot.brokers:
        raise ApiError(BROKER_NOT_AVAILABLE, f"Broker {broker} is not available.")
