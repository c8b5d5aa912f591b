"""Limits on topics, partitions and replicas, from any source: a client, a controller, ZooKeeper.

A broker keeps a row for every partition of every topic, and a leader a row for each follower of a partition
(ipc.replicas). This module bounds both, and the names that become directories.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from odradek.cluster.rules import topicnames
from odradek.cluster.rules.errors import ApiError
from odradek.ipc import replicas as followers
from odradek.protocol.errors import (
    INVALID_PARTITIONS,
    INVALID_REPLICA_ASSIGNMENT,
    INVALID_TOPIC_EXCEPTION,
    NONE,
    POLICY_VIOLATION,
)
from odradek.protocol.wire import INT32_MAX

MOST_REPLICAS = 1 + followers.ROWS  # per partition: its leader, and the followers that the leader has rows for
# Per topic. In ZooKeeper a topic is one node of at most 1 MiB, which 100,000 partitions of one replica fill.
MOST_PARTITIONS = 100_000
MOST_KNOWN = 1_000_000  # partitions of all topics that one broker keeps rows for; ZooKeeper clusters stay below it
_LONGEST = 200  # characters of a fault: each partition repeats a name that the request has once


def partition_problem(index: int) -> str | None:
    """What is wrong with a partition's index, None for a good one."""
    if index < 0:
        return f"partition {index} is negative"
    if index >= MOST_PARTITIONS:
        return f"partition {index} exceeds the {MOST_PARTITIONS} partitions that a topic may have"
    return None


def replicas_problem(replicas: Sequence[int]) -> str | None:
    """What is wrong with a partition's replicas (broker ids), None for good ones."""
    if not replicas:
        return "a partition needs at least one replica"
    if len(replicas) > MOST_REPLICAS:
        return f"{len(replicas)} replicas are more than the {MOST_REPLICAS} that a partition may have"
    if len(set(replicas)) < len(replicas):
        return f"a broker appears twice in the replicas {list(replicas)}"
    wrong = [broker for broker in replicas if not 0 <= broker <= INT32_MAX]
    return f"{wrong[0]} is not a broker id" if wrong else None


def check_replicas(replicas: Sequence[int]) -> None:
    """ApiError INVALID_REPLICA_ASSIGNMENT unless a partition may have these replicas."""
    wrong = replicas_problem(replicas)
    if wrong:
        raise ApiError(INVALID_REPLICA_ASSIGNMENT, f"Invalid replica assignment: {wrong}.")


def check_partitions(count: int) -> None:
    """ApiError INVALID_PARTITIONS unless a topic may have that many partitions."""
    if count > MOST_PARTITIONS:
        raise ApiError(INVALID_PARTITIONS, f"A topic may have {MOST_PARTITIONS} partitions, not {count}.")


def place_fault(topic: str, index: int) -> tuple[int, str]:
    """(error code, why) for a partition that a controller names; (NONE, "") for a valid one."""
    wrong = topicnames.problem(topic)
    if wrong:
        return INVALID_TOPIC_EXCEPTION, wrong[:_LONGEST]
    wrong = partition_problem(index)
    return (INVALID_PARTITIONS, wrong) if wrong else (NONE, "")


class PartitionLimit:
    """The rows left for `topics`, in the form of snapshots. A partition needs a row for each index up to its own."""

    def __init__(self, topics: Mapping[str, Mapping[str, Any]]) -> None:
        self._rows = {name: len(topic["partitions"]) for name, topic in topics.items()}
        self._left = MOST_KNOWN - sum(self._rows.values())

    def fault(self, topic: str, index: int) -> tuple[int, str]:
        """(error code, why) if no row is left for that partition; else (NONE, "") and the row is taken."""
        more = max(0, index + 1 - self._rows.get(topic, 0))
        if more > self._left:
            return POLICY_VIOLATION, f"a broker supports at most {MOST_KNOWN} partitions"
        self._left -= more
        self._rows[topic] = self._rows.get(topic, 0) + more
        return NONE, ""
