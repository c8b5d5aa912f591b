"""Notification nodes that brokers and old tools write for the controller and the brokers (kafka.zk.ZkData).

Nodes under ISR_CHANGES, LOG_DIR_EVENTS and CONFIG_CHANGES are sequence nodes; PREFERRED_ELECTION and
REASSIGN_PARTITIONS are one node each, written by Kafka's command line tools before version 2.4. The paths are in
`znodes`. Readers ignore a malformed node, because tools and people write here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from odradek.cluster.tree.znodes import MALFORMED, Partition, to_json


def encode_partitions(partitions: Iterable[Partition]) -> bytes:
    """For a node under ISR_CHANGES, and for PREFERRED_ELECTION: the partitions to check or to elect."""
    rows = [{"topic": topic, "partition": index} for topic, index in partitions]
    return to_json({"version": 1, "partitions": rows})


def decode_partitions(data: bytes) -> list[Partition]:
    """The partitions of a node that `encode_partitions` or an old Kafka tool wrote; none when it is malformed."""
    try:
        return [(str(row["topic"]), int(row["partition"])) for row in json.loads(data)["partitions"]]
    except MALFORMED:
        return []


def decode_reassignment(data: bytes) -> dict[Partition, list[int]]:
    """The target replicas by partition that an old Kafka tool requests; none when the node is malformed."""
    try:
        rows = json.loads(data)["partitions"]
        return {(str(row["topic"]), int(row["partition"])): [int(to) for to in row["replicas"]] for row in rows}
    except MALFORMED:
        return {}


def encode_log_dir_event(broker: int) -> bytes:
    """For a node under LOG_DIR_EVENTS: a log directory of `broker` has failed."""
    return to_json({"version": 1, "broker": broker, "event": 1})


def decode_log_dir_event(data: bytes) -> int | None:
    """The broker whose log directory failed; None when the node is malformed."""
    try:
        return int(json.loads(data)["broker"])
    except MALFORMED:
        return None


def encode_config_change(kind: str, name: str) -> bytes:
    """For a node under CONFIG_CHANGES: `/config/<kind>/<name>` was written."""
    return to_json({"version": 2, "entity_path": f"{kind}/{name}"})


def decode_config_change(data: bytes) -> str | None:
    """`<kind>/<name>` of a node under CONFIG_CHANGES, of its first version too; None when it is malformed."""
    try:
        change = json.loads(data)
        if change["version"] == 1:
            return f"{change['entity_type']}/{change['entity_name']}"
        return str(change["entity_path"])
    except MALFORMED:
        return None
