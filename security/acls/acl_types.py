"""Resources, operations, permissions and ACLs with Kafka's names, and their codes as on the wire."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

WILDCARD = "*"
EVERY_USER = "User:*"
CLUSTER_NAME = "kafka-cluster"


class Code(enum.IntEnum):
    """A code of the wire; one that Kafka does not have reads as UNKNOWN."""

    __hash__ = int.__hash__  # enum's own is written in Python, and every decision hashes some codes

    @classmethod
    def _missing_(cls, value: object) -> Code | None:
        return cls(0) if isinstance(value, int) else None

    @property
    def title(self) -> str:
        """The name in znodes and commands: `TransactionalId`."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def concrete(self) -> bool:
        """Whether an ACL may have it; the others occur in filters, or nowhere."""
        return self.name not in ("UNKNOWN", "ANY", "MATCH")


C = TypeVar("C", bound=Code)


class ResourceType(Code):
    """What an ACL is about."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(Code):
    """How the name of an ACL's resource is compared; MATCH, in filters, finds all ACLs that affect a resource."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(Code):
    """What a client wants to do."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class Permission(Code):
    """Whether an ACL allows or denies."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


@lru_cache(maxsize=256)
def by_title(kind: type[C], text: str) -> C:
    """The member that is written `text` in znodes and commands, in any case; else UNKNOWN."""
    return next((member for member in kind if member.title.upper() == text.upper()), kind(0))


@dataclass(frozen=True, slots=True, order=True)
class ResourcePattern:
    """Resources by name, by prefix, or all of a type (LITERAL `*`)."""

    type: ResourceType
    name: str
    pattern: PatternType = PatternType.LITERAL

    def __str__(self) -> str:
        kind, pattern = self.type.name, self.pattern.name
        return f"ResourcePattern(resourceType={kind}, name={self.name}, patternType={pattern})"


@dataclass(frozen=True, slots=True, order=True)
class AccessControlEntry:
    """Allows or denies an operation to a principal from a host; `principal` is text such as `User:alice`."""

    principal: str
    host: str
    operation: Operation
    permission: Permission

    def __str__(self) -> str:
        what = f"operation={self.operation.name}, permissionType={self.permission.name}"
        return f"(principal={self.principal}, host={self.host}, {what})"


@dataclass(frozen=True, slots=True, order=True)
class AclBinding:
    """An ACL: an entry for a pattern."""

    pattern: ResourcePattern
    entry: AccessControlEntry


Entries = frozenset[AccessControlEntry]
Acls = Mapping[ResourcePattern, Entries]  # as in the metadata tree: one node for each pattern

# What an operation on a resource of each type can be: the bits of KIP-430, and what commands accept beside ALL.
SUPPORTED: dict[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DESCRIBE, Operation.DELETE, Operation.ALTER,
        Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (Operation.READ, Operation.DESCRIBE, Operation.DELETE),
    ResourceType.CLUSTER: (
        Operation.CREATE, Operation.CLUSTER_ACTION, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE, Operation.ALTER, Operation.DESCRIBE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.DESCRIBE, Operation.WRITE),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}  # fmt: skip
