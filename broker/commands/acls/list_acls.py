"""Implements `odradek acls --list`."""

from __future__ import annotations

from typing import Any

import click
from kafka.protocol.admin import DescribeAclsRequest

from odradek.broker.commands._shared.client import Cluster, check
from odradek.broker.commands.acls.acl_options import Wanted
from odradek.broker.commands.acls.change_acls import indented
from odradek.security.acls.acl_filters import ResourcePatternFilter
from odradek.security.acls.acl_types import (
    AccessControlEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from odradek.security.principal import Principal

Found = dict[ResourcePattern, list[AccessControlEntry]]


def print_all(cluster: Cluster, wanted: Wanted, principals: list[Principal]) -> None:
    """Print the ACLs of the resources, or of all; for each principal by itself if there are any. RequestFailed."""
    found: Found = {}
    for resource in wanted or (ResourcePatternFilter(),):
        response = cluster.send(describe_request(resource))
        check(response.error_code, response.error_message)
        found |= acls_in(response)
    if not principals:
        click.echo(text(found), nl=False)
    for principal in principals:
        click.echo(f"ACLs for principal `{principal}`\n{text(found, principal)}", nl=False)


def describe_request(resource: ResourcePatternFilter) -> Any:
    """The DescribeAclsRequest for all ACLs of what the filter finds."""
    return DescribeAclsRequest(
        resource_type_filter=resource.type.value,
        resource_name_filter=resource.name,
        pattern_type_filter=resource.pattern.value,
        principal_filter=None,
        host_filter=None,
        operation=Operation.ANY.value,
        permission_type=Permission.ANY.value,
    )


def acls_in(response: Any) -> Found:
    """The ACLs in a DescribeAclsResponse."""
    return {
        ResourcePattern(ResourceType(one.resource_type), one.resource_name, PatternType(one.pattern_type)): [
            AccessControlEntry(acl.principal, acl.host, Operation(acl.operation), Permission(acl.permission_type))
            for acl in one.acls
        ]
        for one in response.resources
    }


def text(found: Found, principal: Principal | None = None) -> str:
    """ACLs as Kafka's command prints them, but in order; of one principal or of all."""
    chosen = {
        resource: [acl for acl in found[resource] if principal is None or acl.principal == str(principal)]
        for resource in sorted(found)
    }
    return "".join(
        f"Current ACLs for resource `{resource}`: \n {indented(sorted(entries))} \n\n"
        for resource, entries in chosen.items()
        if entries
    )
