"""At least one request for each API, about one topic, group and transactional id, and the visible part of answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from odradek.protocol import interbroker

from ...clients.raw.batches import batch

TOPIC, OTHER, MISSING, SPARE = "orders", "logs", "missing", "spare"
GROUP, OTHER_GROUP, ID = "g-a", "h-a", "x-a"
UNASSIGNED_ID = 1 << 50  # a producer id

Fields = Mapping[str, Any]


class Request(NamedTuple):
    """A request in some versions; an element of an array is (name of its class, fields)."""

    api: str
    versions: tuple[int, ...]
    fields: Fields
    silent: bool = False


def frame(request: Request, version: int, topic_ids: Mapping[str, UUID]) -> bytes:
    """The bytes of the request; `id:NAME` in a field stands for the id of a topic."""
    made = {name: _made(interbroker.message_class(f"{request.api}Request"), value, topic_ids) for name, value in
            request.fields.items()}  # fmt: skip
    return interbroker.request(request.api, version, 7, "tests", **made)


def _made(kind: Any, value: Any, ids: Mapping[str, UUID]) -> Any:
    if isinstance(value, list):
        return [_made(kind, one, ids) for one in value]
    if isinstance(value, tuple):
        name, fields = value
        inner = getattr(kind, name)
        return inner(**{key: _made(inner, one, ids) for key, one in fields.items()})
    if isinstance(value, str) and value.startswith("id:"):
        return ids[value.removeprefix("id:")]
    return value


def _topics(array: str, part: str, **fields: Any) -> list[Any]:
    """An element for each topic, with one partition."""
    return [(array, {"name": name, "partitions": [(part, fields)]}) for name in (TOPIC, OTHER, MISSING)]


def _named(array: str) -> list[Any]:
    return [(array, {"name": name, "partitions": [0]}) for name in (TOPIC, OTHER)]


def _produce(transactional_id: str | None, records: bytes) -> Fields:
    rows = [
        (
            "TopicProduceData",
            {"name": name, "partition_data": [("PartitionProduceData", {"index": 0, "records": records})]},
        )
        for name in (TOPIC, MISSING)
    ]
    return {"transactional_id": transactional_id, "acks": -1, "timeout_ms": 5000, "topic_data": rows}


def _fetch(replica: int, by_id: bool = False) -> Fields:
    part = {
        "partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "last_fetched_epoch": -1, "log_start_offset": -1,
        "partition_max_bytes": 1000,
    }  # fmt: skip
    names = [{"topic_id": f"id:{name}"} if by_id else {"topic": name} for name in (TOPIC, OTHER, MISSING)]
    state = ("ReplicaState", {"replica_id": replica, "replica_epoch": -1})
    return {
        "replica_id": replica, "replica_state": state, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1000,
        "isolation_level": 0, "session_id": 0, "session_epoch": -1, "forgotten_topics_data": [], "rack_id": "",
        "topics": [("FetchTopic", {**name, "partitions": [("FetchPartition", part)]}) for name in names],
    }  # fmt: skip


def _metadata(names: list[Any] | None, creates: bool = False) -> Fields:
    return {
        "topics": names, "allow_auto_topic_creation": creates, "include_cluster_authorized_operations": True,
        "include_topic_authorized_operations": True,
    }  # fmt: skip


def _configs(kind: str, **config: Any) -> list[Any]:
    return [
        (
            kind,
            {
                "resource_type": number,
                "resource_name": name,
                "configs": [("AlterableConfig", {**config, "name": what})],
            },
        )
        for number, name, what in (
            (2, TOPIC, "retention.ms"),
            (4, "", "log.cleaner.threads"),
            (2, MISSING, "retention.ms"),
        )
    ]


def _creation(name: str) -> Any:
    return (
        "CreatableTopic",
        {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []},
    )


_PLAIN = batch([b"value"])
_TRANSACTIONAL = batch([b"value"], attributes=1 << 4, producer=UNASSIGNED_ID, epoch=0, sequence=0)
_PRODUCER = {"producer_id": UNASSIGNED_ID, "producer_epoch": 0}
_ACL = {
    "resource_type": 4, "resource_name": "no-cluster", "resource_pattern_type": 3, "principal": "User:x", "host": "*",
    "operation": 3, "permission_type": 3,
}  # fmt: skip
_FILTER = {
    "resource_type_filter": 6, "resource_name_filter": "none", "pattern_type_filter": 3, "principal_filter": None,
    "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip

REQUESTS = (
    Request("Produce", (3, 9), _produce(None, _PLAIN)),
    Request("Produce", (9,), _produce(ID, _TRANSACTIONAL)),
    Request("Produce", (9,), _produce(None, _TRANSACTIONAL)),
    Request("Fetch", (4, 12), _fetch(-1)),
    Request("Fetch", (16,), _fetch(-1, by_id=True)),
    Request("Fetch", (12,), _fetch(1)),
    Request(
        "ListOffsets", (1, 7),
        {"replica_id": -1, "isolation_level": 0,
         "topics": _topics("ListOffsetsTopic", "ListOffsetsPartition", partition_index=0, current_leader_epoch=-1,
                           timestamp=-1)},
    ),
    Request("Metadata", (1, 8, 12), _metadata(None)),
    Request("Metadata", (4, 8, 12), _metadata([
        ("MetadataRequestTopic", {"name": name, "topic_id": UUID(int=0)})
        for name in (TOPIC, OTHER, MISSING, "__consumer_offsets")])),
    Request("Metadata", (12,), _metadata([("MetadataRequestTopic", {"name": None, "topic_id": f"id:{name}"}) for name in
                                         (TOPIC, OTHER, MISSING)])),
    Request("Metadata", (9,), _metadata([("MetadataRequestTopic", {"name": "made", "topic_id": UUID(int=0)})], True)),
    Request("LeaderAndIsr", (4, 7), {"controller_id": 9, "is_kraft_controller": False, "controller_epoch": 0,
                                    "broker_epoch": -1, "type": 1, "topic_states": [], "live_leaders": []}),
    Request("StopReplica", (2, 4), {"controller_id": 9, "is_kraft_controller": False, "controller_epoch": 0,
                                   "broker_epoch": -1, "delete_partitions": False, "topics": [], "topic_states": []}),
    Request("UpdateMetadata", (6, 8), {"controller_id": 9, "is_kraft_controller": False, "controller_epoch": 0,
                                      "broker_epoch": -1, "type": 1, "topic_states": [], "live_brokers": []}),
    Request("ControlledShutdown", (3,), {"broker_id": 99, "broker_epoch": 5}),
    Request(
        "OffsetCommit", (2, 8),
        {"group_id": GROUP, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None,
         "retention_time_ms": -1,
         "topics": _topics("OffsetCommitRequestTopic", "OffsetCommitRequestPartition", partition_index=0,
                           committed_offset=1, committed_leader_epoch=-1, committed_metadata="")},
    ),
    Request("OffsetFetch", (1, 7), {"group_id": GROUP, "require_stable": False,
                                   "topics": [("OffsetFetchRequestTopic", {"name": name, "partition_indexes": [0]}) for
                                              name in (TOPIC, OTHER, MISSING)]}),
    Request("OffsetFetch", (7,), {"group_id": GROUP, "topics": None, "require_stable": False}),
    Request(
        "OffsetFetch", (8,),
        {"require_stable": False, "groups": [
            ("OffsetFetchRequestGroup", {"group_id": GROUP, "topics": [
                ("OffsetFetchRequestTopics", {"name": name, "partition_indexes": [0]}) for name in (TOPIC, OTHER)]}),
            ("OffsetFetchRequestGroup", {"group_id": OTHER_GROUP, "topics": None}),
        ]},
    ),
    Request("FindCoordinator", (1, 3), {"key": GROUP, "key_type": 0}),
    Request("FindCoordinator", (1, 3), {"key": ID, "key_type": 1}),
    Request("FindCoordinator", (4,), {"key_type": 0, "coordinator_keys": [GROUP, OTHER_GROUP]}),
    Request("FindCoordinator", (4,), {"key_type": 1, "coordinator_keys": [ID, "y"]}),
    Request("JoinGroup", (2, 5, 9), {"group_id": GROUP, "session_timeout_ms": 1, "rebalance_timeout_ms": 1000,
                                    "member_id": "", "group_instance_id": None, "protocol_type": "consumer",
                                    "protocols": [("JoinGroupRequestProtocol", {"name": "range", "metadata": b""})],
                                    "reason": None}),
    Request("Heartbeat", (0, 4), {"group_id": GROUP, "generation_id": 1, "member_id": "m", "group_instance_id": None}),
    Request("LeaveGroup", (0, 2), {"group_id": GROUP, "member_id": "m"}),
    Request("LeaveGroup", (4,), {"group_id": GROUP, "members": [
        ("MemberIdentity", {"member_id": "m", "group_instance_id": None})]}),
    Request("SyncGroup", (0, 5), {"group_id": GROUP, "generation_id": 1, "member_id": "m", "group_instance_id": None,
                                 "protocol_type": "consumer", "protocol_name": "range", "assignments": []}),
    Request("DescribeGroups", (0, 5), {"groups": [GROUP, OTHER_GROUP], "include_authorized_operations": True}),
    Request("ListGroups", (0, 4), {"states_filter": []}),
    Request("CreateTopics", (1, 6), {"topics": [_creation("new"), _creation(TOPIC)], "timeout_ms": 5000,
                                    "validate_only": True}),
    Request("DeleteTopics", (1, 5), {"topic_names": [MISSING], "timeout_ms": 5000}),
    Request("DeleteTopics", (6,), {"timeout_ms": 5000, "topics": [
        ("DeleteTopicState", {"name": None, "topic_id": f"id:{SPARE}"}),
        ("DeleteTopicState", {"name": MISSING, "topic_id": UUID(int=0)})]}),
    Request("DeleteRecords", (0, 2), {"timeout_ms": 5000, "topics": _topics(
        "DeleteRecordsTopic", "DeleteRecordsPartition", partition_index=0, offset=0)}),
    Request("InitProducerId", (1, 4), {"transactional_id": None, "transaction_timeout_ms": 1000, "producer_id": -1,
                                      "producer_epoch": -1}),
    Request("InitProducerId", (4,), {"transactional_id": ID, "transaction_timeout_ms": 1000, "producer_id": -1,
                                    "producer_epoch": -1}),
    Request("OffsetForLeaderEpoch", (3, 4), {"replica_id": -1, "topics": [
        ("OffsetForLeaderTopic", {"topic": name, "partitions": [
            ("OffsetForLeaderPartition", {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0})]})
        for name in (TOPIC, MISSING)]}),
    Request("AddPartitionsToTxn", (1, 3), {
        "v3_and_below_transactional_id": ID, "v3_and_below_producer_id": UNASSIGNED_ID,
        "v3_and_below_producer_epoch": 0, "v3_and_below_topics": _named("AddPartitionsToTxnTopic")}),
    Request("AddPartitionsToTxn", (4,), {"transactions": [
        ("AddPartitionsToTxnTransaction", {"transactional_id": ID, **_PRODUCER, "verify_only": True,
                                           "topics": _named("AddPartitionsToTxnTopic")})]}),
    Request("AddOffsetsToTxn", (1, 3), {"transactional_id": ID, **_PRODUCER, "group_id": GROUP}),
    Request("EndTxn", (1, 3), {"transactional_id": ID, **_PRODUCER, "committed": True}),
    Request("WriteTxnMarkers", (1,), {"markers": [
        ("WritableTxnMarker", {**_PRODUCER, "transaction_result": False, "coordinator_epoch": 0, "topics": [
            ("WritableTxnMarkerTopic", {"name": MISSING, "partition_indexes": [0]})]})]}),
    Request("TxnOffsetCommit", (2, 3), {
        "transactional_id": ID, "group_id": GROUP, **_PRODUCER, "generation_id": -1, "member_id": "",
        "group_instance_id": None,
        "topics": _topics("TxnOffsetCommitRequestTopic", "TxnOffsetCommitRequestPartition", partition_index=0,
                          committed_offset=1, committed_leader_epoch=-1, committed_metadata="")}),
    Request("DescribeAcls", (1, 3), _FILTER),
    Request("CreateAcls", (1, 3), {"creations": [("AclCreation", _ACL)]}),
    Request("DeleteAcls", (1, 3), {"filters": [("DeleteAclsFilter", _FILTER)]}),
    Request("DescribeConfigs", (1, 4), {"include_synonyms": False, "include_documentation": False, "resources": [
        ("DescribeConfigsResource", {"resource_type": kind, "resource_name": name, "configuration_keys": [what]})
        for kind, name, what in ((2, TOPIC, "retention.ms"), (4, "0", "log.cleaner.threads"),
                                 (2, MISSING, "retention.ms"), (8, "0", "none"))]}),
    Request("AlterConfigs", (1, 2), {"validate_only": True, "resources": _configs("AlterConfigsResource", value="2")}),
    Request("IncrementalAlterConfigs", (0, 1), {"validate_only": True, "resources": _configs(
        "AlterConfigsResource", value="2", config_operation=0)}),
    Request("DescribeLogDirs", (1, 4), {"topics": [("DescribableLogDirTopic", {"topic": TOPIC, "partitions": [0]})]}),
    Request("CreatePartitions", (1, 3), {"timeout_ms": 5000, "validate_only": True, "topics": [
        ("CreatePartitionsTopic", {"name": name, "count": 3, "assignments": None}) for name in (TOPIC, MISSING)]}),
    Request("DeleteGroups", (1, 2), {"groups_names": ["g-none", "h-none"]}),
    Request("ElectLeaders", (1, 2), {"election_type": 0, "timeout_ms": 5000, "topic_partitions": [
        ("TopicPartitions", {"topic": TOPIC, "partitions": [0]})]}),
    Request("AlterPartitionReassignments", (0,), {"timeout_ms": 5000, "topics": [
        ("ReassignableTopic", {"name": TOPIC, "partitions": [
            ("ReassignablePartition", {"partition_index": 0, "replicas": None})]})]}),
    Request("ListPartitionReassignments", (0,), {"timeout_ms": 5000, "topics": [
        ("ListPartitionReassignmentsTopics", {"name": TOPIC, "partition_indexes": [0]})]}),
    Request("OffsetDelete", (0,), {"group_id": "g-none", "topics": _topics(
        "OffsetDeleteRequestTopic", "OffsetDeleteRequestPartition", partition_index=0)}),
    Request("DescribeClientQuotas", (0, 1), {"components": [], "strict": False}),
    Request("AlterClientQuotas", (0, 1), {"validate_only": True, "entries": [("EntryData", {
        "entity": [("EntityData", {"entity_type": "user", "entity_name": "u"})],
        "ops": [("OpData", {"key": "consumer_byte_rate", "value": 1e6, "remove": False})]})]}),
    Request("DescribeUserScramCredentials", (0,), {"users": [("UserName", {"name": "u"})]}),
    Request("AlterUserScramCredentials", (0,), {"upsertions": [], "deletions": [
        ("ScramCredentialDeletion", {"name": "nobody", "mechanism": 1})]}),
    Request("DescribeCluster", (0,), {"include_cluster_authorized_operations": True}),
    Request("DescribeProducers", (0,), {"topics": [
        ("TopicRequest", {"name": name, "partition_indexes": [0]}) for name in (TOPIC, MISSING)]}),
    Request("DescribeTransactions", (0,), {"transactional_ids": [ID, "y"]}),
    Request("ListTransactions", (0,), {"state_filters": [], "producer_id_filters": []}),
)  # fmt: skip

VISIBLE = frozenset({
    "error_code", "partition_error_code", "topic_config_error_code", "name", "topic", "topic_name", "group_id",
    "transactional_id", "resource_name", "resource_type", "partition_index", "index", "partition", "partition_id",
    "key", "is_internal", "topic_id", "authorized_operations", "topic_authorized_operations",
    "cluster_authorized_operations", "controller_id", "num_partitions", "replication_factor",
})  # fmt: skip
"""Fields that a comparison covers; all others depend on the broker or on time."""


def visible(answer: Any) -> Any:
    """The visible fields of an answer, comparable between brokers: array elements are sorted by content."""
    if isinstance(answer, list):
        return sorted((visible(one) for one in answer if not _is_ours(one)), key=repr)
    if not hasattr(type(answer), "__slots__") or isinstance(answer, (str, bytes, UUID, int)):
        return None
    return {name: value for name, value in _shown(answer) if value not in (None, [], {})}


def _is_ours(row: Any) -> bool:
    """A config that only our broker has."""
    return str(getattr(row, "name", "")).startswith("odradek.")


def _shown(answer: Any) -> Iterator[tuple[str, Any]]:
    for name in type(answer).fields:
        value = getattr(answer, name, None)
        if name == "topic_id":
            yield name, value is not None and value.int != 0
        elif name in VISIBLE:
            yield name, sorted(value) if isinstance(value, (set, frozenset)) else value
        elif isinstance(value, list):
            yield name, visible(value)
