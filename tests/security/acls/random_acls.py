"""Random ACLs and questions over few names, so that patterns often overlap and an ACL applies to most questions."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from odradek.security.acls.acl_types import (
    SUPPORTED,
    AccessControlEntry,
    Entries,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

NAMES = ["*", "a", "ab", "abc", "abd", "b", "ba", "*a", "hardcode", "kafka-cluster", "é", "é😀", "😀x"]
PRINCIPALS = ["User:alice", "User:bob", "User:*", "Group:alice", "User:x:y"]
HOSTS = ["*", "127.0.0.1", "10.0.0.1", "0:0:0:0:0:0:0:1", "::1", "fe80:0:0:0:0:0:0:a"]
PEERS = ["127.0.0.1", "10.0.0.1", "::1", "::ffff:10.0.0.1", "fe80::a"]
TYPES = [kind for kind in ResourceType if kind.concrete]
OPERATIONS = [operation for operation in Operation if operation.concrete]
PATTERNS = [PatternType.LITERAL, PatternType.PREFIXED]


@dataclass(frozen=True)
class Question:
    """Whether a principal may do an operation; without a name, on any resource of the type."""

    principal: str
    host: str
    operation: Operation
    type: ResourceType
    name: str | None


def acls(rng: Random) -> dict[ResourcePattern, Entries]:
    """Up to thirty ACLs; sometimes none, sometimes only for one type."""
    kinds = rng.sample(TYPES, rng.choice([1, 1, 2, 6]))
    found: dict[ResourcePattern, set[AccessControlEntry]] = {}
    for _ in range(rng.choice([0, 1, 2, 5, 10, 30])):
        found.setdefault(pattern(rng, kinds), set()).add(entry(rng))
    return {resource: frozenset(entries) for resource, entries in found.items()}


def pattern(rng: Random, kinds: list[ResourceType]) -> ResourcePattern:
    return ResourcePattern(rng.choice(kinds), rng.choice(NAMES), rng.choice(PATTERNS))


def entry(rng: Random) -> AccessControlEntry:
    permission = rng.choice([Permission.ALLOW, Permission.ALLOW, Permission.DENY])
    return AccessControlEntry(rng.choice(PRINCIPALS), rng.choice(HOSTS), rng.choice(OPERATIONS), permission)


def question(rng: Random, kinds: list[ResourceType]) -> Question:
    kind = rng.choice(kinds)
    operation = rng.choice([*SUPPORTED[kind], *OPERATIONS])
    name = rng.choice([None, *NAMES, "abcd", "c", ""])
    return Question(rng.choice(PRINCIPALS), rng.choice(PEERS), operation, kind, name)
