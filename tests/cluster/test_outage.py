"""ZooKeeper is unavailable for a moment: changes of the metadata wait for it, as in Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from odradek.broker.controller.zookeeper_outage import CHANGES, MOST, TIMEOUT_S, ZooKeeperOutage

from ..clients.admin import create_named
from ..clients.raw.wellformed import codes, request
from ..clients.test_every_version import request_classes
from ..harness.broker import Broker
from ..harness.process import wait_until
from ..harness.wire import Wire
from ..harness.zookeeper import ZooKeeper

pytestmark = pytest.mark.live

CREATE_TOPICS, UPDATE_METADATA, CREATE_ACLS = 19, 6, 30
QUICK = {"zookeeper_connection_timeout_ms": 3000}
AUTHORIZED = {  # an AclAuthorizer that allows all: without one, changes of ACLs fail before they reach ZooKeeper
    "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
    "super_users": "User:ANONYMOUS",
}
NOT_CONTROLLER = 41


class Scene:
    """An outage with its own clock, and the order in which requests were served."""

    def __init__(self) -> None:
        self.there, self.now = False, 0.0
        self.served: list[int] = []
        self.outage = ZooKeeperOutage(lambda: self.there, lambda: self.now)

    def take(self, key: int, number: int) -> None:
        self.outage.submit(key, lambda: self.served.append(number))


def test_changes_wait_for_the_connection_in_order() -> None:
    scene = Scene()
    for number, key in enumerate(sorted(CHANGES)):
        scene.take(key, number)
    scene.outage.tick()
    assert scene.served == []
    scene.there = True
    scene.take(CREATE_TOPICS, 99)  # after the earlier ones
    scene.outage.tick()
    assert scene.served == [*range(len(CHANGES)), 99]


def test_controller_requests_do_not_wait() -> None:
    scene = Scene()
    scene.take(CREATE_TOPICS, 1)
    scene.take(UPDATE_METADATA, 2)
    assert scene.served == [2]


def test_wait_is_bounded() -> None:
    scene = Scene()
    scene.take(CREATE_TOPICS, 1)
    scene.now = TIMEOUT_S / 2
    scene.take(CREATE_TOPICS, 2)
    scene.now = TIMEOUT_S
    scene.outage.tick()
    assert scene.served == [1]


def test_number_of_waiting_requests_is_bounded() -> None:
    scene = Scene()
    for number in range(MOST + 1):
        scene.take(CREATE_TOPICS, number)
    assert scene.served == [MOST]


@pytest.fixture
def broker(zookeeper: ZooKeeper, tmp_path: Path) -> Iterator[Broker]:
    running = Broker(tmp_path / "broker", broker_id=0, zookeeper_connect=zookeeper.connect, **QUICK, **AUTHORIZED)
    try:
        yield running.start()
    finally:
        running.close()


@pytest.mark.needs("java-3.9.1")
@pytest.mark.timeout(120)
def test_topic_requested_in_outage_is_created_after_it(zookeeper: ZooKeeper, broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    wait_until(lambda: admin.list_topics(timeout=20).controller_id == 0, 30, "a controller")
    zookeeper.suspend()  # not killed: a start may take longer than the request can wait
    wait_until(lambda: "lost the connection to ZooKeeper" in broker.log, 60, "the broker to notice")
    asked = admin.create_topics([NewTopic("late", 1, 1)])["late"]  # a future
    zookeeper.resume()
    assert asked.result(60) is None
    assert "late" in admin.list_topics(timeout=20).topics


def _change(wire: Wire, key: int, principal: str = "User:a") -> Any:
    """Send a request that changes the metadata, at its newest version, with values for all fields."""
    request_class = request_classes()[key]
    version = min(request_class.max_version, wire.api_versions()[key][1])
    asked = request(request_class, version, "there", UUID(int=0), "g")
    _really(asked, key, principal)
    wire.put(asked)
    return asked


def _really(asked: Any, key: int, principal: str) -> None:
    """Set the fields so that the request changes an existing resource, and is not validate-only."""
    if hasattr(asked, "validate_only"):
        asked.validate_only = False
    if key == 20:
        asked.topics[0].name = "there"
    if key == 37:
        asked.topics[0].count, asked.topics[0].assignments = 2, None
    if key in (33, 44):
        config = type(asked.resources[0]).AlterableConfig(name="retention.ms", value="5")
        asked.resources[0].configs = [config]
    if key == 45:
        asked.topics[0].partitions[0].replicas = [0]
    if key == CREATE_ACLS:
        acl = asked.creations[0]
        acl.resource_pattern_type, acl.principal, acl.host, acl.operation, acl.permission_type = 3, principal, "*", 3, 3
    if key == 31:
        any_acl = asked.filters[0]
        any_acl.resource_name_filter = any_acl.principal_filter = any_acl.host_filter = None
    if key == 49:
        entry = asked.entries[0]
        entry.entity[0].entity_type, entry.entity[0].entity_name = "user", "a"
        entry.ops[0].key, entry.ops[0].value = "producer_byte_rate", 1024.0


@pytest.mark.needs("java-3.9.1")
@pytest.mark.timeout(120)
def test_timed_out_request_gets_a_retriable_error_that_names_zookeeper(zookeeper: ZooKeeper, broker: Broker) -> None:
    """Clients do not retry a disk error, and it would point at the wrong machine."""
    with broker.wire() as wire:
        wait_until(lambda: wire.metadata().controller_id == 0, 30, "a controller")
        create_named(wire, "there", 1)
        first = _change(wire, CREATE_ACLS, principal="User:b")  # DeleteAcls deletes this ACL
        assert codes(wire.take(first)) == [0]
    zookeeper.kill()
    wait_until(lambda: "lost the connection to ZooKeeper" in broker.log, 30, "the broker to notice")
    # ElectLeaders needs no ZooKeeper for a leader that already leads. Delegation tokens need a secure listener.
    keys = CHANGES - {43, 38, 39, 40}
    with ExitStack() as stack:
        wires = {key: stack.enter_context(broker.wire(60)) for key in sorted(keys)}
        asked = {key: _change(wire, key) for key, wire in wires.items()}
        answers = {key: wires[key].take(asked[key]) for key in wires}
    zookeeper.start()
    found = {key: set(codes(answer)) - {0} for key, answer in answers.items()}
    assert found == {key: {NOT_CONTROLLER} for key in keys}
    texts = [str(answer.to_dict()) for answer in answers.values()]
    assert all("zookeeper.connect" in text and "disk" not in text for text in texts)


@pytest.mark.needs("java-3.9.1")
@pytest.mark.timeout(120)
def test_controller_process_without_zookeeper_keeps_broker_running(zookeeper: ZooKeeper, broker: Broker) -> None:
    """The process is killed in an outage. Workers continue, and the next one takes over once ZooKeeper is back."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    wait_until(lambda: admin.list_topics(timeout=20).controller_id == 0, 30, "a controller")
    admin.create_topics([NewTopic("before", 1, 1)])["before"].result(60)
    zookeeper.kill()
    wait_until(lambda: "lost the connection to ZooKeeper" in broker.log, 30, "the broker to notice")
    broker.kill_role("controller")
    wait_until(lambda: broker.log.count("(zookeeper.connect) does not respond") >= 2, 60, "another connection attempt")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("before", b"x")
    assert producer.flush(30) == 0
    zookeeper.start()
    wait_until(lambda: _made(admin, "after"), 60, "the creation of a topic")


def _made(admin: AdminClient, topic: str) -> bool:
    try:
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(10)
    except KafkaException:
        return False
    return True


@pytest.mark.long
@pytest.mark.needs("java-3.9.1")
@pytest.mark.timeout(120)
def test_too_large_write_is_refused_and_session_stays(broker: Broker) -> None:
    """ZooKeeper would close the connection: until the next session, no ISR could change and no topic be created."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    wait_until(lambda: admin.list_topics(timeout=20).controller_id == 0, 30, "a controller")
    admin.create_topics([NewTopic("there", 1, 1)])["there"].result(60)
    with pytest.raises(KafkaException, match=r"INVALID_REQUEST.*jute\.maxbuffer"):
        for number in range(50):  # 31 KB each, near the limit of a string
            _append(admin, ",".join(f"{number}:{broker}" for broker in range(3_000)))
    assert "lost the connection to ZooKeeper" not in broker.log
    admin.create_topics([NewTopic("after", 1, 1)])["after"].result(60)


def _append(admin: AdminClient, value: str) -> None:
    entry = ConfigEntry("leader.replication.throttled.replicas", value, incremental_operation=AlterConfigOpType.APPEND)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "there", incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(60)
