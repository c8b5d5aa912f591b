"""Implements `odradek topics --describe`, in the layout of Kafka's TopicCommand or as JSON."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from typing import Any

import click
from kafka.errors import IncompatibleBrokerVersion
from kafka.protocol.admin import DescribeTopicPartitionsRequest, ListPartitionReassignmentsRequest

from odradek.broker.commands._shared.client import TOPIC, Cluster, Partition
from odradek.broker.commands._shared.partitions import ids
from odradek.broker.commands._shared.tables import print_json
from odradek.broker.commands.topics.change_topics import Options, matching, must_exist
from odradek.broker.errors import OdradekError

_DEFAULT = 5  # config source: set neither for the topic nor for brokers
_ELIGIBLE = {"Elr": "elr", "LastKnownElr": "lastKnownElr"}
NO_ID = uuid.UUID(int=0)


def describe(cluster: Cluster, options: Options) -> None:
    """Print the matching topics, each with the partitions that the reports select."""
    found = _chosen(cluster, options)
    configs = cluster.configs(TOPIC, [topic.name for topic in found])
    moving = _reassignments(cluster) if found else {}
    alive = {broker.node_id for broker in cluster.metadata([]).brokers}
    eligible = {} if options["topic_id"] else _eligible(cluster, [topic.name for topic in found])  # as Kafka's tool
    described = [_described(topic, configs[topic.name], moving, eligible, alive, options["reports"]) for topic in found]
    if options["topics_with_overrides"]:
        described = [topic | {"partitions": []} for topic in described if topic["configs"]]
    if options["as_json"]:
        print_json(described)
        return
    for topic in described:
        _print(topic, with_header=not options["reports"])


def _chosen(cluster: Cluster, options: Options) -> list[Any]:
    if not options["topic_id"]:
        found = matching(cluster, options["topic"], exclude_internal=options["exclude_internal"])
        must_exist(found, options)
        return found
    found = matching(cluster, None, exclude_internal=options["exclude_internal"])
    found = [topic for topic in found if _short(topic.topic_id) == options["topic_id"]]
    if not found and not options["if_exists"]:
        raise OdradekError(f"TopicId '{options['topic_id']}' does not exist")
    return found


def _short(topic_id: uuid.UUID | None) -> str | None:
    """A topic id in Kafka's text form: URL-safe base64 without padding."""
    if topic_id is None or topic_id == NO_ID:
        return None
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def _reassignments(cluster: Cluster) -> dict[Partition, Any]:
    """Partitions under reassignment; none on a broker without that API."""
    try:
        response = cluster.send_to_controller(
            ListPartitionReassignmentsRequest(timeout_ms=cluster.timeout_ms, topics=None),
            lambda r: [r.error_code],
        )
    except IncompatibleBrokerVersion:
        return {}
    return {(topic.name, part.partition_index): part for topic in response.topics for part in topic.partitions}


def _eligible(cluster: Cluster, names: list[str]) -> dict[Partition, Any]:
    """Rows with eligible leader replicas (KIP-966); none on a broker without them."""
    found: dict[Partition, Any] = {}
    topics, cursor = [DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names], None
    while topics:
        request = DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=2000, cursor=cursor)
        try:
            response = cluster.send(request)
        except IncompatibleBrokerVersion:
            break
        found |= {(topic.name, part.partition_index): part for topic in response.topics for part in topic.partitions}
        if response.next_cursor is None:
            break
        place = response.next_cursor.topic_name, response.next_cursor.partition_index
        cursor = DescribeTopicPartitionsRequest.Cursor(topic_name=place[0], partition_index=place[1])
    return found


def _described(
    topic: Any, configs: list[Any], moving: Mapping[Partition, Any], eligible: Mapping[Partition, Any],
    alive: set[int], reports: list[str],
) -> dict[str, Any]:  # fmt: skip
    partitions = [
        _partition(part, *(rows.get((topic.name, part.partition_index)) for rows in (moving, eligible)))
        for part in sorted(topic.partitions, key=lambda part: part.partition_index)
    ]
    min_isr = next((int(c.value) for c in configs if c.name == "min.insync.replicas"), 1)
    selected = [p for p in partitions if not reports or _reported(p, reports, min_isr, alive)]
    return {
        "topic": topic.name,
        "topicId": _short(getattr(topic, "topic_id", None)),
        "partitionCount": len(partitions),
        "replicationFactor": _replicas(partitions[0]) if partitions else 0,
        "configs": {c.name: c.value for c in configs if c.config_source != _DEFAULT},
        "partitions": selected,
    }


def _partition(part: Any, move: Any, eligible: Any) -> dict[str, Any]:
    described: dict[str, Any] = {
        "partition": part.partition_index,
        "leader": part.leader_id if part.leader_id >= 0 else None,
        "replicas": list(part.replica_nodes),
        "isr": list(part.isr_nodes),
    }
    if move is not None:
        described["addingReplicas"] = list(move.adding_replicas)
        described["removingReplicas"] = list(move.removing_replicas)
    if eligible is not None and eligible.eligible_leader_replicas is not None:
        described["elr"] = list(eligible.eligible_leader_replicas)
        described["lastKnownElr"] = list(eligible.last_known_elr or ())
    return described


def _replicas(part: Mapping[str, Any]) -> int:
    """The replication factor; replicas that a reassignment is adding do not count."""
    return len(part["replicas"]) - len(part.get("addingReplicas", ()))


def _reported(part: Mapping[str, Any], reports: list[str], min_isr: int, alive: set[int]) -> bool:
    isr, leader = len(part["isr"]), part["leader"]
    facts = {
        "under_replicated_partitions": isr < _replicas(part),
        "unavailable_partitions": leader is None or leader not in alive,
        "under_min_isr_partitions": leader is None or isr < min_isr,
        "at_min_isr_partitions": isr == min_isr,
    }
    return any(facts[report] for report in reports)


def _print(topic: Mapping[str, Any], *, with_header: bool) -> None:
    if with_header:
        configs = ",".join(f"{name}={value}" for name, value in topic["configs"].items())
        words = [
            f"Topic: {topic['topic']}",
            *([f"TopicId: {topic['topicId']}"] if topic["topicId"] else []),
            f"PartitionCount: {topic['partitionCount']}",
            f"ReplicationFactor: {topic['replicationFactor']}",
            f"Configs: {configs}",
        ]
        click.echo("\t".join(words))
    for part in topic["partitions"]:
        click.echo(_partition_line(topic["topic"], part))


def _partition_line(name: str, part: Mapping[str, Any]) -> str:
    leader = "none" if part["leader"] is None else part["leader"]
    words = [
        f"\tTopic: {name}",
        f"Partition: {part['partition']}",
        f"Leader: {leader}",
        f"Replicas: {ids(part['replicas'])}",
        f"Isr: {ids(part['isr'])}",
    ]
    if "addingReplicas" in part:
        words.append(f"Adding Replicas: {ids(part['addingReplicas'])}")
        words.append(f"Removing Replicas: {ids(part['removingReplicas'])}")
    words += [f"{label}: {ids(part[key]) if key in part else 'N/A'}" for label, key in _ELIGIBLE.items()]
    return "\t".join(words)
