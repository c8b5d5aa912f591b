"""Requests that well-behaved clients do not send, answered as Apache Kafka 3.9 answers them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from odradek.protocol import interbroker

from ..harness.process import wait_until
from ..harness.wire import Wire
from .admin import create_topic, topic_id, unique
from .raw.batches import NOW, batch, message, parse
from .raw.calls import fetch, list_offsets, part, produce, producer_id, session_request

pytestmark = pytest.mark.live

UNKNOWN_TOPIC, OUT_OF_RANGE, INCONSISTENT_PROTOCOL, INVALID_REQUEST = 3, 1, 23, 42
CORRUPT, BAD_ASSIGNMENT, BAD_CONFIG, FENCED_EPOCH, INVALID_RECORD = 2, 39, 40, 74, 87
OUT_OF_ORDER, UNSUPPORTED_VERSION, INVALID_TIMESTAMP = 45, 35, 32
LATEST, MAX_TIMESTAMP = -1, -3


@pytest.fixture
def wire(broker: Any) -> Any:
    with broker.wire() as connection:
        yield connection


def request(api: str, version: int, **fields: Any) -> Any:
    return interbroker.message_class(api + "Request")[version](**fields)


# -- The same partition twice in one request: the last counts


def test_produce_to_a_partition_twice(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker)
    data = interbroker.message_class("ProduceRequest").TopicProduceData
    rows = [
        data(name=topic, partition_data=[data.PartitionProduceData(index=0, records=batch([value]))])
        for value in (b"first", b"last")
    ]
    answer = wire.call(request("Produce", 7, transactional_id=None, acks=-1, timeout_ms=10_000, topic_data=rows))
    (only,) = [row for topic in answer.responses for row in topic.partition_responses]
    assert (only.error_code, only.base_offset) == (0, 0)
    assert [record.value for record in parse(fetch(wire, topic, 0).records)] == [b"last"]


def test_fetch_of_a_partition_twice(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker)
    for value in (b"a", b"b"):
        produce(wire, topic, batch([value]))
    answer = wire.call(session_request([(topic, [part(0, 0), part(0, 1)])]))
    (only,) = answer.responses[0].partitions
    assert [record.offset for record in parse(only.records)] == [1]


def test_delete_records_of_a_partition_twice(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker)
    produce(wire, topic, batch([b"a", b"b", b"c"]))
    row = interbroker.message_class("DeleteRecordsRequest").DeleteRecordsTopic
    parts = [row.DeleteRecordsPartition(partition_index=0, offset=offset) for offset in (3, 1)]
    answer = wire.call(request("DeleteRecords", 1, topics=[row(name=topic, partitions=parts)], timeout_ms=10_000))
    (only,) = answer.topics[0].partitions
    assert (only.error_code, only.low_watermark) == (0, 1)


# -- What else is said of a batch


def delete_below(wire: Wire, topic: str, offset: int) -> None:
    row = interbroker.message_class("DeleteRecordsRequest").DeleteRecordsTopic
    asked = row(name=topic, partitions=[row.DeleteRecordsPartition(partition_index=0, offset=offset)])
    answer = wire.call(request("DeleteRecords", 1, topics=[asked], timeout_ms=10_000))
    assert answer.topics[0].partitions[0].low_watermark == offset


def test_a_refusal_by_the_log_tells_its_start(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker)
    produce(wire, topic, batch([b"a", b"b"]))
    delete_below(wire, topic, 1)
    number, epoch = producer_id(wire)
    assert produce(wire, topic, batch([b"a"], producer=number, epoch=epoch, sequence=0)).error_code == 0
    refused = produce(wire, topic, batch([b"a"], producer=number, epoch=epoch, sequence=9))
    assert (refused.error_code, refused.base_offset, refused.log_start_offset) == (OUT_OF_ORDER, -1, 1)
    refused = produce(wire, topic, batch([b"a"], count=7))
    assert (refused.error_code, refused.log_start_offset) == (INVALID_RECORD, 1)
    refused = produce(wire, topic, batch([b"a"], break_crc=True))
    assert (refused.error_code, refused.log_start_offset) == (CORRUPT, -1)
    refused = produce(wire, topic, 2 * batch([b"a"]))
    assert (refused.error_code, refused.log_start_offset) == (INVALID_RECORD, -1), "it did not come to the log"


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_a_retry_is_answered_with_its_originals_time(broker: Any, wire: Wire, kind: str) -> None:
    topic = create_topic(broker, message_timestamp_type=kind)
    number, epoch = producer_id(wire)
    data = batch([b"a"], producer=number, epoch=epoch, sequence=0)
    produce(wire, topic, data)
    (stored,) = parse(fetch(wire, topic, 0).records)
    again = produce(wire, topic, data)
    assert (again.error_code, again.base_offset, again.log_append_time_ms) == (0, 0, stored.timestamp)


# -- ListOffsets


def test_an_epoch_below_none_is_an_old_one(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker)
    row = interbroker.message_class("ListOffsetsRequest").ListOffsetsTopic
    asked = row.ListOffsetsPartition(partition_index=0, current_leader_epoch=-2, timestamp=LATEST)
    answer = wire.call(
        request("ListOffsets", 5, replica_id=-1, isolation_level=0, topics=[row(name=topic, partitions=[asked])])
    )
    assert answer.topics[0].partitions[0].error_code == FENCED_EPOCH
    assert fetch(wire, topic, 0, epoch=-2, wait_ms=0).error_code == 0, "Fetch takes each below 0 for none"


def test_the_largest_timestamp_may_be_of_a_deleted_record(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker)
    for timestamp in (NOW, NOW - 1000):
        produce(wire, topic, batch([b"a"], timestamp=timestamp))
    delete_below(wire, topic, 1)
    found = list_offsets(wire, topic, MAX_TIMESTAMP, version=7)
    assert (found.error_code, found.offset, found.timestamp) == (0, 0, NOW)


def test_of_records_without_timestamps_the_first_is_the_newest(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker)
    found = list_offsets(wire, topic, MAX_TIMESTAMP, version=7)
    assert (found.error_code, found.offset, found.timestamp) == (0, -1, -1)
    produce(wire, topic, batch([b"a", b"b"], timestamp=-1))
    produce(wire, topic, batch([b"c"], timestamp=-1))
    found = list_offsets(wire, topic, MAX_TIMESTAMP, version=7)
    assert (found.error_code, found.offset, found.timestamp) == (0, 0, -1)


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


def test_a_partition_with_two_assignments(wire: Wire) -> None:
    assert created(wire, [0, 1, 1]) == BAD_ASSIGNMENT
    assert created(wire, [0, 1]) == 0


def test_no_tiered_storage(broker: Any, wire: Wire) -> None:
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
def test_broker_configs_that_make_no_sense(wire: Wire, name: str, bad: str, good: str) -> None:
    row = interbroker.message_class("IncrementalAlterConfigsRequest").AlterConfigsResource

    def alter(operation: int, value: str | None) -> int:
        config = row.AlterableConfig(name=name, config_operation=operation, value=value)
        changed = row(resource_type=4, resource_name="", configs=[config])
        answer = wire.call(request("IncrementalAlterConfigs", 0, resources=[changed], validate_only=False))
        return int(answer.responses[0].error_code)

    assert alter(0, bad) == INVALID_REQUEST
    assert alter(0, good) == 0
    assert alter(1, None) == 0


# -- Fetch with the epoch that the client fetched last (KIP-595)


def last_fetched(wire: Wire, topic: str, offset: int, last: int) -> Any:
    asked = part(0, offset)
    asked.last_fetched_epoch = last
    return wire.call(session_request([(topic, [asked])], version=12, wait_ms=0)).responses[0].partitions[0]


def test_fetch_tells_where_logs_part(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker)
    produce(wire, topic, batch([b"a", b"b"]))
    assert [record.offset for record in parse(last_fetched(wire, topic, 0, 0).records)] == [0, 1]
    beyond = last_fetched(wire, topic, 5, 0)
    assert (beyond.error_code, beyond.diverging_epoch.epoch, beyond.diverging_epoch.end_offset) == (0, 0, 2)
    assert not beyond.records
    assert last_fetched(wire, topic, 0, 7).error_code == OUT_OF_RANGE, "of an epoch that has not been"


def test_the_leaders_epoch_ends_where_an_empty_log_does(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker)
    row = interbroker.message_class("OffsetForLeaderEpochRequest").OffsetForLeaderTopic
    asked = row.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
    answer = wire.call(request("OffsetForLeaderEpoch", 3, replica_id=-1, topics=[row(topic=topic, partitions=[asked])]))
    (only,) = answer.topics[0].partitions
    assert (only.error_code, only.leader_epoch, only.end_offset) == (0, 0, 0)


# -- Topics described


def described(wire: Wire, version: int, **topics: Any) -> Any:
    row = interbroker.message_class("MetadataRequest").MetadataRequestTopic
    rows = [row(**{name: value}) for name, value in topics.items()]
    return wire.call(request("Metadata", version, topics=rows, allow_auto_topic_creation=False)).topics


def test_metadata_by_id_before_ids_count(broker: Any, wire: Wire) -> None:
    number = topic_id(wire, create_topic(broker))
    (only,) = described(wire, 10, topic_id=number)
    assert (only.error_code, only.name, only.topic_id) == (INVALID_REQUEST, "", number)
    _, other = described(wire, 10, topic_id=number, name="__consumer_offsets")
    assert (other.error_code, other.name, other.is_internal) == (INVALID_REQUEST, "__consumer_offsets", False)


def test_metadata_by_id_and_by_name(broker: Any, wire: Wire) -> None:
    first, second = create_topic(broker), create_topic(broker)
    (only,) = described(wire, 12, topic_id=topic_id(wire, first), name=second)
    assert (only.error_code, only.name) == (0, first), "names count where none is asked for by id"


@pytest.mark.parametrize(("named", "index"), [(True, -1), (False, 0)])
def test_a_cursor_that_leads_nowhere(broker: Any, wire: Wire, named: bool, index: int) -> None:
    topic = create_topic(broker)
    kind = interbroker.message_class("DescribeTopicPartitionsRequest")
    cursor = kind.Cursor(topic_name=topic if named else unique("other"), partition_index=index)
    asked = [kind.TopicRequest(name=topic)]
    if 75 not in wire.api_versions():
        pytest.skip("Kafka has it in KRaft mode")
    answer = wire.call(kind[0](topics=asked, response_partition_limit=10, cursor=cursor))
    assert [(row.name, row.error_code) for row in answer.topics] == [(topic, INVALID_REQUEST)]
    assert answer.next_cursor is None


# -- Errors that come first


def find_coordinator(wire: Wire, group: str, kind: int = 0) -> None:
    """Once there is one: `__consumer_offsets` is made when it is asked for first (kind 1: `__transaction_state`)."""
    asked = request("FindCoordinator", 2, key=group, key_type=kind)
    wait_until(lambda: wire.call(asked).error_code == 0, 30)


def test_unknown_partitions_come_before_acks(broker: Any, wire: Wire) -> None:
    assert produce(wire, unique("none"), batch([b"x"]), acks=7).error_code == UNKNOWN_TOPIC
    topic = create_topic(broker)
    assert produce(wire, topic, batch([b"x"]), acks=7).error_code == 21
    assert list_offsets(wire, topic, LATEST).offset == 0


@pytest.mark.parametrize("half", [{"producer_id": 5, "producer_epoch": -1}, {"producer_id": -1, "producer_epoch": 5}])
def test_half_a_producer_id(wire: Wire, half: dict[str, int]) -> None:
    name = unique("x")
    find_coordinator(wire, name, kind=1)
    for transactional_id in (None, name):
        asked = {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000, **half}
        assert wire.call(request("InitProducerId", 3, **asked)).error_code == INVALID_REQUEST


@pytest.mark.parametrize("named", [("consumer", None), (None, "range"), (None, None)])
def test_sync_without_a_protocol(wire: Wire, named: tuple[str | None, str | None]) -> None:
    group = {"group_id": unique("g"), "generation_id": 1, "member_id": "m", "group_instance_id": None}
    kind, name = named
    asked = request("SyncGroup", 5, **group, protocol_type=kind, protocol_name=name, assignments=[])
    assert wire.call(asked).error_code == INCONSISTENT_PROTOCOL


def test_offset_delete_of_no_partition(broker: Any, wire: Wire) -> None:
    topic, group = create_topic(broker), unique("g")
    find_coordinator(wire, group)
    commit = interbroker.message_class("OffsetCommitRequest")
    row = commit.OffsetCommitRequestTopic
    part = row.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    committed = commit[2](
        group_id=group, generation_id_or_member_epoch=-1, member_id="", retention_time_ms=-1,
        topics=[row(name=topic, partitions=[part])],
    )  # fmt: skip
    wait_until(lambda: wire.call(committed).topics[0].partitions[0].error_code == 0, 30)
    kind = interbroker.message_class("OffsetDeleteRequest")
    other = unique("none")
    asked = [kind.OffsetDeleteRequestTopic(name=name, partitions=[]) for name in (topic, other)]
    answer = wire.call(kind[0](group_id=group, topics=asked))
    assert (answer.error_code, [(row.name, row.partitions) for row in answer.topics]) == (0, [(other, [])])


# -- What is asked of nothing, twice, or of what there is not


def described_configs(wire: Wire, *resources: tuple[int, str]) -> Any:
    row = interbroker.message_class("DescribeConfigsRequest").DescribeConfigsResource
    rows = [row(resource_type=kind, resource_name=name, configuration_keys=[]) for kind, name in resources]
    return wire.call(request("DescribeConfigs", 1, resources=rows, include_synonyms=False)).results


def test_a_type_of_resource_that_there_is_not(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker)
    assert [row.error_code for row in described_configs(wire, (2, topic))] == [0]
    assert {row.error_code for row in described_configs(wire, (2, topic), (1, topic))} == {INVALID_REQUEST}


def test_a_key_that_is_null(broker: Any, wire: Wire) -> None:
    body = b"\0\0\0\1\2\0\1t\0\0\0\1\xff\xff\0"  # one topic, of its configs one, whose name is null
    wire.post(32, 1, body)
    assert wire.closed_by_peer()


@pytest.mark.parametrize(("kind", "code"), [(1, 0), (2, 114), (3, 115), (0, 115)])
def test_endpoints_of_a_kind(wire: Wire, kind: int, code: int) -> None:
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
def test_quotas_of_what_has_none(wire: Wire, code: int, components: list[tuple[str, int, str | None]]) -> None:
    row = interbroker.message_class("DescribeClientQuotasRequest").ComponentData
    rows = [row(entity_type=kind, match_type=match, match=value) for kind, match, value in components]
    answer = wire.call(request("DescribeClientQuotas", 0, components=rows, strict=False))
    assert (answer.error_code, answer.entries) == (code, None if code else [])


def test_an_election_of_a_kind_that_there_is_not(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker)
    row = interbroker.message_class("ElectLeadersRequest").TopicPartitions
    rows = [row(topic=topic, partitions=[0])]
    answer = wire.call(request("ElectLeaders", 1, election_type=5, topic_partitions=rows, timeout_ms=10_000))
    (part,) = answer.replica_election_results[0].partition_result
    assert (answer.error_code, part.error_code) == (INVALID_REQUEST, INVALID_REQUEST)


def test_to_append_to_what_is_no_list_of_a_topic_that_is_not(wire: Wire) -> None:
    row = interbroker.message_class("IncrementalAlterConfigsRequest").AlterConfigsResource

    def alter(name: str) -> int:
        config = row.AlterableConfig(name=name, config_operation=2, value="1")
        changed = row(resource_type=2, resource_name=unique("none"), configs=[config])
        answer = wire.call(request("IncrementalAlterConfigs", 0, resources=[changed], validate_only=False))
        return int(answer.responses[0].error_code)

    assert alter("retention.ms") == BAD_CONFIG
    assert alter("cleanup.policy") in (UNKNOWN_TOPIC, BAD_CONFIG), "with ZooKeeper and KRaft"


@pytest.mark.parametrize(("appended", "code"), [("", BAD_CONFIG), (",", 0), ("compact,", 0), ("delete", 0)])
def test_to_append_parts_that_are_empty(broker: Any, wire: Wire, appended: str, code: int) -> None:
    """Java splits an empty text into one empty part, and leaves empty ones at an end out."""
    row = interbroker.message_class("IncrementalAlterConfigsRequest").AlterConfigsResource
    config = row.AlterableConfig(name="cleanup.policy", config_operation=2, value=appended)
    changed = row(resource_type=2, resource_name=create_topic(broker), configs=[config])
    answer = wire.call(request("IncrementalAlterConfigs", 0, resources=[changed], validate_only=False))
    assert answer.responses[0].error_code == code


def test_to_delete_a_topic_by_its_id_with_another_named_in_both_ways(broker: Any, wire: Wire) -> None:
    """The topic that is named wrongly is refused, which says nothing of the same one named rightly."""
    name = create_topic(broker)
    row = interbroker.message_class("DeleteTopicsRequest").DeleteTopicState
    its = topic_id(wire, name)
    rows = [row(name=name, topic_id=UUID(int=1)), row(name=None, topic_id=its)]
    answer = wire.call(request("DeleteTopics", 6, topics=rows, timeout_ms=15_000))
    assert {each.topic_id: each.error_code for each in answer.responses} == {UUID(int=1): INVALID_REQUEST, its: 0}


def test_to_delete_a_topic_that_is_named_twice(broker: Any, wire: Wire) -> None:
    """Apache Kafka 3.9.1 answers an id that is given twice without a name, and a name without an id."""
    names = sorted(create_topic(broker) for _ in range(4))
    row = interbroker.message_class("DeleteTopicsRequest").DeleteTopicState
    ids = [topic_id(wire, name) for name in names]
    by_id = [row(name=None, topic_id=one) for one in ids]
    asked = [by_id[0], by_id[0], row(name=names[1]), row(name=names[1]), row(name=names[2]), by_id[2], by_id[3]]
    answer = wire.call(request("DeleteTopics", 6, topics=asked, timeout_ms=15_000))
    assert sorted((one.name or "", one.topic_id, one.error_code) for one in answer.responses) == [
        ("", ids[0], INVALID_REQUEST),
        (names[1], None, INVALID_REQUEST),  # as the library decodes no id
        (names[2], ids[2], INVALID_REQUEST),
        (names[3], ids[3], 0),
    ]


@pytest.mark.parametrize("number", [0, 7], ids=["neither a name nor an id", "an unknown id twice"])
def test_to_delete_what_is_not_named_rightly(wire: Wire, number: int) -> None:
    row = interbroker.message_class("DeleteTopicsRequest").DeleteTopicState
    rows = [row(name=None, topic_id=UUID(int=number))] * (2 if number else 1)
    answer = wire.call(request("DeleteTopics", 6, topics=rows, timeout_ms=15_000))
    assert [each.error_code for each in answer.responses] == [INVALID_REQUEST]


NO_TEXT = b"caf\xe9"
"""Latin-1, as clients may send whose names are bytes."""


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
def test_names_that_are_no_utf_8(wire: Wire, key: int, version: int, before: bytes, behind: bytes) -> None:
    """They are read with replacement characters, instead of the connection's end."""
    name = len(NO_TEXT).to_bytes(2, "big") + NO_TEXT
    assert wire.ask(key, version, before + name + behind)


