"""The APIs of a sequence: records, groups, transactions or administration."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..clients.raw.batches import NOW
from ..fuzz.sequences import Api, Pools
from .config_values import OF_BROKERS, OF_TOPICS
from .plain import addresses

INDEXES = [0] * 14 + [1] * 8 + [2, -1]
LEARNS = {
    "member_id": ["member_id"],
    "generation_id": ["generation_id", "generation_id_or_member_epoch"],
    "producer_id": ["producer_id", "v3_and_below_producer_id", "producer_id_filters"],
    "producer_epoch": ["producer_epoch", "v3_and_below_producer_epoch"],
    "session_id": ["session_id"],
}
COMMON: Pools = {
    "partition_index": INDEXES, "partition_indexes": INDEXES, "index": INDEXES, "partition": INDEXES,
    "partitions": INDEXES, "acks": [-1, -1, -1, -1, 1, 1, 0], "timeout_ms": (5000,), "max_wait_ms": (0, 10),
    "min_bytes": (0, 1), "max_bytes": [1 << 20, 1 << 20, 200, 0], "partition_max_bytes": [1 << 20, 1 << 20, 100, 0],
    "fetch_offset": [0, 0, 0, 1, 2, 3, 5, 100, -1], "offset": [0, 1, 2, 3, -1, -2, 100],
    "replica_id": (-1, -1, -1, -1, -2, -3),
    "current_leader_epoch": [-1, -1, -1, -1, 0, 1], "last_fetched_epoch": [-1, -1, -1, 0, 1],
    "leader_epoch": [0, 1, -1], "log_start_offset": (-1, 0), 
    "timestamp": [-1, -2, -3, -4, -5, -6, 0, 1, NOW - 1, NOW, NOW + 1],
    "max_num_offsets": [1, 2], "session_epoch": [-1, 0, 0], "session_id": [0], "isolation_level": (0, 1, 1),
    "rack_id": (b"",), "producer_id": [-1], "producer_epoch": [-1], "v3_and_below_producer_id": [-1],
    "v3_and_below_producer_epoch": [-1], "transaction_timeout_ms": [60_000, 60_000, 60_000, 0, 900_001],
    "committed_offset": [0, 1, 5], "committed_leader_epoch": [-1, 0, 5, -2],
    "committed_metadata": [b"", b"m", b"m" * 4096, b"m" * 4097],
    "session_timeout_ms": [60_000, 60_000, 60_000, 99, 1_800_001],
    "rebalance_timeout_ms": (60_000,), "protocol_type": [*[b"consumer"] * 9, b"connect"],
    "protocol_name": [b"range"] * 9 + [b"sticky"],
    "protocols.name": [b"range", b"range", b"sticky", b"roundrobin"], "member_id": [b""], "generation_id": [-1],
    "generation_id_or_member_epoch": [-1], "commit_timestamp": [-1, NOW], "retention_time_ms": (-1,),
    "allow_auto_topic_creation": (0,), "coordinator_epoch": [0, 0, 1, -1], "key_type": [0, 1],
    "states_filter": [b"Stable", b"Empty"], "state_filters": [b"Ongoing", b"Empty"],
    "response_partition_limit": [1, 2, 2000], "include_topic_authorized_operations": (0,),
    "include_cluster_authorized_operations": (0,), "include_authorized_operations": (0,),
    "types_filter": [b"classic", b"classic", b"consumer", b"Classic", b"x"], "duration_filter": (-1, -1, 1 << 40),
    "assignment": [b"a"],
}  # fmt: skip
CHANGES: Pools = {
    "num_partitions": [1, 2, 3, -1, 0],
    "replication_factor": [1, 1, 1, -1, 2, 0],
    "broker_ids": [0, 0, 0, 0, 1, -1],
    "replicas": [0, 0, 0, 1],
    "count": [2, 3, 4, 1, 0],
    "timeout_ms": (15_000,),
    "resource_type": [2] * 14 + [0, 3, 4, 8, 16, 32],
    "config_operation": [0, 0, 1, 2, 3],
    "configs.name": [name.encode() for name in OF_TOPICS],
    "configuration_keys": [name.encode() for name in OF_TOPICS],
    "election_type": [0, 1],
}
OF_TRANSACTIONS: Pools = {"transactional_share": [0.8], "markers.count": (1,)}
"""Kafka sends no response to WriteTxnMarkers if the last marker has no writable partition and another one has some."""
OWN = {"log.dirs", "listeners", "broker.id", "zookeeper.connect", "metric.reporters", "num.partitions",
       "auto.create.topics.enable"}  # fmt: skip
"""Configs that only one broker has, or that only one was started with."""
OF_ONE_BROKER: Pools = {
    "configuration_keys": [name.encode() for name in OF_BROKERS if name not in OWN],
    "configuration_keys.count": (1, 2, 3), "never_null": ("configuration_keys",),
    "CreateAcls.resource_type": [2, 3, 4, 5, 6, 1], "resource_type_filter": [1, 2, 3, 4, 5, 6],
    "resource_pattern_type": [3, 4, 1, 2], "pattern_type_filter": [1, 2, 3, 4], "permission_type": [1, 2, 3],
    "operation": [*range(1, 15)],
    "resource_type": [4], "resource_name": [b"", b"", b"0", b"1", b"x"], "validate_only": (1,),
    "config_operation": [0, 0, 0, 1, 2, 3], "configs.name": [name.encode() for name in OF_BROKERS],
    "client_software_name": [b"client", b"a-b.c", b"-", b"a b", b""], "client_software_version": [b"1.0", b"1.0-", b""],
    "entity_type": [b"user", b"client-id", b"ip"], "match_type": [0, 1, 2], "endpoint_type": [1, 1, 2],
}  # fmt: skip

OF_SECURITY: Pools = {
    "entity_type": [b"user", b"user", b"client-id", b"client-id", b"ip", b"x"], "match_type": [0, 0, 0, 1, 2, 3],
    "ops.key": [b"producer_byte_rate", b"consumer_byte_rate", b"request_percentage", b"controller_mutation_rate",
                b"connection_creation_rate", b"x"],
    "ops.value": [1.0, 1024.0, 12.5, 0.1, 0.0, -1.0, 1e300, 1 << 53, float("inf"), float("nan")],
    "mechanism": [1, 2, 1, 2, 0, 3], "iterations": [4096, 4096, 8192, 16384, 4095, 16385, 0],
    "salt": [b"salt"], "salted_password": [b"p" * 32, b"p" * 64],
    "SaslHandshake.mechanism": [b"PLAIN", b"SCRAM-SHA-256", b"x"],
    "never_null": ("entity_name", "match"),  # defaults are those of all sequences
}  # fmt: skip


class Family(NamedTuple):
    """APIs that a sequence uses together: weights by name, and field values in addition to the common ones."""

    name: str
    weights: Mapping[str, int]
    pools: Pools = {}


FAMILIES = (
    Family("records", {"Produce": 8, "Fetch": 6, "ListOffsets": 3, "DeleteRecords": 2, "OffsetForLeaderEpoch": 1,
                       "InitProducerId": 1, "Metadata": 1, "DescribeTopicPartitions": 1, "DescribeProducers": 1,
                       "DescribeLogDirs": 1}),
    Family("groups", {"JoinGroup": 6, "SyncGroup": 5, "Heartbeat": 3, "LeaveGroup": 1, "OffsetCommit": 4,
                      "OffsetFetch": 3, "DescribeGroups": 2, "ListGroups": 1, "DeleteGroups": 1, "OffsetDelete": 1,
                      "FindCoordinator": 1}),
    Family("transactions", {"InitProducerId": 4, "AddPartitionsToTxn": 5, "AddOffsetsToTxn": 2, "TxnOffsetCommit": 2,
                            "EndTxn": 3, "Produce": 6, "Fetch": 4, "ListOffsets": 1, "DescribeTransactions": 1,
                            "DescribeProducers": 1, "OffsetFetch": 1, "ListTransactions": 1, "DeleteRecords": 1,
                            "FindCoordinator": 1, "WriteTxnMarkers": 1}, OF_TRANSACTIONS),
    Family("offsets", {"JoinGroup": 6, "SyncGroup": 5, "LeaveGroup": 1, "Heartbeat": 1, "InitProducerId": 3,
                       "AddOffsetsToTxn": 4, "TxnOffsetCommit": 6, "EndTxn": 3, "OffsetFetch": 4, "OffsetCommit": 3,
                       "OffsetDelete": 3, "DeleteGroups": 1, "DescribeGroups": 1, "ListGroups": 1,
                       "AddPartitionsToTxn": 1, "Produce": 1, "DescribeTransactions": 1}, OF_TRANSACTIONS),
    Family("topics", {"CreateTopics": 5, "CreatePartitions": 3, "DeleteTopics": 1, "Metadata": 3, "DescribeConfigs": 3,
                      "AlterConfigs": 2, "IncrementalAlterConfigs": 5, "Produce": 4, "Fetch": 2, "ListOffsets": 2,
                      "DeleteRecords": 1, "DescribeTopicPartitions": 1, "ElectLeaders": 1, "DescribeLogDirs": 1,
                      "AlterPartitionReassignments": 1, "ListPartitionReassignments": 1, "OffsetForLeaderEpoch": 1,
                      "DescribeProducers": 1}, CHANGES),
    Family("brokers", {"IncrementalAlterConfigs": 5, "AlterConfigs": 3, "DescribeConfigs": 3, "DescribeCluster": 1,
                       "DescribeAcls": 1, "CreateAcls": 1, "DeleteAcls": 1, "DescribeClientQuotas": 1,
                       "DescribeUserScramCredentials": 1, "FindCoordinator": 1, "ListGroups": 1,
                       "ListTransactions": 1, "ListConfigResources": 1, "ApiVersions": 1},
           OF_ONE_BROKER),
    Family("security", {"AlterClientQuotas": 5, "DescribeClientQuotas": 3, "AlterUserScramCredentials": 5,
                        "DescribeUserScramCredentials": 3, "SaslHandshake": 1, "SaslAuthenticate": 1,
                        "CreateDelegationToken": 1, "RenewDelegationToken": 1, "ExpireDelegationToken": 1,
                        "DescribeDelegationToken": 1}, OF_SECURITY),
)  # fmt: skip

INTERNAL_IN = ("Metadata.name", "Produce.name", "OffsetCommit.name", "TxnOffsetCommit.name", "AddPartitionsToTxn.name",
               "DescribeTopicPartitions.name")  # fmt: skip
"""Fields that sometimes name an internal topic, whose records no other sequence may change."""

SCRAM_NAMES = ("AlterUserScramCredentials.name", "DescribeUserScramCredentials.name")

LANDED = {"records", "groups", "transactions", "offsets", "topics", "brokers", "security"}
"""Families without unexplained differences; the others run only with all families (`-m long`)."""


def clients(suffix: str) -> list[Pools]:
    """Two clients with the same names and one with arbitrary names, which no other sequence uses."""
    groups, ids = ([b"%s-%s" % (stem, suffix.encode()) for stem in stems] for stems in ((b"g1", b"g2"), (b"x1", b"x2")))
    one = {"group_id": groups[:1], "transactional_id": ids[:1], "v3_and_below_transactional_id": ids[:1]}
    any_of = {"group_id": groups, "transactional_id": ids, "v3_and_below_transactional_id": ids}
    shared: dict[str, Any] = {
        "groups": groups, "groups_names": groups, "transactional_ids": ids, "key": [*groups, *ids],
        "coordinator_keys": [*groups, *ids],
    }  # fmt: skip
    return [{**shared, **one}, {**shared, **one, "group_instance_id": [b"i"]}, {**shared, **any_of}]


def subscription(*topics: bytes) -> bytes:
    """What a consumer sends with JoinGroup, in version 0."""
    names = b"".join(struct.pack(">h", len(topic)) + topic for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", 0)


def apis(family: Family, versions: Mapping[int, tuple[int, int]], keys: Mapping[str, int]) -> list[Api]:
    """The requests of a family, in the versions that both brokers support."""
    return [
        Api(name, versions[keys[name]], weight)
        for name, weight in family.weights.items()
        if weight and keys[name] in versions
    ]


def pools(family: Family, suffix: str, names: list[str], ids: list[bytes]) -> Pools:
    """Field values for topics with these names and ids."""
    end = suffix.encode()
    topics = [name.encode() for name in names]
    known = [*topics, *topics, *topics, b"no-" + end]
    made = [*topics, b"v-" + end, b"v-" + end, b"w-" + end, b"v.x-" + end, b"v_x-" + end]
    fields = ("topic", "name", "topics", "topic_name", "topic_names", "resource_name")
    named: dict[str, Any] = dict.fromkeys(fields, known) | {"topic_id": ids, "unknown": [b"a-" + end, b"b-" + end]}
    named |= {field: [b"e1-" + end, b"e2-" + end] for field in ("entity_name", "match", "user")}
    named["addresses"] = [address.encode() for address in addresses(suffix)]
    named["metadata"] = (subscription(), subscription(*topics[:1]), subscription(*topics), b"", b"\0")
    metadata = [bytes(16), bytes(16), *ids]
    internal = {field: [*known, *known, b"__consumer_offsets", b"__transaction_state"] for field in INTERNAL_IN}
    of_apis: dict[str, Any] = {"CreateTopics.name": made, "Metadata.topic_id": metadata, **internal}
    of_apis |= dict.fromkeys(SCRAM_NAMES, named["user"])
    return {**COMMON, **named, **of_apis, **family.pools}


LOWEST = {"OffsetCommit": 1, "OffsetFetch": 1}
"""Version 0 keeps offsets in ZooKeeper; Kafka 3.9 in KRaft mode has none (and returns UNSUPPORTED_VERSION)."""
