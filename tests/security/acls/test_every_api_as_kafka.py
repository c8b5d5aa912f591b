"""Each API with the same ACLs at a broker of Apache Kafka 3.9.1 and at ours has the same errors and visible fields.

Both have AclAuthorizer and a ZooKeeper of their own. Every client is User:ANONYMOUS, since PLAINTEXT has no
authentication; the brokers and the administrator, who creates the ACLs, connect from 127.0.0.1, the tested client from
127.0.0.2, and the ACLs under test are for that address. `ODRADEK_ACL_CASES=n` runs only every n-th case.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from odradek.protocol import interbroker
from odradek.protocol.library import message_class
from odradek.security.acls.acl_types import SUPPORTED, Operation, PatternType, Permission, ResourceType
from odradek.security.acls.api_checks import ROWS
from odradek.workers.apis import table

from ...clients.admin import create_named, leads, topic_id
from ...differential.compare import errors_in
from ...harness.apache import ApacheMember
from ...harness.broker import Broker
from ...harness.process import wait_until
from ...harness.wire import Wire, decode_body
from ...harness.zookeeper import ZooKeeper
from . import every_api
from .every_api import GROUP, ID, MISSING, OTHER, REQUESTS, SPARE, TOPIC, Request

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.needs("java-3.9.1")]

EACH = int(os.environ.get("ODRADEK_ACL_CASES", 6))
CLIENT, BROKERS = "127.0.0.2", "127.0.0.1"
AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
NAMES = {
    ResourceType.TOPIC: (TOPIC, "ord"), ResourceType.GROUP: (GROUP, "g-"), ResourceType.TRANSACTIONAL_ID: (ID, "x"),
    ResourceType.CLUSTER: ("kafka-cluster", "kafka-cluster"),
}  # fmt: skip
"""A resource of each type that requests name, and a prefix of its name; the cluster has one name only."""
TRIES, PAUSE_S = 50, 0.1
PASSING = {5, 14, 15, 16, 51}  # errors while a coordinator or topic is loading or being created
ALLOW, DENY, ALL = Permission.ALLOW, Permission.DENY, Operation.ALL
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


class Acl(NamedTuple):
    kind: ResourceType
    name: str
    operation: Operation
    permission: Permission = ALLOW
    pattern: PatternType = LITERAL
    principal: str = "User:ANONYMOUS"
    host: str = CLIENT


Case = tuple[Acl, ...]
Seen = dict[tuple[str, int, int], Any]  # by API, version, and place among the requests


def cases() -> list[Case]:
    """No ACL; every way to allow or deny each operation on each type; and random sets of these ACLs."""
    found: list[Case] = [()]
    for kind, (name, prefix) in NAMES.items():
        every = name if kind is ResourceType.CLUSTER else "*"
        for operation in (*SUPPORTED[kind], ALL):
            allow, deny = Acl(kind, name, operation), Acl(kind, name, operation, DENY)
            found += [
                (allow,), (allow._replace(name=prefix, pattern=PREFIXED),), (allow._replace(name=every),),
                (allow._replace(principal="User:*"),), (allow._replace(principal="User:bob"),),
                (allow._replace(host="127.0.0.3"),), (deny, allow._replace(name=every, operation=ALL)),
                (deny._replace(name=prefix, pattern=PREFIXED, operation=ALL), allow),
                (deny._replace(name=every), allow),
            ]  # fmt: skip
    rng = Random(20)
    single = [acl for case in found for acl in case]
    found += [tuple(dict.fromkeys(rng.sample(single, rng.randrange(3, 9)))) for _ in range(60)]
    return found


class Side:
    """One of the brokers, with the administrator and the tested client."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = Wire(bootstrap, 60)
        self._client: Wire | None = None
        for name in (TOPIC, OTHER, SPARE, "made"):
            create_named(self.admin, name)
        for key, kind in ((GROUP, 0), (ID, 1)):
            wait_until(lambda key=key, kind=kind: self._coordinates(key, kind), 60)  # type: ignore[misc]
        wait_until(lambda: all(leads(self.admin, name, 0) for name in (TOPIC, OTHER, SPARE)), 30)
        self.ids = {name: topic_id(self.admin, name) for name in (TOPIC, OTHER, SPARE)} | {MISSING: UUID(int=9)}
        self.offers = self.admin.api_versions()

    def _coordinates(self, key: str, kind: int) -> bool:
        return not self.admin.call(message_class("FindCoordinatorRequest")[1](key=key, key_type=kind)).error_code

    def close(self) -> None:
        self.admin.close()
        if self._client is not None:
            self._client.close()

    def set_acls(self, case: Case) -> None:
        """Replace the ACLs of the client."""
        delete = message_class("DeleteAclsRequest")
        filters = [
            delete.DeleteAclsFilter(
                resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1, principal_filter=None,
                host_filter=host, operation=1, permission_type=1,
            )
            for host in (CLIENT, "127.0.0.3")
        ]  # fmt: skip
        assert not any(one.error_code for one in self.admin.call(delete[3](filters=filters)).filter_results)
        if case:
            self.add(case)

    def add(self, acls: Iterable[Acl]) -> None:
        create = message_class("CreateAclsRequest")
        creations = [
            create.AclCreation(
                resource_type=acl.kind.value, resource_name=acl.name, resource_pattern_type=acl.pattern.value,
                principal=acl.principal, host=acl.host, operation=acl.operation.value,
                permission_type=acl.permission.value,
            )
            for acl in acls
        ]  # fmt: skip
        results = self.admin.call(create[3](creations=creations)).results
        assert not any(one.error_code for one in results), results

    def ask(self, request: Request, version: int) -> Any:
        """The visible part of the answer; "closed" if the broker closes the connection."""
        if self._client is None:
            self._client = Wire(self.bootstrap, 30, CLIENT)
        self._client.send_raw(every_api.frame(request, version, self.ids))
        try:
            frame = self._client.read_frame()
        except (EOFError, ConnectionError):
            self._client.close()
            self._client = None
            return "closed"
        if table.load_rows()[KEYS[request.api]].between_brokers:  # the library does not have these
            return every_api.visible(interbroker.response(request.api, version, frame)[1])
        kind = message_class(f"{request.api}Response")
        return every_api.visible(decode_body(kind, version, frame[5 if kind.flexible_version_q(version) else 4 :]))

    def restore(self) -> None:
        """Create again the topic that requests may have deleted."""
        if not _exists(self.admin, SPARE):
            wait_until(lambda: self._made(SPARE), 30)
            self.ids[SPARE] = topic_id(self.admin, SPARE)

    def _made(self, name: str) -> bool:
        try:
            create_named(self.admin, name)
        except AssertionError:  # the topic is still being deleted
            return False
        return True


