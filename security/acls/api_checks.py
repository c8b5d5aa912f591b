"""What each API checks before it does anything, as data: a row an API, taken from KafkaApis of Apache Kafka 3.9.

The checks of a row are in Kafka's order. One check is passed with any of its rights, tried in their order, and names
the field of the request that has the resource; the cluster needs none. A check precedes every error that would reveal
whether a resource exists, unless its note says otherwise. `guards` are the checks that need nothing of the request but
its version, so that dispatch can make them before it decodes.

APIs that Odradek has from Kafka 4.1 beyond 3.9 (topic ids in Produce and OffsetCommit, ListConfigResources) check what
4.1 does. In a cluster with ZooKeeper the controller's own table (ControllerApis) does not apply.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from odradek.protocol.errors import (
    CLUSTER_AUTHORIZATION_FAILED,
    DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    GROUP_AUTHORIZATION_FAILED,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
from odradek.security.acls.acl_types import Operation, ResourceType

CLUSTER, GROUP, TOPIC = ResourceType.CLUSTER, ResourceType.GROUP, ResourceType.TOPIC
TRANSACTIONAL_ID, TOKEN, USER = ResourceType.TRANSACTIONAL_ID, ResourceType.DELEGATION_TOKEN, ResourceType.USER
ALTER, ALTER_CONFIGS, CLUSTER_ACTION = Operation.ALTER, Operation.ALTER_CONFIGS, Operation.CLUSTER_ACTION
CREATE, DELETE, DESCRIBE = Operation.CREATE, Operation.DELETE, Operation.DESCRIBE
DESCRIBE_CONFIGS, READ, WRITE = Operation.DESCRIBE_CONFIGS, Operation.READ, Operation.WRITE

LAST = 1 << 15  # above all versions
ALL = (0, LAST)

# The error of a resource that a client may not touch.
ERRORS = {
    CLUSTER: CLUSTER_AUTHORIZATION_FAILED,
    GROUP: GROUP_AUTHORIZATION_FAILED,
    TOPIC: TOPIC_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    TOKEN: DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    USER: DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


class Denied(enum.Enum):
    """The effect of a missing right on the request."""

    REQUEST = "the request fails: the error is in the answer, or in each of its elements where it has no other place"
    ITEM = "this element of the request fails, the others are served"
    OMITTED = "this element is not in the answer, without an error"
    FIELD = "a field of this element has the error, and what it is about is not in the answer"


@dataclass(frozen=True)
class Right:
    """An operation on a type of resource; `any_name`: on any one resource of the type (Session.allows_any)."""

    operation: Operation
    resource: ResourceType
    any_name: bool = False


@dataclass(frozen=True)
class Check:
    """One check: `names` is the field with the resource's name, `when` the condition under which it is made."""

    rights: tuple[Right, ...]
    names: str = ""
    denied: Denied = Denied.REQUEST
    error: int = NONE
    versions: tuple[int, int] = ALL
    when: str = ""
    note: str = ""


@dataclass(frozen=True)
class Bits:
    """An answer's bit field of authorized operations (KIP-430), if the request asks for it."""

    resource: ResourceType
    versions: tuple[int, int] = ALL
    note: str = ""


@dataclass(frozen=True)
class ApiChecks:
    """The row of one API; without checks, every connected client may use it."""

    key: int
    name: str
    checks: tuple[Check, ...] = ()
    bits: tuple[Bits, ...] = ()
    note: str = ""


def _check(operation: Operation, resource: ResourceType, names: str = "", **fields: object) -> Check:
    """A check of one right, with the error of its resource; `fields` are those of Check."""
    fields.setdefault("error", ERRORS[resource])
    return Check((Right(operation, resource),), names, **fields)  # type: ignore[arg-type]  # one type for all fields


def _cluster(key: int, name: str, operation: Operation, note: str = "") -> ApiChecks:
    """A row whose only check is a right on the cluster."""
    return ApiChecks(key, name, (_check(operation, CLUSTER),), note=note)


def _group(key: int, name: str) -> ApiChecks:
    """A row of a group's members."""
    return ApiChecks(key, name, (_check(READ, GROUP, "group_id"),))


ITEM, OMITTED, FIELD = Denied.ITEM, Denied.OMITTED, Denied.FIELD
_NO_NAME = "An id without a topic answers UNKNOWN_TOPIC_ID before this."