def test_a_commit_whose_metadata_are_no_utf_8(broker: Any, wire: Wire) -> None:
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


def test_assignments_together_with_a_number_of_partitions(wire: Wire) -> None:
    row = interbroker.message_class("CreateTopicsRequest").CreatableTopic
    twice = [row.CreatableReplicaAssignment(partition_index=0, broker_ids=[0]) for _ in range(2)]
    topic = row(name=unique("t"), num_partitions=2, replication_factor=1, assignments=twice, configs=[])
    answer = wire.call(request("CreateTopics", 4, topics=[topic], timeout_ms=15_000, validate_only=False))
    assert answer.topics[0].error_code == INVALID_REQUEST, "that comes before the assignments themselves"


def test_states_that_nobody_knows_are_told_once(wire: Wire) -> None:
    find_coordinator(wire, unique("x"), kind=1)
    asked = request("ListTransactions", 0, state_filters=["No", "Ongoing", "No"], producer_id_filters=[])
    assert wire.call(asked).unknown_state_filters == ["No"]


# -- Offsets and partitions of nothing


def committed(wire: Wire, api: str, version: int, topics: dict[str, list[int]], **fields: Any) -> Any:
    row = getattr(interbroker.message_class(api + "Request"), api + "RequestTopic")
    part = getattr(row, api + "RequestPartition")
    rows = [
        row(name=name, partitions=[part(partition_index=i, committed_offset=1, committed_metadata="") for i in indexes])
        for name, indexes in topics.items()
    ]
    answer = wire.call(request(api, version, topics=rows, **fields))
    return [(topic.name, [each.error_code for each in topic.partitions]) for topic in answer.topics]


