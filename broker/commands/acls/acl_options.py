"""What the options of `odradek acls` ask for: filters of resources with the entries for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click

from odradek.security.acls.acl_filters import ResourcePatternFilter
from odradek.security.acls.acl_types import (
    CLUSTER_NAME,
    SUPPORTED,
    WILDCARD,
    AccessControlEntry,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    by_title,
)
from odradek.security.principal import Principal

Wanted = dict[ResourcePatternFilter, list[AccessControlEntry]]

_CLUSTER = ResourcePatternFilter(ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL)
_NAMED = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
    "delegation_token": ResourceType.DELEGATION_TOKEN,
    "user_principal": ResourceType.USER,
}
_PRODUCER = {
    ResourceType.TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
_CONSUMER = {
    ResourceType.TOPIC: (Operation.READ, Operation.DESCRIBE),
    ResourceType.GROUP: (Operation.READ,),
}


def listed(options: Mapping[str, Any]) -> Wanted:
    """The resources to list; none: all."""
    return {resource: [] for resource in _resources(options)}


def changed(options: Mapping[str, Any]) -> Wanted:
    """The resources with the ACLs to add or to remove; no entries, with --remove: all of them. Raises UsageError."""
    resources = _resources(options)
    if not resources:
        raise click.UsageError("give a resource: --topic, --group, --cluster, --transactional-id, --delegation-token")
    wanted = _of_roles(options, resources) if options["producer"] or options["consumer"] else _given(options, resources)
    if options["add"] and not all(wanted.values()):
        raise click.UsageError("--add needs --allow-principal or --deny-principal")
    return wanted


def _resources(options: Mapping[str, Any]) -> list[ResourcePatternFilter]:
    """Without repetitions; --cluster counts with literal patterns only, as in Kafka."""
    pattern = PatternType[options["resource_pattern_type"].upper()]
    found = [
        ResourcePatternFilter(kind, name.strip(), pattern)
        for option, kind in _NAMED.items()
        for name in options[option]
    ]
    if pattern == PatternType.LITERAL and (options["cluster"] or options["idempotent"]):
        found.append(_CLUSTER)
    return list(dict.fromkeys(found))


def _given(options: Mapping[str, Any], resources: list[ResourcePatternFilter]) -> Wanted:
    operations = [_operation(text) for text in options["operation"] or ("All",)]
    entries = _entries(options, operations)
    for resource in resources:
        allowed = (*SUPPORTED[resource.type], Operation.ALL)
        if entries and not set(operations) <= set(allowed):
            titles = ", ".join(operation.title for operation in allowed)
            raise click.UsageError(f"{resource.type.name} has only the operations {titles}")
    return dict.fromkeys(resources, entries)


def _operation(text: str) -> Operation:
    found: Operation = by_title(Operation, text.strip())
    if not found.concrete:
        titles = ", ".join(operation.title for operation in Operation if operation.concrete)
        raise click.UsageError(f"--operation must be one of {titles}, not '{text}'")
    return found


def _of_roles(options: Mapping[str, Any], resources: list[ResourcePatternFilter]) -> Wanted:
    """--producer, --consumer or both: what each needs of each resource."""
    wanted: Wanted = {}
    for role, needs in (("producer", _PRODUCER), ("consumer", _CONSUMER)):
        for resource in resources if options[role] else ():
            if operations := needs.get(resource.type):
                entries = [*wanted.get(resource, ()), *_entries(options, operations)]
                wanted[resource] = list(dict.fromkeys(entries))
    if options["idempotent"]:
        wanted[_CLUSTER] = _entries(options, [Operation.IDEMPOTENT_WRITE])
    return wanted


def _entries(options: Mapping[str, Any], operations: Iterable[Operation]) -> list[AccessControlEntry]:
    """The entries of --allow-… and --deny-…, each principal with each operation and host."""
    found = [
        AccessControlEntry(str(principal), host, operation, permission)
        for permission, side in ((Permission.ALLOW, "allow"), (Permission.DENY, "deny"))
        for principal in principals(options[f"{side}_principal"])
        for operation in operations
        for host in options[f"{side}_host"] or (WILDCARD,)
    ]
    return list(dict.fromkeys(found))


def principals(texts: Iterable[str]) -> list[Principal]:
    """Raises UsageError for a text without a type."""
    try:
        return [Principal.parse(text.strip()) for text in texts]
    except ValueError as error:
        raise click.UsageError(str(error)) from None
