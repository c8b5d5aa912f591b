"""A name repeated in one request is answered once: a small request must not cause a huge response."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.protocol import interbroker

from ..harness.process import wait_until
from ..harness.wire import Wire
from .admin import create_topic, unique
from .raw.any_api import request
from .raw.batches import batch
from .raw.calls import produce, producer_id

pytestmark = pytest.mark.live

TOPIC, BROKER = 2, 4


@pytest.fixture
def wire(broker: Any) -> Any:
    if broker.external:
        pytest.skip("Kafka answers each of them")
    with broker.wire() as connection:
        yield connection


def coordinated(wire: Wire, key: str, kind: int) -> str:
    asked = request("FindCoordinator", 2, key=key, key_type=kind)
    wait_until(lambda: wire.call(asked).error_code == 0, 30)
    return key


def test_repeated_group_is_described_once(wire: Wire) -> None:
    group, other = coordinated(wire, unique("g"), 0), unique("g")
    answer = wire.call(request("DescribeGroups", 1, groups=[group, other, group, group]))
    assert [row.group_id for row in answer.groups] == [group, other]


def test_repeated_group_is_answered_once_by_offset_fetch(broker: Any, wire: Wire) -> None:
    topic, group = create_topic(broker), coordinated(wire, unique("g"), 0)
    row = interbroker.message_class("OffsetFetchRequest").OffsetFetchRequestGroup
    some = row.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])
    asked = [row(group_id=group, topics=[some]), row(group_id="other", topics=None), row(group_id=group, topics=None)]
    answer = wire.call(request("OffsetFetch", 8, groups=asked, require_stable=False))
    assert [(each.group_id, len(each.topics)) for each in answer.groups] == [(group, 1), ("other", 0)]


def test_repeated_transactional_id_is_described_once(wire: Wire) -> None:
    name = coordinated(wire, unique("t"), 1)
    answer = wire.call(request("DescribeTransactions", 0, transactional_ids=[name, name]))
    assert [row.transactional_id for row in answer.transaction_states] == [name]


def test_repeated_config_resource_is_described_once(broker: Any, wire: Wire) -> None:
    """A broker id may be written in several ways."""
    topic = create_topic(broker)
    row = interbroker.message_class("DescribeConfigsRequest").DescribeConfigsResource
    number = wire.metadata().brokers[0].node_id
    names = [(TOPIC, topic), (BROKER, f"{number}"), (BROKER, f"00{number}"), (TOPIC, topic), (BROKER, f" {number}")]
    asked = [row(resource_type=kind, resource_name=name, configuration_keys=["retention.ms"]) for kind, name in names]
    answer = wire.call(request("DescribeConfigs", 1, resources=asked, include_synonyms=False))
    assert [(row.resource_type, row.resource_name) for row in answer.results] == names[:2]


def test_repeated_partition_is_answered_once_by_describe_producers(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker)
    number, epoch = producer_id(wire)
    assert produce(wire, topic, batch([b"a"], producer=number, epoch=epoch, sequence=0)).error_code == 0
    row = interbroker.message_class("DescribeProducersRequest").TopicRequest
    asked = [row(name=topic, partition_indexes=[0, 0]), row(name=topic, partition_indexes=[0])]
    answer = wire.call(request("DescribeProducers", 0, topics=asked))
    (only,) = [part for each in answer.topics for part in each.partitions]
    assert [producer.producer_id for producer in only.active_producers] == [number]
