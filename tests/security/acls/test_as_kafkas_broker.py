"""Compares CreateAcls and DeleteAcls with a broker of Apache Kafka with AclAuthorizer: answers and ZooKeeper nodes."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from kazoo.client import KazooClient

from odradek.protocol.library import message_class
from odradek.security.acls import acl_nodes, acl_requests
from odradek.security.acls.acl_types import Entries, ResourcePattern

from ...harness.apache import ApacheMember
from ...harness.wire import Wire
from ...harness.zookeeper import ZooKeeper
from . import random_acls

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1")]

SETTINGS = "authorizer.class.name=kafka.security.authorizer.AclAuthorizer\nsuper.users=User:ANONYMOUS\n"
Tree = dict[ResourcePattern, Entries]


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    server = ZooKeeper(tmp_path_factory.mktemp("zookeeper")).start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def kafka(zookeeper: ZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheMember]:
    broker = ApacheMember(tmp_path_factory.mktemp("apache"), 1, zookeeper.connect)
    broker.properties.write_text(broker.properties.read_text() + SETTINGS)
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def tree(zookeeper: ZooKeeper) -> Iterator[KazooClient]:
    client = KazooClient(zookeeper.connect)
    client.start()
    yield client
    client.stop()
    client.close()


def stored(tree: KazooClient) -> Tree:
    """All ACLs in the tree, decoded by our code."""
    found: Tree = {}
    for pattern in acl_nodes.ACLS:
        for kind in random_acls.TYPES:
            for name in tree.get_children(acl_nodes.type_path(pattern, kind)):
                resource = ResourcePattern(kind, name, pattern)
                found[resource] = acl_nodes.decode_acls(tree.get(acl_nodes.path(resource))[0])
    return found


def test_answers_and_stored_acls_equal_kafkas(kafka: ApacheMember, tree: KazooClient) -> None:
    """Random valid and invalid requests."""
    rng, acls = Random(6), stored(tree)
    for _ in range(120):
        request = create(rng) if rng.random() < 0.6 else delete(rng)
        with Wire(kafka.bootstrap) as wire:
            theirs = wire.call(request)
        answer, changes = (acl_requests.create if "Create" in request.name else acl_requests.delete)(acls, request)
        assert plain(answer) == plain(theirs), request
        acls = {pattern: entries for pattern, entries in {**acls, **changes}.items() if entries}
        assert stored(tree) == acls, request
    assert tree.get_children("/kafka-acl-changes")


def create(rng: Random) -> Any:
    """A CreateAclsRequest with up to four ACLs, of which one in six is invalid."""
    request = message_class("CreateAclsRequest")
    made = [creation(rng) for _ in range(rng.randrange(1, 5))]
    return request[3](creations=[request.AclCreation(**one) for one in made])


def creation(rng: Random) -> dict[str, Any]:
    pattern, entry = random_acls.pattern(rng, random_acls.TYPES), random_acls.entry(rng)
    fields: dict[str, Any] = {
        "resource_type": pattern.type.value,
        "resource_name": "kafka-cluster" if pattern.type.name == "CLUSTER" else pattern.name.replace("😀", ""),
        "resource_pattern_type": pattern.pattern.value,
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation.value,
        "permission_type": entry.permission.value,
    }
    if rng.random() < 1 / 6:
        fields |= rng.choice(INVALID)
    return fields


INVALID: list[dict[str, Any]] = [
    {"resource_type": 4, "resource_name": "x"},
    {"resource_name": ""},
    {"resource_name": "a/b"},
    {"resource_name": ".."},
    {"resource_name": "\x01"},
    {"resource_name": "😀"},
    {"resource_type": 99},
    {"resource_pattern_type": 99},
    {"operation": 99},
    {"permission_type": 99},
    {"resource_type": 1},
    {"resource_pattern_type": 2},
    {"operation": 1},
    {"permission_type": 1},
    {"principal": "alice"},
    {"principal": ""},
]


def delete(rng: Random) -> Any:
    request = message_class("DeleteAclsRequest")
    return request[3](filters=[request.DeleteAclsFilter(**filter_(rng)) for _ in range(rng.randrange(1, 4))])


def filter_(rng: Random) -> dict[str, Any]:
    return {
        "resource_type_filter": rng.choice([1, 2, 3, 5, 99]),
        "resource_name_filter": rng.choice([None, "", "a/b", *random_acls.NAMES]),
        "pattern_type_filter": rng.choice([1, 2, 3, 4, 99]),
        "principal_filter": rng.choice([None, *random_acls.PRINCIPALS]),
        "host_filter": rng.choice([None, None, *random_acls.HOSTS]),
        "operation": rng.choice([1, 1, 1, 2, 3, 99]),
        "permission_type": rng.choice([1, 1, 2, 3]),
    }


def plain(response: Any) -> list[Any]:
    """The results of a response; matching ACLs are sorted, since Kafka has them in hash order."""
    if "Create" in response.name:
        return [(one.error_code, one.error_message) for one in response.results]
    return [
        (one.error_code, one.error_message, sorted(str(acl.to_dict()) for acl in one.matching_acls))
        for one in response.filter_results
    ]