def test_offsets_of_no_partition(broker: Any, wire: Wire) -> None:
    topic, other, group = create_topic(broker), unique("none"), unique("g")
    find_coordinator(wire, group)
    simple = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "retention_time_ms": -1}
    assert committed(wire, "OffsetCommit", 2, {topic: []}, **simple) == []
    assert committed(wire, "OffsetCommit", 2, {other: []}, **simple) == [(other, [])]
    producer = {"transactional_id": unique("x"), "group_id": group, "producer_id": 5, "producer_epoch": 0}
    assert committed(wire, "TxnOffsetCommit", 0, {topic: []}, **producer) == []
    assert committed(wire, "TxnOffsetCommit", 0, {other: []}, **producer) == [(other, [])]


def test_a_group_goes_with_its_last_offset(broker: Any, wire: Wire) -> None:
    """Also if a member id was assigned to a client, which is then unknown."""
    topic, group = create_topic(broker), unique("g")
    find_coordinator(wire, group)
    simple = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "retention_time_ms": -1}
    wait_until(lambda: committed(wire, "OffsetCommit", 2, {topic: [0]}, **simple) == [(topic, [0])], 30)
    assert joined(wire, group, "").error_code == 79
    kind = interbroker.message_class("OffsetDeleteRequest")
    row = kind.OffsetDeleteRequestTopic
    asked = [row(name=topic, partitions=[row.OffsetDeleteRequestPartition(partition_index=0)])]
    assert wire.call(kind[0](group_id=group, topics=asked)).error_code == 0
    assert wire.call(request("DescribeGroups", 0, groups=[group])).groups[0].group_state == "Dead"


