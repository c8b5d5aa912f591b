"""ACL znodes with golden values of Kafka 3.9; in tests/security/acls/test_as_kafka.py Kafka reads and writes them."""

from __future__ import annotations

import pytest

from odradek.security.acls import acl_nodes
from odradek.security.acls.acl_types import (
    AccessControlEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

ENTRY = AccessControlEntry('User:a"\\\x01é😀', "*", Operation.DESCRIBE_CONFIGS, Permission.ALLOW)
GOLDEN = (
    '{"acls":[{"principal":"User:a\\"\\\\\\u0001é\\uD83D\\uDE00","permissionType":"Allow","host":"*",'
    '"operation":"DescribeConfigs"}],"version":1}'
)


def test_node_equals_kafkas_golden_value() -> None:
    assert acl_nodes.encode_acls(frozenset([ENTRY])).decode() == GOLDEN
    assert acl_nodes.decode_acls(GOLDEN.encode()) == {ENTRY}
    assert acl_nodes.decode_acls(b"") == frozenset()


def test_paths_and_changes_equal_kafkas() -> None:
    literal = ResourcePattern(ResourceType.TRANSACTIONAL_ID, 'a:b"')
    prefixed = ResourcePattern(ResourceType.TRANSACTIONAL_ID, 'a:b"', PatternType.PREFIXED)
    assert acl_nodes.path(literal) == '/kafka-acl/TransactionalId/a:b"'
    assert acl_nodes.path(prefixed) == '/kafka-acl-extended/prefixed/TransactionalId/a:b"'
    assert acl_nodes.encode_change(literal) == ("/kafka-acl-changes/acl_changes_", b'TRANSACTIONAL_ID:a:b"')
    data = b'{"version":1,"resourceType":"TRANSACTIONAL_ID","name":"a:b\\"","patternType":"PREFIXED"}'
    assert acl_nodes.encode_change(prefixed) == ("/kafka-acl-extended-changes/acl_changes_", data)
    assert "/kafka-acl/Topic" in acl_nodes.PERSISTENT and len(acl_nodes.PERSISTENT) == 14


@pytest.mark.parametrize(
    "data",
    [
        b"x", b"[]", b"{}", b'{"version":2,"acls":[]}', b'{"version":1}', b'{"version":1,"acls":[1]}', b"\xff",
        b'{"version":1,"acls":[{"host":"h","permissionType":"Any","operation":"Read","principal":"User:a"}]}',
        b'{"version":1,"acls":[{"host":"h","permissionType":"Deny","operation":"Read","principal":"a"}]}',
        b'{"version":1,"acls":[{"host":"h","permissionType":"Deny","operation":1,"principal":"User:a"}]}',
    ],
)  # fmt: skip
def test_malformed_acl_node_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        acl_nodes.decode_acls(data)


@pytest.mark.parametrize(
    ("pattern", "data"),
    [
        (PatternType.LITERAL, b"TOPIC"),
        (PatternType.LITERAL, b"ANY:x"),
        (PatternType.LITERAL, b"NOTHING:x"),
        (PatternType.PREFIXED, b"TOPIC:x"),
        (PatternType.PREFIXED, b'{"version":2,"resourceType":"TOPIC","name":"x","patternType":"PREFIXED"}'),
        (PatternType.PREFIXED, b'{"version":1,"resourceType":"TOPIC","name":null,"patternType":"PREFIXED"}'),
        (PatternType.PREFIXED, b'{"version":1,"resourceType":"TOPIC","name":"x","patternType":"MATCH"}'),
    ],
)
def test_malformed_change_node_is_refused(pattern: PatternType, data: bytes) -> None:
    with pytest.raises(ValueError):
        acl_nodes.decode_change(pattern, data)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "\x00", "\x85", "😀", "\ue000"])
def test_name_that_zookeeper_forbids_cannot_be_a_node(name: str) -> None:
    assert not acl_nodes.can_be_named(name)
    assert acl_nodes.can_be_named("...") and acl_nodes.can_be_named("é*")
