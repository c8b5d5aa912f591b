"""Produce and Fetch check the ACLs once, and again only when the metadata changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.cluster.metadata.security_metadata import SecurityMetadata
from odradek.protocol.errors import NONE, TOPIC_AUTHORIZATION_FAILED
from odradek.security.acls import acl_nodes
from odradek.security.acls.acl_types import (
    AccessControlEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from odradek.workers.dispatch.authorization import Authorization

from ..clients.raw import batches, calls
from .inprocess import Bench, Client, bench

MANY = 1000


def acls(count: int, *operations: Operation) -> SecurityMetadata:
    """ACLs of topic `t` for every client, among ACLs of `count` other topics."""
    mine = frozenset(AccessControlEntry("User:ANONYMOUS", "*", one, Permission.ALLOW) for one in operations)
    others = frozenset([AccessControlEntry("User:alice", "*", Operation.READ, Permission.ALLOW)])
    found = {ResourcePattern(ResourceType.TOPIC, "t"): mine} if mine else {}
    for number in range(count):
        pattern = PatternType.PREFIXED if number % 2 else PatternType.LITERAL
        found[ResourcePattern(ResourceType.TOPIC, f"other-{number}", pattern)] = others
    texts = {acl_nodes.path(pattern): acl_nodes.encode_acls(entries).decode() for pattern, entries in found.items()}
    return SecurityMetadata(1, texts)


def adopt(made: Bench, security: SecurityMetadata) -> None:
    """As the worker does when a snapshot names a new version."""
    made.worker.authorization.adopt(security)
    made.configure("t")
    made.turn()


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path, authorizer_class_name="kafka.security.authorizer.AclAuthorizer") as made:
        adopt(made, acls(MANY, Operation.READ, Operation.WRITE))
        yield made


def produce(client: Client) -> int:
    answer = client.call(calls.produce_request("t", batches.batch([b"value"])))
    found: int = answer.responses[0].partition_responses[0].error_code
    return found


def fetch(client: Client, offset: int = 0) -> int:
    answer = client.call(calls.fetch_request("t", offset, wait_ms=0))
    found: int = answer.responses[0].partitions[0].error_code
    return found


def test_repeated_request_does_not_check_the_acls(closed: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    client = closed.connect()
    assert (produce(client), produce(client), fetch(client)) == (NONE, NONE, NONE)

    def asked(*_: Any) -> None:
        raise AssertionError("the ACLs are checked again")

    with monkeypatch.context() as patched:
        patched.setattr(Authorization, "of", asked)
        assert [produce(client) for _ in range(3)] == [NONE] * 3
        assert [fetch(client, offset) for offset in range(3)] == [NONE] * 3


def test_changed_acls_apply_to_repeated_requests(closed: Bench) -> None:
    clients = [closed.connect() for _ in range(3)]
    for security, allowed in (
        (acls(MANY, Operation.READ), (TOPIC_AUTHORIZATION_FAILED, NONE)),
        (acls(MANY, Operation.WRITE), (NONE, TOPIC_AUTHORIZATION_FAILED)),
        (acls(0, Operation.ALL), (NONE, NONE)),
        (acls(0), (TOPIC_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED)),
    ):
        adopt(closed, security)
        assert {(produce(client), fetch(client)) for client in clients} == {allowed}


def test_clients_at_different_hosts_share_no_cached_decision(closed: Bench) -> None:
    """Their requests begin with the same bytes."""
    text = acl_nodes.encode_acls(
        frozenset([AccessControlEntry("User:ANONYMOUS", "10.0.0.1", Operation.ALL, Permission.ALLOW)])
    ).decode()
    adopt(closed, SecurityMetadata(2, {"/kafka-acl/Topic/t": text}))
    allowed, refused = closed.connect("10.0.0.1"), closed.connect("10.0.0.2")
    for _ in range(2):
        assert (produce(allowed), fetch(allowed)) == (NONE, NONE)
        assert (produce(refused), fetch(refused)) == (TOPIC_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED)
