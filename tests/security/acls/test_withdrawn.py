"""ACLs created and deleted while clients work take effect in every worker, also for cached requests."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from odradek.protocol.errors import NONE, TOPIC_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED
from odradek.protocol.library import message_class

from ...clients.admin import create_named
from ...clients.raw.batches import batch
from ...clients.raw.calls import fetch, fetch_request, part, produce, session_request
from ...harness.broker import Broker
from ...harness.process import wait_until
from ...harness.wire import Wire

pytestmark = pytest.mark.live

CLIENT, ADMIN = "127.0.0.2", "127.0.0.1"
READ, WRITE, ALL = 3, 4, 2
TOPIC, CLUSTER, ID = 2, 4, 5
WORKERS = 3


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that allows resources without ACLs, so that the first ACL can be created."""
    found = Broker(
        tmp_path_factory.mktemp("acls"), odradek_workers=WORKERS, allow_everyone_if_no_acl_found="true",
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    )  # fmt: skip
    found.start()
    with found.wire() as wire:
        give(wire, CLUSTER, "kafka-cluster", ALL, host=ADMIN)
        give(wire, TOPIC, "*", ALL, host=ADMIN)
        give(wire, ID, "*", ALL, host=ADMIN)
    yield found
    found.close()


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    name = str(request.node.name).replace("[", "-").replace("]", "")
    with broker.wire() as wire:
        create_named(wire, name)
        assert produce(wire, name, batch([b"first"])).error_code == NONE
    return name


def give(wire: Wire, kind: int, name: str, operation: int, host: str = CLIENT) -> None:
    create = message_class("CreateAclsRequest")
    acl = create.AclCreation(
        resource_type=kind, resource_name=name, resource_pattern_type=3, principal="User:ANONYMOUS", host=host,
        operation=operation, permission_type=3,
    )  # fmt: skip
    assert [one.error_code for one in wire.call(create[3](creations=[acl])).results] == [NONE]


def withdraw(wire: Wire, name: str) -> None:
    delete = message_class("DeleteAclsRequest")
    wanted = delete.DeleteAclsFilter(
        resource_type_filter=1, resource_name_filter=name, pattern_type_filter=3, principal_filter=None,
        host_filter=CLIENT, operation=1, permission_type=1,
    )  # fmt: skip
    assert [one.error_code for one in wire.call(delete[3](filters=[wanted])).filter_results] == [NONE]


@pytest.fixture
def clients(broker: Broker) -> Iterator[list[Wire]]:
    """Enough connections that every worker has some."""
    found = [Wire(broker.bootstrap, 30, CLIENT) for _ in range(3 * WORKERS)]
    yield found
    for wire in found:
        wire.close()


def test_acl_changes_apply_to_connections_with_a_cached_produce_target(
    broker: Broker, topic: str, clients: list[Wire]
) -> None:
    records = batch([b"value"])
    with broker.wire() as admin:
        for _ in range(3):
            assert {produce(wire, topic, records).error_code for wire in clients} == {TOPIC_AUTHORIZATION_FAILED}
            give(admin, TOPIC, topic, WRITE)
            for _ in range(3):
                assert {produce(wire, topic, records).error_code for wire in clients} == {NONE}
            withdraw(admin, topic)
    with broker.wire() as admin:
        assert produce(admin, topic, records).error_code == NONE


def test_acl_changes_apply_to_connections_that_repeat_a_fetch(broker: Broker, topic: str, clients: list[Wire]) -> None:
    with broker.wire() as admin:
        for _ in range(3):
            assert {fetch(wire, topic, 0).error_code for wire in clients} == {TOPIC_AUTHORIZATION_FAILED}
            give(admin, TOPIC, topic, READ)
            for _ in range(3):
                found = [fetch(wire, topic, 0) for wire in clients]
                assert {one.error_code for one in found} == {NONE} and all(one.records for one in found)
            withdraw(admin, topic)


