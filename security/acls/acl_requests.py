"""Answers DescribeAcls, CreateAcls and DeleteAcls from the ACLs there are, as AclApis and AclAuthorizer do.

Nothing is written here: `create` and `delete` return their response with the changes, a pattern's entries as they come
to be, so that the caller writes each node if it still has the version that these ACLs were read from, and otherwise
asks again. The caller checks the cluster's Describe or Alter before, and `check_*` when it has decoded a request.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from odradek.protocol.errors import INVALID_REQUEST, NONE, SECURITY_DISABLED, UNKNOWN_SERVER_ERROR
from odradek.protocol.library import message_class
from odradek.security.acls import acl_hosts, acl_nodes
from odradek.security.acls.acl_filters import (
    AccessControlEntryFilter,
    AclBindingFilter,
    FiltersByPattern,
    ResourcePatternFilter,
)
from odradek.security.acls.acl_types import (
    CLUSTER_NAME,
    AccessControlEntry,
    AclBinding,
    Acls,
    Code,
    Entries,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

Changes = dict[ResourcePattern, Entries]
Fault = tuple[int, str | None]  # error code and message
_NONE: Fault = (NONE, "")  # Kafka leaves the message at its default here, and sets it to null in DeleteAcls


# Errors that end the connection, as any request that cannot be decoded does.


def check_describe(request: Any) -> None:
    """Raises ValueError for a request that Kafka does not read."""
    _refuse_zeros([request], "resource_type_filter", "pattern_type_filter", "operation", "permission_type")


def check_create(request: Any) -> None:
    """Raises ValueError for a request that Kafka does not read."""
    _refuse_zeros(request.creations, "resource_type", "resource_pattern_type", "operation", "permission_type")


def check_delete(request: Any) -> None:
    """Raises ValueError for a request that Kafka does not read."""
    _refuse_zeros(request.filters, "resource_type_filter", "pattern_type_filter", "operation", "permission_type")


def _refuse_zeros(items: Iterable[Any], *fields: str) -> None:
    """Kafka reads other unknown codes as UNKNOWN, but refuses the code of UNKNOWN itself."""
    if any(not getattr(item, field) for item in items for field in fields):
        raise ValueError("the request has an UNKNOWN element")


# Describe


def describe(acls: Acls, request: Any) -> Any:
    """The DescribeAclsResponse: all ACLs that the filter finds, grouped by pattern."""
    wanted = _filter(request)
    found = {pattern: [entry for entry in sorted(acls[pattern]) if wanted.entry.matches(entry)] for pattern in
             sorted(acls) if wanted.pattern.matches(pattern)}  # fmt: skip
    resources = [_described(pattern, entries) for pattern, entries in found.items() if entries]
    return message_class("DescribeAclsResponse")(error_code=NONE, error_message="", resources=resources)


def _described(pattern: ResourcePattern, entries: list[AccessControlEntry]) -> Any:
    resource = message_class("DescribeAclsResponse").DescribeAclsResource
    return resource(
        resource_type=pattern.type.value,
        resource_name=pattern.name,
        pattern_type=pattern.pattern.value,
        acls=[resource.AclDescription(**_fields(entry)) for entry in entries],
    )


def _fields(entry: AccessControlEntry) -> dict[str, Any]:
    return {
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation.value,
        "permission_type": entry.permission.value,
    }


def _filter(asked: Any) -> AclBindingFilter:
    """The filter in a DescribeAclsRequest or in one element of a DeleteAclsRequest."""
    return AclBindingFilter(
        ResourcePatternFilter(
            ResourceType(asked.resource_type_filter), asked.resource_name_filter, PatternType(asked.pattern_type_filter)
        ),
        AccessControlEntryFilter(
            asked.principal_filter, asked.host_filter, Operation(asked.operation), Permission(asked.permission_type)
        ),
    )


# Create


def create(acls: Acls, request: Any) -> tuple[Any, Changes]:
    """The CreateAclsResponse, and the entries of each pattern that gets new ones."""
    bindings = [_binding(creation) for creation in request.creations]
    if not all(_exists(binding) for binding in bindings):
        return refuse_create(request, UNKNOWN_SERVER_ERROR, None), {}
    faults = [_fault(binding) for binding in bindings]
    added: dict[ResourcePattern, set[AccessControlEntry]] = defaultdict(set)
    for binding, fault in zip(bindings, faults, strict=True):
        if fault == _NONE:
            added[binding.pattern].add(binding.entry)
    unwritable = {pattern for pattern, entries in added.items() if not _can_be_written(pattern, entries)}
    answers = [
        (UNKNOWN_SERVER_ERROR, None) if fault == _NONE and binding.pattern in unwritable else fault
        for binding, fault in zip(bindings, faults, strict=True)
    ]
    after = {pattern: acls.get(pattern, frozenset()) | added[pattern] for pattern in added.keys() - unwritable}
    return _created(answers), _changed(acls, after)


def _binding(creation: Any) -> AclBinding:
    return AclBinding(
        ResourcePattern(
            ResourceType(creation.resource_type), creation.resource_name, PatternType(creation.resource_pattern_type)
        ),
        AccessControlEntry(
            creation.principal, creation.host, Operation(creation.operation), Permission(creation.permission_type)
        ),
    )


def _codes(binding: AclBinding) -> tuple[Code, ...]:
    return binding.pattern.type, binding.pattern.pattern, binding.entry.operation, binding.entry.permission


def _exists(binding: AclBinding) -> bool:
    """Whether Kafka can create such an ACL at all: a type that only filters have fails the request."""
    return all(code.concrete or code.name == "UNKNOWN" for code in _codes(binding))


def _fault(binding: AclBinding) -> Fault:
    """Why an ACL is refused on its own, in Kafka's order; networks, which Kafka does not have, come last."""
    pattern = binding.pattern
    if pattern.type == ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        return INVALID_REQUEST, f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not pattern.name:
        return INVALID_REQUEST, "Invalid empty resource name"
    if not all(code.concrete for code in _codes(binding)) or "/" in pattern.name:
        return INVALID_REQUEST, "Failed to create ACL"
    host = acl_hosts.fault(binding.entry.host, binding.entry.permission)
    return (INVALID_REQUEST, host) if host else _NONE


