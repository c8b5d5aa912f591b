"""What sequences are made of: the APIs of records, of groups, of transactions and of administration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..fuzz.sequences import Api, Pools

GROUPS, IDS = [b"g1", b"g2"], [b"tx1", b"tx2"]
INDEXES = [0, 0, 0, 0, 1, 1, 2, -1]
SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\0\0\0\0"
LEARNS = {
    "member_id": ["member_id"],
    "generation_id": ["generation_id", "generation_id_or_member_epoch"],
    "producer_id": ["producer_id", "v3_and_below_producer_id", "producer_id_filters"],
    "producer_epoch": ["producer_epoch", "v3_and_below_producer_epoch"],
    "session_id": ["session_id"],
}
COMMON: Pools = {
    "partition_index": INDEXES, "partition_indexes": INDEXES, "index": INDEXES, "partition": INDEXES,
    "partitions": INDEXES, "acks": [-1, -1, 1, 1, 0], "timeout_ms": (5000,), "max_wait_ms": (0, 10),
    "min_bytes": (0, 1), "max_bytes": [1 << 20, 1 << 20, 200, 0], "partition_max_bytes": [1 << 20, 1 << 20, 100, 0],
    "fetch_offset": [0, 0, 1, 2, 3, 5, 100, -1], "offset": [0, 1, 2, 3, -1, -2, 100], "replica_id": (-1,),
    "current_leader_epoch": [-1, -1, -1, 0, 1], "last_fetched_epoch": [-1, -1, -1, 0, 1], "leader_epoch": [0, 1, -1],
    "log_start_offset": (-1, 0), "timestamp": [-1, -2, -3, -4, 0, 1], "max_num_offsets": [1, 2],
    "session_epoch": [-1, -1, -1, 0, 1], "session_id": [0], "isolation_level": [0, 1], "rack_id": (b"",),
    "producer_id": [-1], "producer_epoch": [-1], "v3_and_below_producer_id": [-1], "v3_and_below_producer_epoch": [-1],
    "transaction_timeout_ms": (60_000,), "committed_offset": [0, 1, 5], "committed_leader_epoch": [-1, 0],
    "committed_metadata": [b"", b"m"], "metadata": (SUBSCRIPTION,), "session_timeout_ms": (60_000,),
    "rebalance_timeout_ms": (60_000,), "protocol_type": [b"consumer"], "protocol_name": [b"range"],
    "JoinGroup.name": [b"range", b"sticky", b"roundrobin"], "member_id": [b""], "generation_id": [-1],
    "generation_id_or_member_epoch": [-1], "retention_time_ms": (-1,), "allow_auto_topic_creation": (0,),
    "coordinator_epoch": [0], "key_type": [0, 1], "states_filter": [b"Stable", b"Empty"],
    "response_partition_limit": [1, 2, 2000], "include_topic_authorized_operations": (0,),
    "include_cluster_authorized_operations": (0,), "include_authorized_operations": (0,),
    "types_filter": [b"classic"], "duration_filter": (-1,), "assignment": [b"a"],
}  # fmt: skip


class Family(NamedTuple):
    """APIs that are played together: weight by name."""

    name: str
    weights: Mapping[str, int]


FAMILIES = (
    Family("records", {"Produce": 6, "Fetch": 5, "ListOffsets": 3, "DeleteRecords": 1, "OffsetForLeaderEpoch": 1,
                       "InitProducerId": 1, "Metadata": 1, "DescribeTopicPartitions": 1, "DescribeProducers": 1}),
    Family("groups", {"JoinGroup": 5, "SyncGroup": 4, "Heartbeat": 3, "LeaveGroup": 1, "OffsetCommit": 4,
                      "OffsetFetch": 3, "DescribeGroups": 2, "ListGroups": 0, "DeleteGroups": 1, "OffsetDelete": 1,
                      "FindCoordinator": 0}),
    Family("transactions", {"InitProducerId": 4, "AddPartitionsToTxn": 4, "AddOffsetsToTxn": 2, "TxnOffsetCommit": 2,
                            "EndTxn": 3, "Produce": 5, "Fetch": 3, "ListOffsets": 1, "DescribeTransactions": 1,
                            "DescribeProducers": 1, "OffsetFetch": 1}),
)  # fmt: skip

LANDED = {"records"}
"""Families without a difference that has no reason; the others are played only where all are (`-m long`)."""


def clients(number: int) -> list[Pools]:
    """Two clients of the same names and one of any, which no other sequence has."""
    groups = [b"%s-%d" % (name, number) for name in GROUPS]
    ids = [b"%s-%d" % (name, number) for name in IDS]
    one = {"group_id": groups[:1], "transactional_id": ids[:1], "v3_and_below_transactional_id": ids[:1]}
    any_of = {"group_id": groups, "transactional_id": ids, "v3_and_below_transactional_id": ids}
    shared: dict[str, Any] = {"groups": groups, "groups_names": groups, "transactional_ids": ids}
    return [{**shared, **one}, {**shared, **one, "group_instance_id": [b"i"]}, {**shared, **any_of}]


def apis(family: Family, versions: Mapping[int, tuple[int, int]], keys: Mapping[str, int]) -> list[Api]:
    """Its requests in the versions that both brokers offer."""
    return [
        Api(name, versions[keys[name]], weight)
        for name, weight in family.weights.items()
        if weight and keys[name] in versions
    ]


def pools(names: list[str], ids: list[bytes]) -> Pools:
    """What fields are given where the topics of these names and ids exist."""
    known = [*(name.encode() for name in names), names[0].encode() + b"-no"]
    return {**COMMON, "topic": known, "name": known, "topics": known, "topic_name": known, "topic_id": ids}


LOWEST = {"OffsetCommit": 1, "OffsetFetch": 1}
"""Version 0 keeps offsets in ZooKeeper, which Kafka 3.9 in KRaft mode has not (it answers UNSUPPORTED_VERSION)."""