def _exists(wire: Wire, name: str) -> bool:
    return not wire.metadata(name).topics[0].error_code


class Pair:
    """Kafka's broker and ours."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.zookeepers = [ZooKeeper(folder / f"zookeeper-{side}").start() for side in ("ours", "theirs")]
        named = {
            "authorizer.class.name": AUTHORIZER,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        self.kafka = ApacheMember(folder / "kafka", 0, self.zookeepers[1].connect)
        lines = "".join(f"{key}={value}\n" for key, value in named.items())
        self.kafka.properties.write_text(self.kafka.properties.read_text() + lines + _MORE)
        more = {key.replace(".", "_"): value for key, value in named.items()}
        self.broker = Broker(
            folder / "ours", zookeeper_connect=self.zookeepers[0].connect, odradek_inter_broker_allowed_hosts=CLIENT,
            transaction_state_log_num_partitions=2, **more,
        )  # fmt: skip
        for server in self.zookeepers:
            _allow_brokers(server)
        self.kafka.spawn()
        self.broker.start()
        self.kafka.await_ready()
        self.ours, self.theirs = Side(self.broker.bootstrap), Side(self.kafka.bootstrap)

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()
        self.broker.close()
        self.kafka.stop()
        for server in self.zookeepers:
            server.kill()

    def played(self, case: Case) -> tuple[Seen, Seen]:
        """The visible answers of both brokers with these ACLs."""
        found: tuple[Seen, Seen] = ({}, {})
        for side in (self.ours, self.theirs):
            side.set_acls(case)
        for place, request in enumerate(REQUESTS):
            for version in request.versions:
                if not self._offered(request.api, version):
                    continue
                for side, seen in zip((self.ours, self.theirs), found, strict=True):
                    seen[request.api, version, place] = _settled(side, request, version)
        self.ours.restore()
        self.theirs.restore()
        return found

    def _offered(self, api: str, version: int) -> bool:
        key = KEYS[api]
        both = [side.offers.get(key, (0, -1)) for side in (self.ours, self.theirs)]
        return all(low <= version <= high for low, high in both)


def _settled(side: Side, request: Request, version: int) -> Any:
    """The visible answer of a broker once its background work is finished."""
    for _ in range(TRIES):
        seen = side.ask(request, version)
        if not errors_in(seen) & PASSING:
            break
        time.sleep(PAUSE_S)
    return seen


KEYS = {row.name: row.key for row in ROWS.values()}
_MORE = "transaction.state.log.num.partitions=2\ntransaction.state.log.min.isr=1\n"


def _allow_brokers(server: ZooKeeper) -> None:
    """Allow 127.0.0.1 everything before a broker starts, as kafka-acls.sh --authorizer-properties would."""
    from kazoo.client import KazooClient

    from odradek.security.acls import acl_nodes
    from odradek.security.acls.acl_types import AccessControlEntry, ResourcePattern

    client = KazooClient(server.connect)
    client.start()
    entry = AccessControlEntry("User:ANONYMOUS", BROKERS, ALL, ALLOW)
    for kind in NAMES:
        name = "kafka-cluster" if kind is ResourceType.CLUSTER else "*"
        data = acl_nodes.encode_acls(frozenset([entry]))
        client.create(acl_nodes.path(ResourcePattern(kind, name, LITERAL)), data, makepath=True)
    client.stop()
    client.close()


REASONS = {
    ("OffsetFetch", 1, (0, 30), (0,)): (
        "to who may not describe the group Kafka answers no partition, and v1 has no other place for an error: its "
        "client takes that for a group that has committed nothing, and starts over; ours says 30 for each partition"
    ),
    ("ControlledShutdown", 3, (8,), (-1,)): "Kafka has no code for a broker that it does not know",
}
"""Reasons of known differences, by API, version, and the errors in both answers."""


def compare(pair: Pair, played: Iterable[Case]) -> None:
    """Play these cases; fails with all differences that are not in REASONS."""
    found: list[str] = []
    answers = 0
    for case in played:
        ours, theirs = pair.played(case)
        answers += len(ours)
        for key, seen in ours.items():
            if seen != theirs[key] and (*key[:2], *_errors(seen, theirs[key])) not in REASONS:
                found.append(f"{key} with {_text(case)}:\n  ours:  {seen}\n  Kafka: {theirs[key]}")
    print(f"{answers} answers compared")
    assert not found, f"{len(found)} differ:\n" + "\n".join(found[:40])


def _errors(*answers: Any) -> list[tuple[int, ...]]:
    return [tuple(sorted(errors_in(answer))) for answer in answers]


def _text(case: Case) -> str:
    return "; ".join(
        f"{acl.permission.title} {acl.operation.title} {acl.kind.title}:{acl.name} ({acl.pattern.title}) "
        f"{acl.principal} {acl.host}"
        for acl in case
    )


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Brokers that allow nothing without an ACL."""
    pair = Pair(tmp_path_factory.mktemp("closed"))
    yield pair
    pair.close()


