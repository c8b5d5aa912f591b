"""The cost of a decision with a thousand ACLs, counted in lookups instead of time."""

from __future__ import annotations

from typing import Any

from odradek.security.acls.acl_index import ResourceIndex
from odradek.security.acls.acl_types import (
    AccessControlEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from odradek.security.acls.authorizer import Authorizer
from odradek.security.principal import Principal

ENTRY = AccessControlEntry("User:alice", "*", Operation.WRITE, Permission.ALLOW)
LENGTHS = 20


def thousand_acls() -> Authorizer:
    """500 topics by name, 500 by prefixes of twenty lengths."""
    names = {ResourcePattern(ResourceType.TOPIC, f"topic-{number}"): frozenset([ENTRY]) for number in range(500)}
    prefixes = [f"{number:03}{'-' * (number % LENGTHS)}" for number in range(500)]
    by_prefix = {ResourcePattern(ResourceType.TOPIC, one, PatternType.PREFIXED): frozenset([ENTRY]) for one in prefixes}
    return Authorizer(names | by_prefix)


def test_decision_looks_up_one_pattern_for_each_prefix_length(monkeypatch: Any) -> None:
    decided: list[int] = []
    candidates = ResourceIndex._candidates
    monkeypatch.setattr(
        ResourceIndex, "_candidates", lambda self, name: decided.append(0) or count(candidates(self, name), decided)
    )
    session = thousand_acls().session(Principal("User", "alice"), "10.0.0.1")
    assert session.allows(Operation.WRITE, ResourceType.TOPIC, "topic-7-and-a-long-name") is False
    assert decided == [LENGTHS + 2]
    assert session.allows(Operation.WRITE, ResourceType.TOPIC, "topic-7") and len(decided) == 2
    decisions = session.decisions(Operation.WRITE, ResourceType.TOPIC)
    assert decisions["topic-7"] and dict.__getitem__(decisions, "topic-7") and len(decided) == 2


def count(found: Any, decided: list[int]) -> Any:
    for one in found:
        decided[-1] += 1
        yield one