def test_acl_changes_apply_to_a_fetch_session(broker: Broker, topic: str) -> None:
    with broker.wire() as admin, Wire(broker.bootstrap, 30, CLIENT) as wire:
        give(admin, TOPIC, topic, READ)
        first = wire.call(session_request([(topic, [part(0, 0)])], session_epoch=0))
        again = wire.call(
            session_request([(topic, [part(0, 1)])], session=first.session_id, session_epoch=1, wait_ms=0)
        )
        assert (errors(first), errors(again)) == ([NONE], [])
        withdraw(admin, topic)
        third = wire.call(session_request([], session=first.session_id, session_epoch=2))
        assert errors(third) == [TOPIC_AUTHORIZATION_FAILED]
        give(admin, TOPIC, topic, READ)
        fourth = wire.call(session_request([(topic, [part(0, 0)])], session=first.session_id, session_epoch=3))
        assert errors(fourth) == [NONE]


def errors(answer: Any) -> list[int]:
    return [row.error_code for one in answer.responses for row in one.partitions]


@pytest.mark.parametrize("repeats", [0, 2])
def test_delayed_fetch_fails_when_its_acl_is_deleted(broker: Broker, topic: str, repeats: int) -> None:
    with broker.wire() as admin, Wire(broker.bootstrap, 60, CLIENT) as wire:
        give(admin, TOPIC, topic, READ)
        for offset in range(1, 1 + repeats):
            request = fetch_request(topic, offset, wait_ms=50_000)
            wire.put(request)
            assert produce(admin, topic, batch([b"more"])).error_code == NONE
            assert errors(wire.take(request)) == [NONE]
        request = fetch_request(topic, 1 + repeats, wait_ms=50_000)
        wire.put(request)
        began = time.monotonic()
        withdraw(admin, topic)
        assert errors(wire.take(request)) == [TOPIC_AUTHORIZATION_FAILED]
        assert time.monotonic() - began < 30  # long before max_wait_ms of the request


def producer_of(wire: Wire, transactional_id: str) -> Any:
    """The answer to InitProducerId once its coordinator is available."""
    init = message_class("InitProducerIdRequest")[1](transactional_id=transactional_id, transaction_timeout_ms=60_000)
    found: list[Any] = []

    def answered() -> bool:
        wire.call(message_class("FindCoordinatorRequest")[1](key=transactional_id, key_type=1))
        found[:] = [wire.call(init)]
        return found[0].error_code == NONE

    wait_until(answered, 60, "a producer id")
    return found[0]


def test_transaction_fails_when_its_acl_is_deleted(broker: Broker, topic: str) -> None:
    """The next request fails, as in Kafka."""
    with broker.wire() as admin, Wire(broker.bootstrap, 30, CLIENT) as wire:
        give(admin, TOPIC, topic, WRITE)
        give(admin, ID, topic, WRITE)
        made = producer_of(wire, topic)
        producer = {"producer": made.producer_id, "epoch": made.producer_epoch, "attributes": 1 << 4}
        add = message_class("AddPartitionsToTxnRequest")
        rows = [add.AddPartitionsToTxnTopic(name=topic, partitions=[0])]
        named = {
            "v3_and_below_transactional_id": topic, "v3_and_below_producer_id": made.producer_id,
            "v3_and_below_producer_epoch": made.producer_epoch, "v3_and_below_topics": rows,
        }  # fmt: skip
        added = wire.call(add[3](**named)).results_by_topic_v3_and_below[0].results_by_partition[0]
        assert added.partition_error_code == NONE

        def write(sequence: int) -> int:
            records = batch([b"value"], sequence=sequence, **producer)
            found: int = produce(wire, topic, records, transactional_id=topic).error_code
            return found

        assert [write(0), write(1)] == [NONE, NONE]
        withdraw(admin, topic)
        assert write(2) == TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        end = message_class("EndTxnRequest")
        ended = end[1](
            transactional_id=topic, producer_id=made.producer_id, producer_epoch=made.producer_epoch, committed=True
        )
        assert wire.call(ended).error_code == TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_refusals_and_changes_are_in_the_audit_log(broker: Broker, topic: str) -> None:
    with Wire(broker.bootstrap, 30, CLIENT) as wire:
        assert fetch(wire, topic, 0).error_code == TOPIC_AUTHORIZATION_FAILED
    text = broker.log_file.read_text()
    assert f"odradek.audit: refused: User:ANONYMOUS from {CLIENT}: Read on Topic {topic} (Fetch)" in text
    assert f"odradek.audit: changed: User:ANONYMOUS from {ADMIN}: created topic {topic}" in text
    assert "odradek.audit: changed: User:ANONYMOUS from 127.0.0.1: ACLs of Cluster kafka-cluster (Literal)" in text