def joined(wire: Wire, group: str, member: str) -> Any:
    row = interbroker.message_class("JoinGroupRequest").JoinGroupRequestProtocol
    return wire.call(
        request(
            "JoinGroup", 4, group_id=group, session_timeout_ms=30_000, rebalance_timeout_ms=30_000, member_id=member,
            protocol_type="consumer", protocols=[row(name="range", metadata=b"")],
        )
    )  # fmt: skip


def added(wire: Wire, name: str, producer: tuple[int, int], topics: dict[str, list[int]]) -> dict[str, list[int]]:
    row = interbroker.message_class("AddPartitionsToTxnRequest").AddPartitionsToTxnTopic
    answer = wire.call(
        request(
            "AddPartitionsToTxn", 3, v3_and_below_transactional_id=name, v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[row(name=topic, partitions=indexes) for topic, indexes in topics.items()],
        )
    )  # fmt: skip
    rows = answer.results_by_topic_v3_and_below
    return {topic.name: [each.partition_error_code for each in topic.results_by_partition] for topic in rows}


def test_clients_add_no_internal_topics(broker: Any, wire: Wire) -> None:
    topic, name = create_topic(broker), unique("x")
    find_coordinator(wire, name, kind=1)
    producer = producer_id(wire, transactional_id=name)
    internal = "__transaction_state"
    assert added(wire, name, producer, {topic: [0], internal: [0]}) == {topic: [55], internal: [29]}
    other = unique("none")
    assert added(wire, name, producer, {topic: [0], other: []}) == {topic: [0], other: []}