@pytest.mark.timeout(1800)
def test_answers_equal_kafkas_with_each_acl(closed: Pair) -> None:
    compare(closed, cases()[::EACH])


def test_every_served_api_is_compared() -> None:
    """Except APIs without a permission. Tokens: tests/cluster/users; others: test_kraft_apis_as_kafka."""
    asked = {request.api for request in REQUESTS}
    served = {row.name for row in table.load_rows().values() if ROWS[row.key].checks}
    tokens = {"CreateDelegationToken", "DescribeDelegationToken"}
    assert served - asked - tokens == {"ListConfigResources", "DescribeTopicPartitions"}


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "settings", [{"allow_everyone_if_no_acl_found": "true"}, {"super_users": "User:ANONYMOUS"}], ids=str
)
def test_answers_equal_kafkas_with_settings_that_override_acls(tmp_path: Path, settings: dict[str, str]) -> None:
    """allow.everyone.if.no.acl.found allows resources without ACLs; a super user may do everything."""
    pair = Pair(tmp_path, **settings)
    try:
        compare(pair, cases()[:: 8 * EACH])
    finally:
        pair.close()


def test_each_request_is_a_whole_frame() -> None:
    """The length before the frame is correct."""
    ids = dict.fromkeys((TOPIC, OTHER, SPARE, MISSING), UUID(int=5))
    for request in REQUESTS:
        for version in request.versions:
            frame = every_api.frame(request, version, ids)
            assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
