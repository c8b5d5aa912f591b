"""Filters of ACLs as Describe- and DeleteAcls have them; None and ANY match everything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from odradek.security.acls.acl_types import (
    WILDCARD,
    AccessControlEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)


@dataclass(frozen=True, slots=True)
class ResourcePatternFilter:
    """Selects ACLs by resource; MATCH takes `name` as a resource and finds every pattern that applies to it."""

    type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern: PatternType = PatternType.ANY

    def matches(self, other: ResourcePattern) -> bool:
        """Whether the filter finds ACLs of `other`."""
        if self.type not in (ResourceType.ANY, other.type):
            return False
        if self.pattern not in (PatternType.ANY, PatternType.MATCH, other.pattern):
            return False
        return self.name is None or self._matches_name(self.name, other)

    def _matches_name(self, name: str, other: ResourcePattern) -> bool:
        if self.pattern != PatternType.MATCH:
            return name == other.name
        if other.pattern == PatternType.PREFIXED:
            return name.startswith(other.name)
        return other.name in (name, WILDCARD)

    def __str__(self) -> str:
        kind, name, pattern = self.type.name, "<any>" if self.name is None else self.name, self.pattern.name
        return f"ResourcePattern(resourceType={kind}, name={name}, patternType={pattern})"


@dataclass(frozen=True, slots=True)
class AccessControlEntryFilter:
    """Selects ACLs by principal, operation, permission and host; each field is compared as it is written."""

    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, other: AccessControlEntry) -> bool:
        """Whether the filter finds this entry."""
        return (
            self.principal in (None, other.principal)
            and self.host in (None, other.host)
            and self.operation in (Operation.ANY, other.operation)
            and self.permission in (Permission.ANY, other.permission)
        )


@dataclass(frozen=True, slots=True)
class AclBindingFilter:
    """Both together."""

    pattern: ResourcePatternFilter = ResourcePatternFilter()
    entry: AccessControlEntryFilter = AccessControlEntryFilter()


class FiltersByPattern:
    """Many filters, of which those for one resource pattern are found without comparing all of them."""

    def __init__(self, filters: Sequence[ResourcePatternFilter]) -> None:
        self._filters = filters
        self._exact: dict[ResourcePattern, list[int]] = {}
        self._others: list[int] = []
        for at, one in enumerate(filters):
            if one.name is not None and one.type.concrete and one.pattern.concrete:
                self._exact.setdefault(ResourcePattern(one.type, one.name, one.pattern), []).append(at)
            else:
                self._others.append(at)

    def matching(self, pattern: ResourcePattern) -> list[int]:
        """The positions of the filters that find ACLs of `pattern`, in their order."""
        others = [at for at in self._others if self._filters[at].matches(pattern)]
        return sorted(self._exact.get(pattern, []) + others)