_ROWS = (
    ApiChecks(
        0, "Produce",
        (
            _check(
                WRITE, TRANSACTIONAL_ID, "transactional_id", when="a batch is transactional",
                note="Without a transactional id it fails as well. With acks=0 the connection ends.",
            ),
            _check(WRITE, TOPIC, "topic_data.name", denied=ITEM, note=_NO_NAME),
        ),
        note="An idempotent batch needs nothing more (KIP-679).",
    ),
    ApiChecks(
        1, "Fetch",
        (
            _check(
                CLUSTER_ACTION, CLUSTER, denied=ITEM, error=TOPIC_AUTHORIZATION_FAILED, when="replica_id >= 0",
                note="A follower without the right gets the topic's error for each partition of the session.",
            ),
            _check(READ, TOPIC, "topics.topic", denied=ITEM, when="replica_id < 0", note=_NO_NAME),
        ),
        note="Checked at each fetch, for all partitions of the session: a right that is withdrawn ends the next one.",
    ),
    ApiChecks(2, "ListOffsets", (_check(DESCRIBE, TOPIC, "topics.name", denied=ITEM),)),
    ApiChecks(
        3, "Metadata",
        (
            _check(
                DESCRIBE, TOPIC, "topics.name", denied=ITEM, when="topics are named",
                note="The response repeats the name or the id of the request, and lacks the other.",
            ),
            _check(DESCRIBE, TOPIC, denied=OMITTED, error=NONE, when="all topics are asked for"),
            Check(
                (Right(CREATE, CLUSTER), Right(CREATE, TOPIC)), "topics.name", ITEM, TOPIC_AUTHORIZATION_FAILED,
                when="allow_auto_topic_creation, auto.create.topics.enable, and the topic does not exist",
            ),
        ),
        (
            Bits(TOPIC, (8, LAST), "For topics that are described only."),
            Bits(CLUSTER, (8, 10), "0 without Describe on the cluster."),
        ),
    ),
    _cluster(4, "LeaderAndIsr", CLUSTER_ACTION),
    _cluster(5, "StopReplica", CLUSTER_ACTION),
    _cluster(6, "UpdateMetadata", CLUSTER_ACTION),
    _cluster(7, "ControlledShutdown", CLUSTER_ACTION),
    ApiChecks(
        8, "OffsetCommit",
        (_check(READ, GROUP, "group_id"), _check(READ, TOPIC, "topics.name", denied=ITEM, note=_NO_NAME)),
    ),
    ApiChecks(
        9, "OffsetFetch",
        (
            _check(DESCRIBE, GROUP, "group_id", versions=(0, 7)),
            _check(DESCRIBE, GROUP, "groups.group_id", denied=ITEM, versions=(8, LAST)),
            _check(DESCRIBE, TOPIC, "topics.name", denied=ITEM, when="topics are named", note=_NO_NAME),
            _check(DESCRIBE, TOPIC, denied=OMITTED, error=NONE, when="all topics are asked for"),
        ),
    ),
    ApiChecks(
        10, "FindCoordinator",
        (
            _check(DESCRIBE, GROUP, "key, coordinator_keys", denied=ITEM, when="key_type = 0"),
            _check(DESCRIBE, TRANSACTIONAL_ID, "key, coordinator_keys", denied=ITEM, when="key_type = 1"),
            _check(CLUSTER_ACTION, CLUSTER, denied=ITEM, when="key_type = 2", versions=(6, LAST)),
        ),
        note="Below version 4 there is one key, and the error is the request's.",
    ),
    _group(11, "JoinGroup"),
    _group(12, "Heartbeat"),
    _group(13, "LeaveGroup"),
    _group(14, "SyncGroup"),
    ApiChecks(
        15, "DescribeGroups",
        (_check(DESCRIBE, GROUP, "groups", denied=ITEM),),
        (Bits(GROUP, (3, LAST), "For groups that are described without an error."),),
    ),
    ApiChecks(
        16, "ListGroups",
        (Check((Right(DESCRIBE, CLUSTER), Right(DESCRIBE, GROUP)), "groups of the answer", OMITTED),),
        note="A principal with Describe on the cluster sees all groups.",
    ),
    ApiChecks(17, "SaslHandshake"),
    ApiChecks(18, "ApiVersions"),
    ApiChecks(
        19, "CreateTopics",
        (
            Check((Right(CREATE, CLUSTER), Right(CREATE, TOPIC)), "topics.name", ITEM, TOPIC_AUTHORIZATION_FAILED,
                  note="A name that comes twice answers INVALID_REQUEST before this."),
            _check(DESCRIBE_CONFIGS, TOPIC, "topics.name", denied=FIELD, versions=(5, LAST),
                   note="topic_config_error_code; the topic is made, its configs and numbers are not in the answer."),
        ),
    ),
    ApiChecks(
        20, "DeleteTopics",
        (
            _check(
                DESCRIBE, TOPIC, "topics.topic_id", denied=ITEM, versions=(6, LAST), when="asked for by id",
                note="The answer has the id and no name. An id without a topic answers UNKNOWN_TOPIC_ID before this.",
            ),
            _check(DELETE, TOPIC, "topics.name, topic_names", denied=ITEM),
        ),
        note="A right to Delete the cluster does not stand in for it, as it does with KRaft.",
    ),
    ApiChecks(21, "DeleteRecords", (_check(DELETE, TOPIC, "topics.name", denied=ITEM),)),
    ApiChecks(
        22, "InitProducerId",
        (
            _check(WRITE, TRANSACTIONAL_ID, "transactional_id", when="it has a transactional id"),
            Check(
                (Right(Operation.IDEMPOTENT_WRITE, CLUSTER), Right(WRITE, TOPIC, any_name=True)),
                error=CLUSTER_AUTHORIZATION_FAILED, when="it has none",
                note="A producer that may write to any topic may be idempotent (KIP-679).",
            ),
        ),
    ),
    ApiChecks(
        23, "OffsetForLeaderEpoch",
        (
            Check((Right(CLUSTER_ACTION, CLUSTER), Right(DESCRIBE, TOPIC)), "topics.topic", ITEM,
                  TOPIC_AUTHORIZATION_FAILED),
        ),
    ),
    ApiChecks(
        24, "AddPartitionsToTxn",
        (
            _check(WRITE, TRANSACTIONAL_ID, "v3_and_below_transactional_id", versions=(0, 3)),
            _check(
                WRITE, TOPIC, "v3_and_below_topics.name", denied=ITEM, versions=(0, 3),
                note="Internal topics fail for everyone. One that fails leaves OPERATION_NOT_ATTEMPTED to the others.",
            ),
            _check(CLUSTER_ACTION, CLUSTER, versions=(4, LAST), note="Brokers send it for their clients."),
        ),
    ),
    ApiChecks(
        25, "AddOffsetsToTxn",
        (_check(WRITE, TRANSACTIONAL_ID, "transactional_id"), _check(READ, GROUP, "group_id")),
    ),
    ApiChecks(26, "EndTxn", (_check(WRITE, TRANSACTIONAL_ID, "transactional_id"),)),
    ApiChecks(
        27, "WriteTxnMarkers",
        (Check((Right(ALTER, CLUSTER), Right(CLUSTER_ACTION, CLUSTER)), error=CLUSTER_AUTHORIZATION_FAILED),),
    ),
    ApiChecks(
        28, "TxnOffsetCommit",
        (
            _check(WRITE, TRANSACTIONAL_ID, "transactional_id"),
            _check(READ, GROUP, "group_id"),
            _check(READ, TOPIC, "topics.name", denied=ITEM),
        ),
        note="The producer id needs no check of its own: the transactional id implies it.",
    ),
    _cluster(29, "DescribeAcls", DESCRIBE, "Before SECURITY_DISABLED."),
    _cluster(30, "CreateAcls", ALTER, "Before SECURITY_DISABLED."),
    _cluster(31, "DeleteAcls", ALTER, "Before SECURITY_DISABLED."),
    ApiChecks(
        32, "DescribeConfigs",
        (
            _check(DESCRIBE_CONFIGS, TOPIC, "resources.resource_name", denied=ITEM, when="resource_type = 2"),
            _check(DESCRIBE_CONFIGS, CLUSTER, denied=ITEM, when="resource_type = 4, 8 or 16"),
        ),
        note="Values of sensitive configs are null for everyone. What may be described comes first.",
    ),
    ApiChecks(
        33, "AlterConfigs",
        (
            _check(ALTER_CONFIGS, TOPIC, "resources.resource_name", denied=ITEM, when="resource_type = 2"),
            _check(ALTER_CONFIGS, CLUSTER, denied=ITEM, when="resource_type = 4 or 16"),
        ),
        note="Duplicates, broker loggers and null values fail before this. Other types fail the request.",
    ),
    _cluster(34, "AlterReplicaLogDirs", ALTER),
    _cluster(35, "DescribeLogDirs", DESCRIBE, "Below version 3, without an error of its own, the answer is empty."),
    ApiChecks(36, "SaslAuthenticate"),
    ApiChecks(
        37, "CreatePartitions",
        (_check(ALTER, TOPIC, "topics.name", denied=ITEM,
                note="A name that comes twice answers INVALID_REQUEST before this."),),
    ),
    ApiChecks(
        38, "CreateDelegationToken",
        (_check(Operation.CREATE_TOKENS, USER, "owner_principal_name", when="the requester is not the owner"),),
        note="DELEGATION_TOKEN_REQUEST_NOT_ALLOWED before this: PLAINTEXT, TLS without a certificate, or by a token.",
    ),
    ApiChecks(39, "RenewDelegationToken", note="Only the owner and the renewers: DELEGATION_TOKEN_OWNER_MISMATCH."),
    ApiChecks(40, "ExpireDelegationToken", note="Only the owner and the renewers: DELEGATION_TOKEN_OWNER_MISMATCH."),
    ApiChecks(
        41, "DescribeDelegationToken",
        (
            Check((Right(DESCRIBE, TOKEN), Right(Operation.DESCRIBE_TOKENS, USER)),
                  "token_id of the answer, owner of the answer", OMITTED,
                  when="the requester is neither the owner nor a renewer"),
        ),
    ),
    ApiChecks(42, "DeleteGroups", (_check(DELETE, GROUP, "groups_names", denied=ITEM),)),
    _cluster(43, "ElectLeaders", ALTER),
    ApiChecks(
        44, "IncrementalAlterConfigs",
        (
            _check(ALTER_CONFIGS, TOPIC, "resources.resource_name", denied=ITEM, when="resource_type = 2"),
            _check(ALTER_CONFIGS, CLUSTER, denied=ITEM, when="resource_type = 4, 8 or 16"),
        ),
        note="Duplicates and null values fail before this. Other types fail the request.",
    ),
    _cluster(45, "AlterPartitionReassignments", ALTER),
    _cluster(46, "ListPartitionReassignments", DESCRIBE),
    ApiChecks(
        47, "OffsetDelete", (_check(DELETE, GROUP, "group_id"), _check(READ, TOPIC, "topics.name", denied=ITEM))
    ),
    _cluster(48, "DescribeClientQuotas", DESCRIBE_CONFIGS),
    _cluster(49, "AlterClientQuotas", ALTER_CONFIGS),
    _cluster(50, "DescribeUserScramCredentials", DESCRIBE),
    _cluster(51, "AlterUserScramCredentials", ALTER),
    _cluster(56, "AlterPartition", CLUSTER_ACTION),
    _cluster(57, "UpdateFeatures", ALTER),
    _cluster(58, "Envelope", CLUSTER_ACTION, "Only on the listener between brokers; elsewhere the connection ends."),
    ApiChecks(60, "DescribeCluster", bits=(Bits(CLUSTER, note="0 without Describe on the cluster."),)),
    ApiChecks(
        61, "DescribeProducers",
        (_check(READ, TOPIC, "topics.name", denied=ITEM, note="An invalid name answers INVALID_TOPIC before this."),),
    ),
    ApiChecks(
        65, "DescribeTransactions",
        (
            _check(DESCRIBE, TRANSACTIONAL_ID, "transactional_ids", denied=ITEM),
            _check(DESCRIBE, TOPIC, "topics of the answer", denied=OMITTED, error=NONE),
        ),
    ),
    ApiChecks(66, "ListTransactions", (_check(DESCRIBE, TRANSACTIONAL_ID, "transactional ids of the answer",
                                              denied=OMITTED, error=NONE),)),
    _cluster(67, "AllocateProducerIds", CLUSTER_ACTION),
    _group(68, "ConsumerGroupHeartbeat"),
    ApiChecks(69, "ConsumerGroupDescribe", (_check(DESCRIBE, GROUP, "group_ids", denied=ITEM),), (Bits(GROUP),)),
    _cluster(74, "ListConfigResources", DESCRIBE_CONFIGS),
    ApiChecks(
        75, "DescribeTopicPartitions",
        (
            _check(DESCRIBE, TOPIC, "topics.name", denied=ITEM, when="topics are named", note="The answer has no id."),
            _check(DESCRIBE, TOPIC, denied=OMITTED, error=NONE, when="all topics are asked for"),
        ),
        (Bits(TOPIC, note="Always, not only if the request asks for it."),),
    ),
)  # fmt: skip

ROWS = {row.key: row for row in _ROWS}


def checks(key: int, version: int) -> tuple[Check, ...]:
    """The checks of an API in one version, in order."""
    return tuple(check for check in ROWS[key].checks if check.versions[0] <= version <= check.versions[1])


def guards(key: int, version: int) -> tuple[Check, ...]:
    """Those whose result depends on nothing in the request: rights on the cluster without which it fails."""
    return tuple(check for check in checks(key, version) if _is_guard(check))


def _is_guard(check: Check) -> bool:
    unconditional = check.denied == Denied.REQUEST and not check.when
    return unconditional and all(right.resource == CLUSTER for right in check.rights)
