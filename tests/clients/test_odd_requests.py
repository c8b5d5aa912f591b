"""Requests that well-behaved clients do not send, answered as Apache Kafka 3.9 answers them."""

from __future__ import annotations

from typing import Any

import pytest
from odradek.protocol import interbroker

from ..harness.process import wait_until
from ..harness.wire import Wire
from .admin import create_topic, topic_id, unique
from .raw.batches import NOW, batch, parse
from .raw.calls import fetch, list_offsets, part, produce, producer_id, session_request

UNKNOWN_TOPIC, OUT_OF_RANGE, INCONSISTENT_PROTOCOL, INVALID_REQUEST = 3, 1, 23, 42
CORRUPT, BAD_ASSIGNMENT, BAD_CONFIG, FENCED_EPOCH, INVALID_RECORD = 2, 39, 40, 74, 87
OUT_OF_ORDER = 45
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


def test_no_tiered_storage(wire: Wire) -> None:
    assert created(wire, [], remote_storage_enable="true") == BAD_CONFIG
    assert created(wire, [], remote_storage_enable="false") == 0


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


def find_coordinator(wire: Wire, group: str) -> None:
    """Once there is one: `__consumer_offsets` is made when it is asked for first."""
    asked = request("FindCoordinator", 2, key=group, key_type=0)
    wait_until(lambda: wire.call(asked).error_code == 0, 30)


def test_unknown_partitions_come_before_acks(broker: Any, wire: Wire) -> None:
    assert produce(wire, unique("none"), batch([b"x"]), acks=7).error_code == UNKNOWN_TOPIC
    topic = create_topic(broker)
    assert produce(wire, topic, batch([b"x"]), acks=7).error_code == 21
    assert list_offsets(wire, topic, LATEST).offset == 0


@pytest.mark.parametrize("half", [{"producer_id": 5, "producer_epoch": -1}, {"producer_id": -1, "producer_epoch": 5}])
def test_half_a_producer_id(wire: Wire, half: dict[str, int]) -> None:
    asked = {"transactional_id": None, "transaction_timeout_ms": 60_000, **half}
    assert wire.call(request("InitProducerId", 3, **asked)).error_code == INVALID_REQUEST


def test_sync_without_a_protocol(wire: Wire) -> None:
    group = {"group_id": unique("g"), "generation_id": 1, "member_id": "m", "group_instance_id": None}
    asked = request("SyncGroup", 5, **group, protocol_type="consumer", protocol_name=None, assignments=[])
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
    asked = [kind.OffsetDeleteRequestTopic(name=topic, partitions=[])]
    answer = wire.call(kind[0](group_id=group, topics=asked))
    assert (answer.error_code, answer.topics) == (0, [])
