"""Decides what a principal may do, as Kafka's AclAuthorizer.

An Authorizer stands for one version of the ACLs and never changes; a new version is a new Authorizer, so that no
decision outlives the ACLs it was made from. A Session is the view of one principal at one host, and keeps decisions by
name: one that was made before is one look-up in a dictionary.

A resource that has no ACL, neither its own nor for a prefix nor for `*`, is open to everyone if
`allow.everyone.if.no.acl.found` says so, and closed otherwise. With an ACL, any DENY that applies wins, then one ALLOW
is needed. An ALLOW for Read, Write, Delete or Alter allows Describe, one for AlterConfigs allows DescribeConfigs; a
DENY implies nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from odradek.security.acls.acl_hosts import ClientHost
from odradek.security.acls.acl_index import Patterns, Rights, index
from odradek.security.acls.acl_types import (
    CLUSTER_NAME,
    EVERY_USER,
    SUPPORTED,
    WILDCARD,
    Acls,
    Operation,
    Permission,
    ResourceType,
)
from odradek.security.principal import Principal

MOST = 10_000  # sessions of an authorizer, and decisions of a session for one operation: clients choose the names
LONGEST = 255  # decisions for longer names are not cached

_IMPLIED_BY = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}


def parse_super_users(text: str) -> frozenset[Principal]:
    """The value of `super.users`: principals with a semicolon between them. Raises ValueError."""
    return frozenset(Principal.parse(part.strip()) for part in text.rstrip(";").split(";") if text.strip())


class Decisions(dict[str, bool]):
    """Whether an operation is allowed, by the name of the resource; a decision is made when it is first read."""

    __slots__ = ("_decide",)

    def __init__(self, decide: Callable[[str], bool]) -> None:
        self._decide = decide

    def __missing__(self, name: str) -> bool:
        allowed = self._decide(name)
        if len(name) <= LONGEST:
            if len(self) >= MOST:
                self.clear()
            self[name] = allowed
        return allowed


class Authorizer:
    """One version of the ACLs, and the two settings that rank above them."""

    def __init__(
        self, acls: Acls, super_users: Iterable[Principal] = (), allow_everyone: bool = False, version: int = 0
    ) -> None:
        """`allow_everyone`: `allow.everyone.if.no.acl.found`."""
        self.version = version
        self.allow_everyone = allow_everyone
        self.super_users = frozenset(super_users)
        self.resources = index(acls)
        self._sessions: dict[tuple[Principal, str], Session] = {}

    def session(self, principal: Principal, host: str) -> Session:
        """The session of a principal at a host, which is the text of a socket's peer address."""
        key = principal, host
        found = self._sessions.get(key)
        if found is None:
            if len(self._sessions) >= MOST:
                self._sessions.clear()
            found = self._sessions[key] = Session(self, principal, ClientHost.parse(host))
        return found


class Session:
    """What one principal at one host may do."""

    __slots__ = ("_any", "_authorizer", "_client", "_decisions", "_principals", "is_super_user", "principal")

    def __init__(self, authorizer: Authorizer, principal: Principal, client: ClientHost) -> None:
        self.principal = principal
        self.is_super_user = principal in authorizer.super_users
        self._authorizer = authorizer
        self._client = client
        self._principals = (str(principal), EVERY_USER)
        self._decisions: dict[tuple[Operation, ResourceType], Decisions] = {}
        self._any: dict[tuple[Operation, ResourceType], bool] = {}

    def allows(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether the operation on this resource is allowed."""
        return self.decisions(operation, kind)[name]

    def decisions(self, operation: Operation, kind: ResourceType) -> Decisions:
        """The decisions about an operation by name: for a path that asks often, to keep with the session."""
        found = self._decisions.get((operation, kind))
        if found is None:
            found = self._decisions[operation, kind] = Decisions(self._decider(operation, kind))
        return found

    def _decider(self, operation: Operation, kind: ResourceType) -> Callable[[str], bool]:
        if self.is_super_user:
            return lambda name: True
        resources, open_to_all = self._authorizer.resources[kind], self._authorizer.allow_everyone
        denied_by, allowed_by = (operation, Operation.ALL), (operation, Operation.ALL, *_IMPLIED_BY.get(operation, ()))

        def decide(name: str) -> bool:
            found = resources.matching(name)
            if not found:
                return open_to_all
            return not self._any_has(Permission.DENY, denied_by, found) and self._any_has(
                Permission.ALLOW, allowed_by, found
            )

        return decide

    def _any_has(self, permission: Permission, operations: tuple[Operation, ...], found: list[Rights]) -> bool:
        return any(rights.has(permission, operations, self._principals, self._client) for rights in found)

    def allows_any(self, operation: Operation, kind: ResourceType) -> bool:
        """Whether the operation is allowed on any resource of the type (KIP-679), whether that exists or not.

        As in AclAuthorizer nothing is implied here, and `allow.everyone.if.no.acl.found` allows it whatever ACLs there
        are, unless a DENY for `*` applies.
        """
        found = self._any.get((operation, kind))
        if found is None:
            found = self._any[operation, kind] = self.is_super_user or self._decide_any(operation, kind)
        return found

    def _decide_any(self, operation: Operation, kind: ResourceType) -> bool:
        resources = self._authorizer.resources[kind]
        denied = self._names(Permission.DENY, operation, resources.literal)
        if WILDCARD in denied:
            return False
        if self._authorizer.allow_everyone:
            return True
        denied_prefixes = self._names(Permission.DENY, operation, resources.prefixed)
        names = self._names(Permission.ALLOW, operation, resources.literal)
        prefixes = self._names(Permission.ALLOW, operation, resources.prefixed)
        open_names = names - denied
        return WILDCARD in names or any(not _has_prefix(name, denied_prefixes) for name in open_names | prefixes)

    def _names(self, permission: Permission, operation: Operation, patterns: Patterns) -> set[str]:
        return patterns.names(permission, (operation, Operation.ALL), self._principals, self._client)

    def authorized_operations(self, kind: ResourceType, name: str = CLUSTER_NAME) -> int:
        """The bit field of KIP-430: what the principal may do with this resource."""
        return sum(1 << operation for operation in SUPPORTED[kind] if self.allows(operation, kind, name))


def every_operation(kind: ResourceType) -> int:
    """The bit field of KIP-430 on a broker without an authorizer."""
    return sum(1 << operation for operation in SUPPORTED[kind])


def _has_prefix(name: str, prefixes: set[str]) -> bool:
    return any(name[:length] in prefixes for length in range(1, len(name) + 1))
