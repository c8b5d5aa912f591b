"""Compares our authorizer with Apache Kafka's AclAuthorizer and StandardAuthorizer, on the same ACLs and questions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.security.acls import acl_nodes, acl_requests
from odradek.security.acls.acl_hosts import ClientHost
from odradek.security.acls.acl_types import (
    SUPPORTED,
    AccessControlEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from odradek.security.acls.authorizer import Authorizer, parse_super_users
from odradek.security.principal import Principal

from . import random_acls
from .java_acls import KafkaAcls, binding, bindings, texts
from .random_acls import Question

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1")]


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaAcls]:
    made = KafkaAcls()
    yield made
    made.close()


def test_decisions_equal_kafkas(kafka: KafkaAcls) -> None:
    compare(kafka, seed=1, sets=150, questions=60)


@pytest.mark.long
def test_many_decisions_equal_kafkas(kafka: KafkaAcls) -> None:
    compare(kafka, seed=2, sets=6000, questions=100)


def compare(kafka: KafkaAcls, seed: int, sets: int, questions: int) -> None:
    """Compare all three on random ACLs; ours must equal AclAuthorizer, and StandardAuthorizer except for `differs`."""
    rng = Random(seed)
    for _ in range(sets):
        acls, everyone = random_acls.acls(rng), rng.random() < 0.3
        super_users = rng.choice(["", "User:bob", "User:bob; User:x:y"])
        kafka.ask(ask="load", acls=bindings(acls), everyone=everyone, super_users=super_users)
        ours = Authorizer(acls, parse_super_users(super_users), everyone)
        kinds = list({pattern.type for pattern in acls}) or random_acls.TYPES
        asked = [random_acls.question(rng, sorted(kinds)) for _ in range(questions)]
        theirs = kafka.ask(ask="authorize", questions=[asdict(one) for one in asked])
        for one, (acl_authorizer, standard) in zip(asked, theirs, strict=True):
            mine = str(int(answer(ours, one)))
            assert mine == acl_authorizer, (one, everyone, super_users, acls)
            assert mine == standard or differs(one, everyone), (one, everyone, super_users, acls)


def answer(ours: Authorizer, one: Question) -> bool:
    session = ours.session(Principal.parse(one.principal), one.host)
    if one.name is None:
        return session.allows_any(one.operation, one.type)
    return session.allows(one.operation, one.type, one.name)


def differs(one: Question, everyone: bool) -> bool:
    """Whether Kafka's two authorizers differ.

    For "any resource" StandardAuthorizer starts with a resource of a fixed name, and so takes implied operations and
    `allow.everyone.if.no.acl.found` into account. It also ignores ACLs for `*` if the name begins with `*`."""
    if one.name is None:
        return everyone or one.operation in (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS)
    return one.name.startswith("*") and one.name != "*"


def test_described_acls_equal_kafkas(kafka: KafkaAcls) -> None:
    rng = Random(3)
    for _ in range(60):
        acls = random_acls.acls(rng)
        kafka.ask(ask="load", acls=bindings(acls), everyone=False, super_users="")
        asked = [filter_(rng) for _ in range(40)]
        for one, theirs in zip(asked, kafka.ask(ask="describe", filters=asked), strict=True):
            assert described(acl_requests.describe(acls, request(one))) == theirs, (one, acls)


def filter_(rng: Random) -> dict[str, Any]:
    """A filter, mostly with ANY; 99 is a code unknown to Kafka."""
    return {
        "type": rng.choice([1, 1, 2, 3, 4, 5, 6, 7, 99]),
        "name": rng.choice([None, None, *random_acls.NAMES, "abcd"]),
        "pattern": rng.choice([1, 2, 2, 3, 4, 99]),
        "principal": rng.choice([None, None, None, *random_acls.PRINCIPALS]),
        "host": rng.choice([None, None, None, *random_acls.HOSTS]),
        "operation": rng.choice([1, 1, 1, 2, 3, 8, 99]),
        "permission": rng.choice([1, 1, 1, 2, 3, 99]),
    }


def request(one: dict[str, Any]) -> SimpleNamespace:
    return SimpleNamespace(
        resource_type_filter=one["type"],
        resource_name_filter=one["name"],
        pattern_type_filter=one["pattern"],
        principal_filter=one["principal"],
        host_filter=one["host"],
        operation=one["operation"],
        permission_type=one["permission"],
    )


def described(response: Any) -> list[str]:
    """A DescribeAclsResponse in the oracle's form."""
    return sorted(
        f"{ResourcePattern(ResourceType(one.resource_type), one.resource_name, PatternType(one.pattern_type))} "
        f"{AccessControlEntry(acl.principal, acl.host, Operation(acl.operation), Permission(acl.permission_type))}"
        for one in response.resources
        for acl in one.acls
    )


