"""Implements `odradek acls --add` and `--remove`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import click
from kafka.protocol.admin import CreateAclsRequest, DeleteAclsRequest

from odradek.broker.commands._shared.client import Cluster, check
from odradek.broker.commands.acls.acl_options import Wanted
from odradek.security.acls.acl_filters import AccessControlEntryFilter, ResourcePatternFilter
from odradek.security.acls.acl_types import AccessControlEntry


def add(cluster: Cluster, wanted: Wanted) -> None:
    """Create the ACLs, those of a resource with one request. RequestFailed."""
    for resource, entries in wanted.items():
        click.echo(f"Adding ACLs for resource `{resource}`: \n {indented(entries)} \n")
        for result in cluster.send(create_request(resource, entries)).results:
            check(result.error_code, result.error_message)


def remove(cluster: Cluster, wanted: Wanted, *, force: bool) -> None:
    """Delete the ACLs, after a question for each resource. RequestFailed."""
    for resource, entries in wanted.items():
        if force or _confirmed(resource, entries):
            for result in cluster.send(delete_request(resource, entries)).filter_results:
                check(result.error_code, result.error_message)
                for acl in result.matching_acls:
                    check(acl.error_code, acl.error_message)


def create_request(resource: ResourcePatternFilter, entries: Iterable[AccessControlEntry]) -> Any:
    """The CreateAclsRequest for entries of one resource."""
    creations = [
        CreateAclsRequest.AclCreation(
            resource_type=resource.type.value,
            resource_name=resource.name,
            resource_pattern_type=resource.pattern.value,
            principal=entry.principal,
            host=entry.host,
            operation=entry.operation.value,
            permission_type=entry.permission.value,
        )
        for entry in entries
    ]
    return CreateAclsRequest(creations=creations)


def delete_request(resource: ResourcePatternFilter, entries: list[AccessControlEntry]) -> Any:
    """The DeleteAclsRequest for these entries, or for all of a resource."""
    filters = [AccessControlEntryFilter(one.principal, one.host, one.operation, one.permission) for one in entries]
    wanted = [_element(resource, one) for one in filters or [AccessControlEntryFilter()]]
    return DeleteAclsRequest(filters=wanted)


def _element(resource: ResourcePatternFilter, entry: AccessControlEntryFilter) -> Any:
    return DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=resource.type.value,
        resource_name_filter=resource.name,
        pattern_type_filter=resource.pattern.value,
        principal_filter=entry.principal,
        host_filter=entry.host,
        operation=entry.operation.value,
        permission_type=entry.permission.value,
    )


def _confirmed(resource: ResourcePatternFilter, entries: list[AccessControlEntry]) -> bool:
    if entries:
        acls = f"remove ACLs: \n {indented(entries)} \n from resource filter `{resource}`"
    else:
        acls = f"delete all ACLs for resource filter `{resource}`"
    click.echo(f"Are you sure you want to {acls}? (y/n)")
    return sys.stdin.readline().strip().lower() == "y"


def indented(entries: Iterable[AccessControlEntry]) -> str:
    """Entries as Kafka's command prints them."""
    return "\n".join(f"\t{entry}" for entry in entries)
