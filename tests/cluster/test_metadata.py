"""Metadata over real connections to a broker of two workers: after an answer, no client sees an older state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from odradek.protocol import errors
from odradek.protocol.library import message_class as message

from ..harness.broker import Broker, ExternalBroker
from ..harness.wire import Wire
from .controller_harness import create_request

pytestmark = pytest.mark.live

CONNECTIONS = 6


@pytest.fixture
def wires(broker: Broker | ExternalBroker) -> Iterator[list[Wire]]:
    """Connections, spread over the workers by the acceptor."""
    with ExitStack() as stack:
        yield [stack.enter_context(Wire(broker.bootstrap)) for _ in range(CONNECTIONS)]


def metadata(version: int, *names: str, create: bool = False) -> Any:
    request = message("MetadataRequest")
    rest = {"allow_auto_topic_creation": create} if version >= 4 else {}
    return request[version](topics=[request.MetadataRequestTopic(name=name) for name in names], **rest)


def code(wire: Wire, name: str) -> int:
    return int(wire.call(metadata(4, name)).topics[0].error_code)


def test_change_is_visible_on_all_connections_at_once(wires: list[Wire]) -> None:
    delete = message("DeleteTopicsRequest")[5](topic_names=["seen"], timeout_ms=30_000)
    for turn in range(4):
        actor = wires[turn % CONNECTIONS]
        made = actor.call(create_request("seen", 3))
        assert made.topics[0].error_code == 0
        for wire in wires:
            topic = wire.call(metadata(12, "seen")).topics[0]
            assert (topic.error_code, topic.topic_id) == (0, made.topics[0].topic_id)
        assert actor.call(delete).responses[0].error_code == 0
        assert [code(wire, "seen") for wire in wires] == [errors.UNKNOWN_TOPIC_OR_PARTITION] * CONNECTIONS


def test_changed_config_is_visible_on_every_connection(wires: list[Wire]) -> None:
    wires[0].call(create_request("configured"))
    alter = message("IncrementalAlterConfigsRequest")
    kind = alter.AlterConfigsResource
    for size in ("1000", "2000", "3000"):
        config = kind.AlterableConfig(name="max.message.bytes", config_operation=0, value=size)
        resource = kind(resource_type=2, resource_name="configured", configs=[config])
        assert wires[1].call(alter[1](resources=[resource], validate_only=False)).responses[0].error_code == 0
        request = message("DescribeConfigsRequest")
        asked = request.DescribeConfigsResource(
            resource_type=2, resource_name="configured", configuration_keys=["max.message.bytes"]
        )
        found = [wire.call(request[4](resources=[asked])).results[0].configs[0].value for wire in wires]
        assert found == [size] * CONNECTIONS


@pytest.mark.parametrize("version", range(14))
def test_topics_are_created_automatically_if_allowed(wires: list[Wire], version: int) -> None:
    name = f"auto-{version}"
    if version >= 4:
        assert code(wires[0], name) == errors.UNKNOWN_TOPIC_OR_PARTITION
    response = wires[1].call(metadata(version, name, create=True))
    topic = response.topics[0]
    assert (topic.error_code, topic.name, len(topic.partitions)) == (errors.LEADER_NOT_AVAILABLE, name, 0)
    response = wires[2].call(metadata(version, name, create=True))
    topic = response.topics[0]
    assert (topic.error_code, topic.name, len(topic.partitions)) == (0, name, 1)
    assert topic.partitions[0].leader_id == response.brokers[0].node_id
    assert [code(wire, name) for wire in wires] == [0] * CONNECTIONS


def test_invalid_topic_names_are_refused(wires: list[Wire]) -> None:
    response = wires[0].call(metadata(9, "not a name", create=True))
    assert response.topics[0].error_code == errors.INVALID_TOPIC_EXCEPTION


def test_equal_requests_get_equal_answers_until_a_change(wires: list[Wire]) -> None:
    wires[0].call(create_request("cached"))
    answers = [str(wire.call(metadata(9, "cached"))) for wire in wires for _ in range(3)]
    assert len(set(answers)) == 1
    partitions = message("CreatePartitionsRequest")
    more = partitions.CreatePartitionsTopic(name="cached", count=4, assignments=None)
    wires[2].call(partitions[3](topics=[more], timeout_ms=30_000, validate_only=False))
    assert {len(wire.call(metadata(9, "cached")).topics[0].partitions) for wire in wires} == {4}


def test_topics_are_found_by_id(wires: list[Wire]) -> None:
    made = wires[0].call(create_request("by-id"))
    request = message("MetadataRequest")
    topic = request.MetadataRequestTopic(name=None, topic_id=made.topics[0].topic_id)
    found = wires[1].call(request[12](topics=[topic], allow_auto_topic_creation=False)).topics[0]
    assert (found.error_code, found.name) == (0, "by-id")
