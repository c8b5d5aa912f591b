"""Builds the controller's requests as Kafka's inter-broker requests, in the versions of Kafka 3.9."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

from odradek.cluster.decisions.broker_request_batch import LeaderAndIsr, StopReplica, UpdateMetadata
from odradek.cluster.metadata.view import FULL, ControllerTerm
from odradek.cluster.tree.znodes import BrokerNode, Partition
from odradek.protocol import interbroker

LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA = 7, 4, 8  # versions
_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
_NO_ID = UUID(int=0)
_ANY_TYPE = 0

Fields = dict[str, Any]
One = TypeVar("One", LeaderAndIsr, UpdateMetadata)


def leader_and_isr(term: ControllerTerm, parts: Sequence[LeaderAndIsr], nodes: Mapping[int, BrokerNode]) -> Fields:
    """The fields of LeaderAndIsr."""
    request = interbroker.message_class("LeaderAndIsrRequest")
    leaders = {broker: nodes[broker] for broker in sorted({one.leader for one in parts} & nodes.keys())}
    ends = {broker: next(iter(node.endpoints.values())) for broker, node in leaders.items()}
    return _term_fields(term) | {
        "type": FULL if term.full else _ANY_TYPE,
        "topic_states": [
            request.TopicState(
                topic_name=name, topic_id=topic_id, partition_states=[_leader_and_isr_fields(one) for one in some]
            )
            for (name, topic_id), some in _by_topic(parts).items()
        ],
        "live_leaders": [
            request.LiveLeader(broker_id=broker, host_name=host, port=port) for broker, (host, port) in ends.items()
        ],
    }


def _leader_and_isr_fields(one: LeaderAndIsr) -> Any:
    state = interbroker.message_class("LeaderAndIsrRequest").TopicState.PartitionState
    return state(
        partition_index=one.partition[1], controller_epoch=one.controller_epoch, leader=one.leader,
        leader_epoch=one.leader_epoch, isr=one.isr, partition_epoch=one.partition_epoch, replicas=one.replicas,
        adding_replicas=one.adding, removing_replicas=one.removing, is_new=one.is_new, leader_recovery_state=0,
    )  # fmt: skip


def update_metadata(term: ControllerTerm, parts: Sequence[UpdateMetadata], nodes: Mapping[int, BrokerNode]) -> Fields:
    """The fields of UpdateMetadata."""
    request = interbroker.message_class("UpdateMetadataRequest")
    return _term_fields(term) | {
        "type": FULL if term.full else _ANY_TYPE,
        "topic_states": [
            request.TopicState(
                topic_name=name, topic_id=topic_id, partition_states=[_metadata_fields(one) for one in some]
            )
            for (name, topic_id), some in _by_topic(parts).items()
        ],
        "live_brokers": [_broker(number, node) for number, node in nodes.items()],
    }


def _metadata_fields(one: UpdateMetadata) -> Any:
    state = interbroker.message_class("UpdateMetadataRequest").TopicState.PartitionState
    return state(
        partition_index=one.partition[1], controller_epoch=one.controller_epoch, leader=one.leader,
        leader_epoch=one.leader_epoch, isr=one.isr, zk_version=one.partition_epoch, replicas=one.replicas,
        offline_replicas=one.offline_replicas,
    )  # fmt: skip


def _broker(number: int, node: BrokerNode) -> Any:
    broker = interbroker.message_class("UpdateMetadataRequest").Broker
    ends = [
        broker.Endpoint(port=port, host=host, listener=name, security_protocol=_PROTOCOLS.get(node.protocols[name], 0))
        for name, (host, port) in node.endpoints.items()
    ]
    return broker(id=number, endpoints=ends, rack=node.rack)


def stop_replica(term: ControllerTerm, stops: Iterable[StopReplica]) -> Fields:
    """The fields of StopReplica."""
    topic = interbroker.message_class("StopReplicaRequest").TopicState
    by_name: dict[str, list[Any]] = defaultdict(list)
    for one in stops:
        state = topic.PartitionState(
            partition_index=one.partition[1], leader_epoch=one.leader_epoch, delete_partition=one.delete
        )
        by_name[one.partition[0]].append(state)
    return _term_fields(term) | {
        "topic_states": [topic(topic_name=name, partition_states=some) for name, some in by_name.items()]
    }


def _term_fields(term: ControllerTerm) -> Fields:
    return {
        "controller_id": term.controller, "is_kraft_controller": False, "controller_epoch": term.epoch,
        "broker_epoch": term.broker_epoch,
    }  # fmt: skip


def _by_topic(parts: Sequence[One]) -> dict[tuple[str, UUID], list[One]]:
    topics: dict[tuple[str, UUID], list[One]] = defaultdict(list)
    for one in parts:
        topics[one.partition[0], UUID(bytes=one.topic_id) if one.topic_id else _NO_ID].append(one)
    return topics


def stop_errors(response: Any) -> dict[Partition, int]:
    """Partition errors in a StopReplica response."""
    return {
        (part.topic_name, part.partition_index): part.error_code
        for part in response.partition_errors
        if part.error_code
    }


def leader_and_isr_errors(response: Any, asked: Iterable[LeaderAndIsr]) -> dict[Partition, int]:
    """Partition errors in a LeaderAndIsr response, which names topics by the ids in the request (`asked`)."""
    names = {one.topic_id or _NO_ID.bytes: one.partition[0] for one in asked}
    return {
        (names[topic.topic_id.bytes], part.partition_index): part.error_code
        for topic in response.topics
        for part in topic.partition_errors
        if part.error_code and topic.topic_id.bytes in names
    }
