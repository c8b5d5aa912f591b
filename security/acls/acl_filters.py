"""Filters of ACLs as Describe- and DeleteAcls have them; None and ANY match everything."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.security.acls.acl_types import (
    WILDCARD,
    AccessControlEntry,
    AclBinding,
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

    def matches(self, acl: AclBinding) -> bool:
        """Whether the filter finds this ACL."""
        return self.pattern.matches(acl.pattern) and self.entry.matches(acl.entry)