@pytest.mark.parametrize(("producer", "epoch"), [(-1, 0), (5, -1)])
def test_a_marker_of_nobody(broker: Any, wire: Wire, producer: int, epoch: int) -> None:
    """Kafka has an exception for it."""
    topic = create_topic(broker)
    row = interbroker.message_class("WriteTxnMarkersRequest").WritableTxnMarker
    marker = row(
        producer_id=producer, producer_epoch=epoch, transaction_result=False, coordinator_epoch=0,
        topics=[row.WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
    )  # fmt: skip
    answer = wire.call(request("WriteTxnMarkers", 1, markers=[marker]))
    assert answer.markers[0].topics[0].partitions[0].error_code in (-1, 47, 49)
    assert list_offsets(wire, topic, LATEST).offset == 0


# -- Message formats of old


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_old_client_gets_a_first_batch_that_has_grown(broker: Any, wire: Wire, version: int) -> None:
    topic = create_topic(broker)
    rows: list[bytes | None] = [bytes([at]) for at in range(20)]
    stored = batch(rows)
    produce(wire, topic, stored)
    produce(wire, topic, stored)
    found = fetch(wire, topic, 0, version=version, partition_bytes=len(stored))
    assert [record.value for record in parse(found.records)] == rows, "whole, and no other"


@pytest.mark.parametrize("version", [2, 7])
def test_a_message_from_before_time(broker: Any, wire: Wire, version: int) -> None:
    """Kafka has an exception when it makes a batch of it, and stores one that comes as it is."""
    topic = create_topic(broker)
    if version == 2:
        refused = produce(wire, topic, message(b"x", magic=1, timestamp=-2), version=version)
        assert refused.error_code in (INVALID_TIMESTAMP, -1)
        assert list_offsets(wire, topic, LATEST).offset == 0
    else:
        assert produce(wire, topic, batch([b"x"], timestamp=-2), version=version).error_code == 0
        packed = create_topic(broker, compression_type="gzip")
        refused = produce(wire, packed, batch([b"x"], timestamp=-2), version=version)
        assert refused.error_code in (INVALID_TIMESTAMP, -1)
        assert list_offsets(wire, packed, LATEST).offset == 0