TEXTS = ["User:alice", 'User:"\\', "User:\x01\x1f\t\n\x7f", "User:é\u2028", "User:😀", "User:CN=a,O=b"]


def test_nodes_with_one_entry_are_the_same_bytes(kafka: KafkaAcls) -> None:
    """With several entries Kafka's order is that of a hash set."""
    rng = Random(4)
    for principal in TEXTS:
        entry = AccessControlEntry(principal, "*", rng.choice(random_acls.OPERATIONS), Permission.DENY)
        theirs = kafka.ask(ask="encode", acls=[binding(random_acls.pattern(rng, random_acls.TYPES), entry)])
        assert acl_nodes.encode_acls(frozenset([entry])).decode() == theirs
        assert acl_nodes.decode_acls(theirs.encode()) == {entry}


def test_kafka_reads_our_nodes_and_we_read_kafkas(kafka: KafkaAcls) -> None:
    rng = Random(5)
    for _ in range(100):
        entries = frozenset(random_acls.entry(rng) for _ in range(rng.randrange(8)))
        assert kafka.ask(ask="decode", data=acl_nodes.encode_acls(entries).decode()) == texts(entries)
        asked = [binding(random_acls.pattern(rng, random_acls.TYPES), entry) for entry in entries]
        assert acl_nodes.decode_acls(kafka.ask(ask="encode", acls=asked).encode()) == entries


ODD = [
    '{"version":1,"acls":[{"host":"h","permissionType":"DENY","operation":"READ","principal":"User:a"}]}',
    '{"version":1,"acls":[{"host":"h","permissionType":"deny","operation":"describeConfigs","principal":"User:a"}]}',
    '{"version":1,"acls":[{"host":"h","permissionType":"?","operation":"Fly","principal":"User:"}],"more":[]}',
    '{"version":1,"acls":[]}',
]


@pytest.mark.parametrize("data", ODD)
def test_odd_nodes_are_decoded_as_kafka_does(kafka: KafkaAcls, data: str) -> None:
    assert texts(acl_nodes.decode_acls(data.encode())) == kafka.ask(ask="decode", data=data)


def test_paths_and_changes_equal_kafkas(kafka: KafkaAcls) -> None:
    for kind in random_acls.TYPES:
        for pattern in random_acls.PATTERNS:
            for name in ["a", 'a:b"\\é😀', "kafka-cluster", "*"]:
                resource = ResourcePattern(kind, name, pattern)
                asked = {"type": kind.value, "name": name, "pattern": pattern.value}
                path, change, data = kafka.ask(ask="change", pattern=asked)
                assert acl_nodes.path(resource) == path
                assert acl_nodes.encode_change(resource) == (change, data.encode())
                assert acl_nodes.decode_change(pattern, data.encode()) == resource
                ours = acl_nodes.encode_change(resource)[1].decode()
                assert kafka.ask(ask="decode_change", pattern=pattern.value, data=ours) == str(resource)


def test_supported_operations_equal_kafkas(kafka: KafkaAcls) -> None:
    ours = {str(kind.value): sorted(int(one) for one in operations) for kind, operations in SUPPORTED.items()}
    assert kafka.ask(ask="supported") == ours


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "fe80::1:0:a", "::ffff:1.2.3.4", "2001:db8::", "::"])
def test_addresses_are_written_as_java_does(kafka: KafkaAcls, host: str) -> None:
    assert ClientHost.parse(host).text == kafka.ask(ask="host", host=host)
