"""Odd requests about topics, configs, quotas and elections, answered as Apache Kafka 3.9 answers them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from odradek.protocol import interbroker

from ..harness.wire import Wire
from .admin import create_topic, topic_id, unique
from .raw.any_api import find_coordinator, request

pytestmark = pytest.mark.live

UNKNOWN_TOPIC, INVALID_REQUEST = 3, 42
BAD_ASSIGNMENT, BAD_CONFIG = 39, 40
UNSUPPORTED_VERSION = 35


@pytest.fixture
def wire(broker: Any) -> Any:
    with broker.wire() as connection:
        yield connection


# -- Topics and configs


def created(wire: Wire, assigned: list[int], **configs: str) -> int:
    row = interbroker.message_class("CreateTopicsRequest").CreatableTopic
    brokers = [node.node_id for node in described_brokers(wire)][:1]
    topic = row(
        name=unique("t"), num_partitions=-1 if assigned else 1, replication_factor=-1 if assigned else 1,
        assignments=[row.CreatableReplicaAssignment(partition_index=at, broker_ids=brokers) for at in assigned],
        configs=[row.CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in configs.items()],
    )  # fmt: skip
    answer = wire.call(request("CreateTopics", 4, topics=[topic], timeout_ms=15_000, validate_only=False))
    return int(answer.topics[0].error_code)


def described_brokers(wire: Wire) -> Any:
    return wire.call(request("Metadata", 10, topics=[], allow_auto_topic_creation=False)).brokers


def test_duplicate_assignment_is_refused(wire: Wire) -> None:
    assert created(wire, [0, 1, 1]) == BAD_ASSIGNMENT
    assert created(wire, [0, 1]) == 0


def test_tiered_storage_is_refused(broker: Any, wire: Wire) -> None:
    assert created(wire, [], remote_storage_enable="true") == BAD_CONFIG
    assert created(wire, [], remote_storage_enable="false") == 0
    name = create_topic(broker)
    row = interbroker.message_class("IncrementalAlterConfigsRequest").AlterConfigsResource
    for value, code in (("true", BAD_CONFIG), ("false", 0)):
        config = row.AlterableConfig(name="remote.storage.enable", config_operation=0, value=value)
        changed = row(resource_type=2, resource_name=name, configs=[config])
        answer = wire.call(request("IncrementalAlterConfigs", 0, resources=[changed], validate_only=False))
        assert answer.responses[0].error_code == code


@pytest.mark.parametrize(
    ("name", "bad", "good"),
    [("log.roll.ms", "0", "1"), ("log.cleaner.threads", "0", "2"), ("num.replica.fetchers", "3", "2")],
)
def test_invalid_broker_configs_are_refused(wire: Wire, name: str, bad: str, good: str) -> None:
    row = interbroker.message_class("IncrementalAlterConfigsRequest").AlterConfigsResource

    def alter(operation: int, value: str | None) -> int:
        config = row.AlterableConfig(name=name, config_operation=operation, value=value)
        changed = row(resource_type=4, resource_name="", configs=[config])
        answer = wire.call(request("IncrementalAlterConfigs", 0, resources=[changed], validate_only=False))
        return int(answer.responses[0].error_code)

    assert alter(0, bad) == INVALID_REQUEST
    assert alter(0, good) == 0
    assert alter(1, None) == 0


# -- Topics described


def described(wire: Wire, version: int, **topics: Any) -> Any:
    row = interbroker.message_class("MetadataRequest").MetadataRequestTopic
    rows = [row(**{name: value}) for name, value in topics.items()]
    return wire.call(request("Metadata", version, topics=rows, allow_auto_topic_creation=False)).topics


def test_metadata_ignores_ids_in_old_versions(broker: Any, wire: Wire) -> None:
    number = topic_id(wire, create_topic(broker))
    (only,) = described(wire, 10, topic_id=number)
    assert (only.error_code, only.name, only.topic_id) == (INVALID_REQUEST, "", number)
    _, other = described(wire, 10, topic_id=number, name="__consumer_offsets")
    assert (other.error_code, other.name, other.is_internal) == (INVALID_REQUEST, "__consumer_offsets", False)


def test_metadata_prefers_ids_to_names(broker: Any, wire: Wire) -> None:
    first, second = create_topic(broker), create_topic(broker)
    (only,) = described(wire, 12, topic_id=topic_id(wire, first), name=second)
    assert (only.error_code, only.name) == (0, first), "names count only if no topic is asked for by id"


@pytest.mark.parametrize(("named", "index"), [(True, -1), (False, 0)])
def test_invalid_cursor_is_refused(broker: Any, wire: Wire, named: bool, index: int) -> None:
    topic = create_topic(broker)
    kind = interbroker.message_class("DescribeTopicPartitionsRequest")
    cursor = kind.Cursor(topic_name=topic if named else unique("other"), partition_index=index)
    asked = [kind.TopicRequest(name=topic)]
    if 75 not in wire.api_versions():
        pytest.skip("Kafka has it in KRaft mode")
    answer = wire.call(kind[0](topics=asked, response_partition_limit=10, cursor=cursor))
    assert [(row.name, row.error_code) for row in answer.topics] == [(topic, INVALID_REQUEST)]
    assert answer.next_cursor is None


# -- Unknown types, null and empty values, duplicates


def described_configs(wire: Wire, *resources: tuple[int, str]) -> Any:
    row = interbroker.message_class("DescribeConfigsRequest").DescribeConfigsResource
    rows = [row(resource_type=kind, resource_name=name, configuration_keys=[]) for kind, name in resources]
    return wire.call(request("DescribeConfigs", 1, resources=rows, include_synonyms=False)).results


def test_unknown_resource_type_is_refused(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker)
    assert [row.error_code for row in described_configs(wire, (2, topic))] == [0]
    assert {row.error_code for row in described_configs(wire, (2, topic), (1, topic))} == {INVALID_REQUEST}


def test_null_config_key_closes_the_connection(broker: Any, wire: Wire) -> None:
    body = b"\0\0\0\1\2\0\1t\0\0\0\1\xff\xff\0"  # one topic with one config, whose name is null
    wire.post(32, 1, body)
    assert wire.closed_by_peer()


@pytest.mark.parametrize(("kind", "code"), [(1, 0), (2, 114), (3, 115), (0, 115)])
def test_describe_cluster_accepts_only_broker_endpoints(wire: Wire, kind: int, code: int) -> None:
    asked = request("DescribeCluster", 1, include_cluster_authorized_operations=False, endpoint_type=kind)
    assert wire.call(asked).error_code == code


@pytest.mark.parametrize(
    ("code", "components"),
    [
        (0, []), (0, [("user", 0, "u"), ("client-id", 1, None)]), (0, [("ip", 2, None)]),
        (INVALID_REQUEST, [("", 0, "u")]), (INVALID_REQUEST, [("user", 0, "u"), ("user", 1, None)]),
        (UNSUPPORTED_VERSION, [("group", 0, "g")]), (INVALID_REQUEST, [("user", 0, None)]),
        (INVALID_REQUEST, [("user", 1, "u")]), (INVALID_REQUEST, [("user", 3, None)]),
        (INVALID_REQUEST, [("user", 0, "u"), ("ip", 0, "127.0.0.1")]),
    ],
)  # fmt: skip
def test_quota_filters_with_invalid_entities_are_refused(
    wire: Wire, code: int, components: list[tuple[str, int, str | None]]
) -> None:
    row = interbroker.message_class("DescribeClientQuotasRequest").ComponentData
    rows = [row(entity_type=kind, match_type=match, match=value) for kind, match, value in components]
    answer = wire.call(request("DescribeClientQuotas", 0, components=rows, strict=False))
    assert (answer.error_code, answer.entries) == (code, None if code else [])


def test_unknown_election_type_is_refused(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker)
    row = interbroker.message_class("ElectLeadersRequest").TopicPartitions
    rows = [row(topic=topic, partitions=[0])]
    answer = wire.call(request("ElectLeaders", 1, election_type=5, topic_partitions=rows, timeout_ms=10_000))
    (part,) = answer.replica_election_results[0].partition_result
    assert (answer.error_code, part.error_code) == (INVALID_REQUEST, INVALID_REQUEST)


def test_append_to_a_scalar_config_is_refused_before_the_unknown_topic(wire: Wire) -> None:
    row = interbroker.message_class("IncrementalAlterConfigsRequest").AlterConfigsResource

    def alter(name: str) -> int:
        config = row.AlterableConfig(name=name, config_operation=2, value="1")
        changed = row(resource_type=2, resource_name=unique("none"), configs=[config])
        answer = wire.call(request("IncrementalAlterConfigs", 0, resources=[changed], validate_only=False))
        return int(answer.responses[0].error_code)

    assert alter("retention.ms") == BAD_CONFIG
    assert alter("cleanup.policy") in (UNKNOWN_TOPIC, BAD_CONFIG), "with ZooKeeper and KRaft"


@pytest.mark.parametrize(("appended", "code"), [("", BAD_CONFIG), (",", 0), ("compact,", 0), ("delete", 0)])
def test_append_splits_a_list_as_java_does(broker: Any, wire: Wire, appended: str, code: int) -> None:
    """Java splits an empty string into one empty part, and drops empty parts at the end."""
    row = interbroker.message_class("IncrementalAlterConfigsRequest").AlterConfigsResource
    config = row.AlterableConfig(name="cleanup.policy", config_operation=2, value=appended)
    changed = row(resource_type=2, resource_name=create_topic(broker), configs=[config])
    answer = wire.call(request("IncrementalAlterConfigs", 0, resources=[changed], validate_only=False))
    assert answer.responses[0].error_code == code


def test_delete_by_id_is_served_though_the_name_is_given_a_wrong_id(broker: Any, wire: Wire) -> None:
    """The row with both a name and an id is refused; the row with the id alone is served."""
    name = create_topic(broker)
    row = interbroker.message_class("DeleteTopicsRequest").DeleteTopicState
    its = topic_id(wire, name)
    rows = [row(name=name, topic_id=UUID(int=1)), row(name=None, topic_id=its)]
    answer = wire.call(request("DeleteTopics", 6, topics=rows, timeout_ms=15_000))
    assert {each.topic_id: each.error_code for each in answer.responses} == {UUID(int=1): INVALID_REQUEST, its: 0}


def test_delete_of_a_topic_given_twice_is_refused(broker: Any, wire: Wire) -> None:
    """Apache Kafka 3.9.1 answers an id that is given twice without a name, and a name without an id."""
    names = sorted(create_topic(broker) for _ in range(4))
    row = interbroker.message_class("DeleteTopicsRequest").DeleteTopicState
    ids = [topic_id(wire, name) for name in names]
    by_id = [row(name=None, topic_id=one) for one in ids]
    asked = [by_id[0], by_id[0], row(name=names[1]), row(name=names[1]), row(name=names[2]), by_id[2], by_id[3]]
    answer = wire.call(request("DeleteTopics", 6, topics=asked, timeout_ms=15_000))
    assert sorted((one.name or "", one.topic_id, one.error_code) for one in answer.responses) == [
        ("", ids[0], INVALID_REQUEST),
        (names[1], None, INVALID_REQUEST),  # the library decodes the zero id as None
        (names[2], ids[2], INVALID_REQUEST),
        (names[3], ids[3], 0),
    ]


@pytest.mark.parametrize("number", [0, 7], ids=["neither a name nor an id", "an unknown id twice"])
def test_delete_without_name_or_of_unknown_id_is_refused(wire: Wire, number: int) -> None:
    row = interbroker.message_class("DeleteTopicsRequest").DeleteTopicState
    rows = [row(name=None, topic_id=UUID(int=number))] * (2 if number else 1)
    answer = wire.call(request("DeleteTopics", 6, topics=rows, timeout_ms=15_000))
    assert [each.error_code for each in answer.responses] == [INVALID_REQUEST]


NO_TEXT = b"caf\xe9"
"""Latin-1, which a client may send if its names are bytes."""


@pytest.mark.parametrize(
    ("key", "version", "before", "behind"),
    [
        (12, 0, b"", b"\0\0\0\1" + b"\0\1m"),
        (10, 1, b"", b"\0"),
        (22, 0, b"", b"\0\0\xea\x60"),
        (3, 1, b"\0\0\0\1", b""),
    ],
    ids=["Heartbeat", "FindCoordinator", "InitProducerId", "Metadata"],
)
def test_names_that_are_not_utf_8_are_accepted(
    wire: Wire, key: int, version: int, before: bytes, behind: bytes
) -> None:
    """The broker decodes them with replacement characters, and keeps the connection open."""
    name = len(NO_TEXT).to_bytes(2, "big") + NO_TEXT
    assert wire.ask(key, version, before + name + behind)


def test_commit_metadata_that_is_not_utf_8_is_stored(broker: Any, wire: Wire) -> None:
    topic, group = create_topic(broker).encode(), unique("g").encode()
    find_coordinator(wire, group.decode())
    parts = b"\0\0\0\1\0\0\0\0" + (5).to_bytes(8, "big") + b"\0\4" + NO_TEXT
    rows = b"\0\0\0\1" + len(topic).to_bytes(2, "big") + topic + parts
    simple = len(group).to_bytes(2, "big") + group + b"\xff\xff\xff\xff" + b"\0\0"
    assert wire.ask(8, 2, simple + b"\xff" * 8 + rows)[-2:] == bytes(2)
    row = interbroker.message_class("OffsetFetchRequest").OffsetFetchRequestTopic
    asked = request("OffsetFetch", 2, group_id=group.decode(), topics=[row(name=topic.decode(), partition_indexes=[0])])
    (found,) = wire.call(asked).topics[0].partitions
    assert (found.committed_offset, found.metadata) == (5, "caf\ufffd")


def test_assignments_with_a_partition_count_are_refused(wire: Wire) -> None:
    row = interbroker.message_class("CreateTopicsRequest").CreatableTopic
    twice = [row.CreatableReplicaAssignment(partition_index=0, broker_ids=[0]) for _ in range(2)]
    topic = row(name=unique("t"), num_partitions=2, replication_factor=1, assignments=twice, configs=[])
    answer = wire.call(request("CreateTopics", 4, topics=[topic], timeout_ms=15_000, validate_only=False))
    assert answer.topics[0].error_code == INVALID_REQUEST, "the broker checks this before the assignments"


def test_unknown_state_filters_are_returned_once(wire: Wire) -> None:
    find_coordinator(wire, unique("x"), kind=1)
    asked = request("ListTransactions", 0, state_filters=["No", "Ongoing", "No"], producer_id_filters=[])
    assert wire.call(asked).unknown_state_filters == ["No"]
