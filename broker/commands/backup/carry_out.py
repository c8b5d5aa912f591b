"""Sends the changes of a restore, each kind in requests of many; a change that is refused costs no other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from kafka import errors as kafka_errors
from kafka.protocol.admin import (
    AlterClientQuotasRequest,
    CreateAclsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    IncrementalAlterConfigsRequest,
)
from kafka.structs import OffsetAndMetadata, TopicPartition

from odradek.broker.commands._shared.client import BROKER, TOPIC, Cluster, explain
from odradek.broker.commands.backup.current_cluster import REFUSED, patiently, pieces
from odradek.broker.commands.backup.restore_plans import (
    Item,
    MorePartitions,
    NewAcl,
    NewConfig,
    NewCredential,
    NewOffset,
    NewQuota,
    NewTopic,
    Outcome,
)
from odradek.security.acls.acl_types import Operation, PatternType, Permission, ResourceType

if TYPE_CHECKING:
    from odradek.cluster.tree.tree import Tree

_SET = 0
_UNKNOWN = -1  # the code of an error that has its own text
_KINDS = {"topics": TOPIC, "brokers": BROKER}

Errors = dict[int, str]
"""Why a change was refused, by its `id()`: a change with a dictionary has no hash."""


def carry_out(cluster: Cluster, tree: Tree | None, items: Sequence[Item]) -> list[Item]:
    """Carry out the changes of the items, in their order by kind; returns the items with what became of them."""
    errors: Errors = {}
    changes = [item.change for item in items if item.change is not None]
    for kind in dict.fromkeys(map(type, changes)):
        errors |= _send(cluster, tree, [one for one in changes if type(one) is kind])
    return [_after(item, errors) for item in items]


def _after(item: Item, errors: Errors) -> Item:
    why = errors.get(id(item.change))
    return item if why is None else replace(item, outcome=Outcome.FAILED, text=why)


def _send(cluster: Cluster, tree: Tree | None, changes: Sequence[Any]) -> Errors:
    if isinstance(changes[0], NewCredential):
        assert tree is not None  # the plan has such changes only with a tree
        return _credentials(tree, changes)
    if key := _TOGETHER.get(type(changes[0])):
        groups = [list(some) for _, some in groupby(sorted(changes, key=key), key=key)]
    else:
        groups = [list(some) for some in pieces(changes)]
    return {change: why for some in groups for change, why in _together(cluster, some).items()}


# What a change is for, by its type: those for the same go in one request, alone.
_TOGETHER: dict[type, Callable[[Any], str]] = {
    NewConfig: lambda change: f"{change.kind} {change.name}",
    NewQuota: lambda change: repr(change.entity),
    NewOffset: lambda change: change.group,
}


def _together(cluster: Cluster, changes: Sequence[Any]) -> Errors:
    """One request; where all of it is refused, one for each change."""
    send = _REQUESTS[type(changes[0])]
    try:
        codes = patiently(cluster, lambda: send(cluster, changes))
    except REFUSED as error:
        codes = [(_UNKNOWN, str(error)) for _ in changes]
    if len(changes) > 1 and isinstance(changes[0], NewConfig | NewQuota) and codes[0][0]:
        return {one: why for change in changes for one, why in _together(cluster, [change]).items()}
    return {id(one): text or explain(code) for one, (code, text) in zip(changes, codes, strict=True) if code}


# -- requests: each returns the error code and the message for each change

Codes = list[tuple[int, str | None]]


def _topics(cluster: Cluster, changes: Sequence[NewTopic]) -> Codes:
    topic = CreateTopicsRequest.CreatableTopic
    made = [
        topic(
            name=one.name,
            num_partitions=one.topic.partitions,
            replication_factor=one.topic.replication_factor,
            assignments=[],
            configs=[
                topic.CreatableTopicConfig(name=key, value=value)
                for key, value in one.topic.configs.items()
                if value is not None
            ],
        )
        for one in changes
    ]
    request = CreateTopicsRequest(topics=made, timeout_ms=cluster.timeout_ms, validate_only=False)
    answer = cluster.send_to_controller(request, lambda found: [one.error_code for one in found.topics])
    return _in_order([one.name for one in changes], {one.name: one for one in answer.topics})


def _partitions(cluster: Cluster, changes: Sequence[MorePartitions]) -> Codes:
    make = CreatePartitionsRequest.CreatePartitionsTopic
    topics = [make(name=one.name, count=one.count, assignments=None) for one in changes]
    request = CreatePartitionsRequest(topics=topics, timeout_ms=cluster.timeout_ms, validate_only=False)
    answer = cluster.send_to_controller(request, lambda found: [one.error_code for one in found.results])
    return _in_order([one.name for one in changes], {one.name: one for one in answer.results})


def _in_order(names: Iterable[str], results: Mapping[str, Any]) -> Codes:
    return [(results[name].error_code, results[name].error_message) for name in names]


def _configs(cluster: Cluster, changes: Sequence[NewConfig]) -> Codes:
    """All for one entity: settings such as listeners are valid only together."""
    kind, name = _KINDS[changes[0].kind], changes[0].name
    make = IncrementalAlterConfigsRequest.AlterConfigsResource
    configs = [make.AlterableConfig(name=one.key, config_operation=_SET, value=one.value) for one in changes]
    request = IncrementalAlterConfigsRequest(
        resources=[make(resource_type=kind, resource_name=name, configs=configs)], validate_only=False
    )
    (result,) = cluster.send(request, int(name) if kind == BROKER and name else None).responses
    return [(result.error_code, result.error_message)] * len(changes)


def _quotas(cluster: Cluster, changes: Sequence[NewQuota]) -> Codes:
    """All of one entity: an answer has an entity once, however often it is in the request."""
    make = AlterClientQuotasRequest.EntryData
    entity = [make.EntityData(entity_type=kind, entity_name=name) for kind, name in changes[0].entity]
    ops = [make.OpData(key=one.key, value=one.value, remove=False) for one in changes]
    request = AlterClientQuotasRequest(entries=[make(entity=entity, ops=ops)], validate_only=False)
    answer = cluster.send_to_controller(request, lambda found: [one.error_code for one in found.entries])
    (result,) = answer.entries
    return [(result.error_code, result.error_message)] * len(changes)


def _acls(cluster: Cluster, changes: Sequence[NewAcl]) -> Codes:
    creations = [
        CreateAclsRequest.AclCreation(
            resource_type=ResourceType[one.acl.resource_type].value,
            resource_name=one.acl.resource_name,
            resource_pattern_type=PatternType[one.acl.pattern_type].value,
            principal=one.acl.principal,
            host=one.acl.host,
            operation=Operation[one.acl.operation].value,
            permission_type=Permission[one.acl.permission_type].value,
        )
        for one in changes
    ]
    return [(one.error_code, one.error_message) for one in cluster.send(CreateAclsRequest(creations=creations)).results]


def _offsets(cluster: Cluster, changes: Sequence[NewOffset]) -> Codes:
    """All of one group. A member that joined meanwhile makes the coordinator refuse them."""
    made = {
        TopicPartition(*one.partition): OffsetAndMetadata(one.position.offset, one.position.metadata, -1)
        for one in changes
    }
    answer = cluster.admin.alter_group_offsets(changes[0].group, made)
    for error in answer.values():
        if issubclass(error, kafka_errors.RetriableError):
            raise error  # the coordinator loads its groups
    return [(answer[TopicPartition(*one.partition)].errno, None) for one in changes]


_REQUESTS: dict[type, Callable[[Cluster, Sequence[Any]], Codes]] = {
    NewTopic: _topics,
    MorePartitions: _partitions,
    NewConfig: _configs,
    NewQuota: _quotas,
    NewAcl: _acls,
    NewOffset: _offsets,
}


def _credentials(tree: Tree, changes: Sequence[NewCredential]) -> Errors:
    """As the nodes of the backup had them, each with its notice. TreeError."""
    from odradek.cluster import user_store
    from odradek.cluster.tree import znodes
    from odradek.security.sasl.scram_keys import ScramMechanism, parse_credential

    for path in (znodes.USER_CONFIGS, znodes.CONFIG_CHANGES):
        tree.ensure(path)
    for one in changes:
        made = {ScramMechanism(one.mechanism): parse_credential(one.credential.node)}
        user_store.write_credentials(tree, one.user, made)
    return {}
