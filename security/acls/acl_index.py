"""ACLs in the form in which a decision finds them: by type, name or prefix, permission, operation and principal.

A decision looks up one name and as many prefixes as there are different lengths of them, however many ACLs there are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from odradek.security.acls.acl_hosts import ClientHost, Hosts
from odradek.security.acls.acl_types import (
    WILDCARD,
    AccessControlEntry,
    Acls,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

_Key = tuple[Permission, Operation, str]


class Rights:
    """The entries of one resource pattern."""

    __slots__ = ("_hosts",)

    def __init__(self, entries: Iterable[AccessControlEntry]) -> None:
        hosts: dict[_Key, list[str]] = defaultdict(list)
        for entry in entries:
            hosts[entry.permission, entry.operation, entry.principal].append(entry.host)
        self._hosts = {key: Hosts(texts) for key, texts in hosts.items()}

    def items(self) -> Iterable[tuple[_Key, Hosts]]:
        """Each right with its hosts."""
        return self._hosts.items()

    def has(
        self, permission: Permission, operations: Iterable[Operation], principals: Iterable[str], client: ClientHost
    ) -> bool:
        """Whether an entry has this permission for any of the operations and principals at the client's host."""
        found = self._hosts
        return any(
            client in hosts
            for operation in operations
            for principal in principals
            if (hosts := found.get((permission, operation, principal))) is not None
        )


class Patterns:
    """The ACLs for resources of one type with one type of pattern, by name and by right."""

    __slots__ = ("_by_right", "by_name")

    def __init__(self, by_name: dict[str, Rights]) -> None:
        self.by_name = by_name
        self._by_right: dict[_Key, list[tuple[str, Hosts]]] = defaultdict(list)
        for name, rights in by_name.items():
            for key, hosts in rights.items():
                self._by_right[key].append((name, hosts))

    def names(
        self, permission: Permission, operations: Iterable[Operation], principals: Iterable[str], client: ClientHost
    ) -> set[str]:
        """The names whose ACLs have this permission for any of the operations and principals at the client's host."""
        keys = [(permission, operation, principal) for operation in operations for principal in principals]
        return {name for key in keys for name, hosts in self._by_right.get(key, ()) if client in hosts}


class ResourceIndex:
    """The ACLs for resources of one type; ACLs of other pattern types than these two affect nothing."""

    __slots__ = ("_lengths", "literal", "prefixed")

    def __init__(self, literal: Patterns, prefixed: Patterns) -> None:
        self.literal = literal
        self.prefixed = prefixed
        self._lengths = sorted({len(prefix) for prefix in prefixed.by_name})

    def matching(self, name: str) -> list[Rights]:
        """The rights that affect a resource."""
        return [rights for rights in self._candidates(name) if rights is not None]

    def _candidates(self, name: str) -> Iterator[Rights | None]:
        yield self.literal.by_name.get(name)
        yield self.literal.by_name.get(WILDCARD)
        for length in self._lengths:
            if length > len(name):
                return
            yield self.prefixed.by_name.get(name[:length])


def index(acls: Acls) -> dict[ResourceType, ResourceIndex]:
    """All ACLs by resource type."""
    found: dict[tuple[ResourceType, PatternType], dict[str, Rights]] = defaultdict(dict)
    for resource, entries in acls.items():
        if entries:
            found[resource.type, resource.pattern][resource.name] = Rights(entries)
    return {
        kind: ResourceIndex(Patterns(found[kind, PatternType.LITERAL]), Patterns(found[kind, PatternType.PREFIXED]))
        for kind in ResourceType
    }