def _can_be_written(pattern: ResourcePattern, entries: set[AccessControlEntry]) -> bool:
    """Whether the node can be written: not with a principal without a type, or a name that ZooKeeper refuses."""
    return acl_nodes.can_be_named(pattern.name) and all(":" in entry.principal for entry in entries)


def _created(faults: Iterable[Fault]) -> Any:
    response = message_class("CreateAclsResponse")
    results = [response.AclCreationResult(error_code=code, error_message=message) for code, message in faults]
    return response(results=results)


def _changed(acls: Acls, after: Changes) -> Changes:
    return {pattern: entries for pattern, entries in after.items() if entries != acls.get(pattern, frozenset())}


# Delete


def delete(acls: Acls, request: Any) -> tuple[Any, Changes]:
    """The DeleteAclsResponse, and the remaining entries of each pattern that loses some: none means to delete the node.

    An ACL that several filters find is in the answer to the first of them."""
    filters = [_filter(asked) for asked in request.filters]
    by_pattern = FiltersByPattern([one.pattern for one in filters])
    found: list[list[AclBinding]] = [[] for _ in filters]
    for pattern in sorted(acls):
        candidates = by_pattern.matching(pattern)
        for entry in sorted(acls[pattern]) if candidates else ():
            first = next((at for at in candidates if filters[at].entry.matches(entry)), None)
            if first is not None:
                found[first].append(AclBinding(pattern, entry))
    return _deleted(found), _left(acls, [binding for bindings in found for binding in bindings])


def _left(acls: Acls, deleted: list[AclBinding]) -> Changes:
    left = {binding.pattern: set(acls[binding.pattern]) for binding in deleted}
    for binding in deleted:
        left[binding.pattern].discard(binding.entry)
    return {pattern: frozenset(entries) for pattern, entries in left.items()}


def _deleted(found: list[list[AclBinding]]) -> Any:
    response = message_class("DeleteAclsResponse")
    result = response.DeleteAclsFilterResult
    results = [
        result(error_code=NONE, error_message=None, matching_acls=[_matching(binding) for binding in bindings])
        for bindings in found
    ]
    return response(filter_results=results)


def _matching(binding: AclBinding) -> Any:
    return message_class("DeleteAclsResponse").DeleteAclsFilterResult.DeleteAclsMatchingAcl(
        error_code=NONE,
        error_message=None,
        resource_type=binding.pattern.type.value,
        resource_name=binding.pattern.name,
        pattern_type=binding.pattern.pattern.value,
        **_fields(binding.entry),
    )


# Refusals: the same error for all that a request asks for.

NO_AUTHORIZER: Fault = (SECURITY_DISABLED, "No Authorizer is configured.")
NO_AUTHORIZER_TO_DESCRIBE: Fault = (SECURITY_DISABLED, "No Authorizer is configured on the broker")


def refuse_describe(code: int, message: str | None) -> Any:
    """A DescribeAclsResponse with an error."""
    return message_class("DescribeAclsResponse")(error_code=code, error_message=message, resources=[])


def refuse_create(request: Any, code: int, message: str | None) -> Any:
    """A CreateAclsResponse with an error for each ACL."""
    return _created([(code, message)] * len(request.creations))


def refuse_delete(request: Any, code: int, message: str | None) -> Any:
    """A DeleteAclsResponse with an error for each filter."""
    response = message_class("DeleteAclsResponse")
    result = response.DeleteAclsFilterResult(error_code=code, error_message=message, matching_acls=[])
    return response(filter_results=[result] * len(request.filters))
