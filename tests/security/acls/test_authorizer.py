"""Decisions by example; tests/security/acls/test_as_kafka.py compares them with Kafka's."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.security.acls import acl_hosts
from odradek.security.acls.acl_hosts import ClientHost
from odradek.security.acls.acl_types import (
    AccessControlEntry,
    Entries,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from odradek.security.acls.authorizer import (
    LONGEST,
    MOST,
    Authorizer,
    Decisions,
    Session,
    every_operation,
    parse_super_users,
)
from odradek.security.principal import ANONYMOUS, Principal

ALICE = Principal("User", "alice")
READ, WRITE, DESCRIBE, ALL = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL
TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER


def acl(
    name: str,
    operation: Operation = READ,
    permission: Permission = Permission.ALLOW,
    pattern: PatternType = PatternType.LITERAL,
    principal: str = "User:alice",
    host: str = "*",
) -> tuple[ResourcePattern, Entries]:
    entry = AccessControlEntry(principal, host, operation, permission)
    return ResourcePattern(TOPIC, name, pattern), frozenset([entry])


def session(*acls: tuple[ResourcePattern, Entries], host: str = "10.1.2.3", **settings: Any) -> Session:
    return Authorizer(dict(acls), **settings).session(ALICE, host)


def test_a_deny_wins_over_every_allow() -> None:
    denied = acl("or", ALL, Permission.DENY, PatternType.PREFIXED, "User:*")
    found = session(acl("orders"), acl("*", ALL), denied)
    assert not found.allows(READ, TOPIC, "orders")
    assert found.allows(READ, TOPIC, "other")


def test_read_implies_describe_but_denied_read_does_not_deny_describe() -> None:
    assert session(acl("t")).allows(DESCRIBE, TOPIC, "t")
    found = session(acl("*", DESCRIBE), acl("t", READ, Permission.DENY))
    assert found.allows(DESCRIBE, TOPIC, "t")
    assert not found.allows(WRITE, TOPIC, "t")


def test_everyone_is_allowed_only_without_an_acl_for_the_resource() -> None:
    found = session(acl("p", pattern=PatternType.PREFIXED, principal="User:bob"), allow_everyone=True)
    assert found.allows(WRITE, TOPIC, "other")
    assert not found.allows(WRITE, TOPIC, "pq")
    assert found.allows(Operation.ALTER, CLUSTER)
    assert not session().allows(READ, TOPIC, "other")


def test_super_users_override_a_deny() -> None:
    found = session(acl("*", ALL, Permission.DENY), super_users=parse_super_users("User:bob; User:alice;"))
    assert found.is_super_user and found.allows(READ, TOPIC, "t") and found.allows_any(WRITE, TOPIC)
    assert parse_super_users("") == frozenset()
    with pytest.raises(ValueError, match="User:alice"):
        parse_super_users("alice")


@pytest.mark.parametrize(
    ("host", "peer", "allowed"),
    [
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/8", "::ffff:10.1.2.3", True),
        ("10.0.0.0/8", "11.1.2.3", False),
        ("10.0.0.0/8", "::1", False),
        ("2001:db8::/32", "2001:db8::1", True),
        ("10.1.2.3/8", "10.1.2.3", False),  # host bits are set, so the ACL matches no address
        ("0:0:0:0:0:0:0:1", "::1", True),
        ("::1", "::1", False),  # not the form that Java writes
        ("unix", "unix", True),
    ],
)
def test_acl_host_matches_addresses_and_networks(host: str, peer: str, allowed: bool) -> None:
    assert session(acl("t", host=host), host=peer).allows(READ, TOPIC, "t") == allowed


def test_invalid_acl_hosts_are_refused() -> None:
    assert acl_hosts.fault("10.0.0.0/8", Permission.ALLOW) is None
    assert acl_hosts.fault("anything", Permission.DENY) is None
    assert "without host bits" in str(acl_hosts.fault("10.0.0.1/8", Permission.ALLOW))
    assert "brokers of Apache Kafka ignore it" in str(acl_hosts.fault("10.0.0.0/8", Permission.DENY))
    assert ClientHost.parse("fe80::1%eth0").text == "fe80:0:0:0:0:0:0:1%eth0"


def test_allows_any_topic_unless_a_deny_covers_all() -> None:
    prefix = acl("pq", WRITE, pattern=PatternType.PREFIXED)
    assert session(prefix).allows_any(WRITE, TOPIC)
    assert not session(prefix, acl("p", WRITE, Permission.DENY, PatternType.PREFIXED)).allows_any(WRITE, TOPIC)
    assert session(prefix, acl("pqr", WRITE, Permission.DENY, PatternType.PREFIXED)).allows_any(WRITE, TOPIC)
    assert not session(acl("t", WRITE)).allows_any(READ, TOPIC)


def test_authorized_operations_are_a_bit_set() -> None:
    bits = session(acl("t")).authorized_operations(TOPIC, "t")
    assert bits == 1 << READ | 1 << DESCRIBE
    assert session(allow_everyone=True).authorized_operations(CLUSTER) == every_operation(CLUSTER)


def test_decisions_are_cached_and_the_cache_is_bounded() -> None:
    asked: list[str] = []
    decisions = Decisions(lambda name: not asked.append(name))
    assert decisions["t"] and decisions["t"] and asked == ["t"]
    for number in range(MOST + 1):
        decisions[str(number)]
    assert len(decisions) < MOST
    long = "x" * (LONGEST + 1)
    assert decisions[long] and long not in decisions


def test_sessions_are_cached_and_the_cache_is_bounded() -> None:
    authorizer = Authorizer({}, version=7)
    first = authorizer.session(ANONYMOUS, "1.2.3.4")
    assert authorizer.session(ANONYMOUS, "1.2.3.4") is first and authorizer.version == 7
    for number in range(MOST):
        authorizer.session(Principal("User", str(number)), "1.2.3.4")
    assert authorizer.session(ANONYMOUS, "1.2.3.4") is not first
