"""Requests that well-behaved clients do not send, answered as Apache Kafka 3.9 answers them."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.protocol import interbroker

from ..harness.process import wait_until
from ..harness.wire import Wire
from .admin import create_topic, unique
from .raw.any_api import find_coordinator, request
from .raw.batches import NOW, batch, message, parse
from .raw.calls import fetch, list_offsets, part, produce, producer_id, session_request

pytestmark = pytest.mark.live

UNKNOWN_TOPIC, OUT_OF_RANGE, INCONSISTENT_PROTOCOL, INVALID_REQUEST = 3, 1, 23, 42
CORRUPT, FENCED_EPOCH, INVALID_RECORD = 2, 74, 87
OUT_OF_ORDER, INVALID_TIMESTAMP = 45, 32
LATEST, MAX_TIMESTAMP = -1, -3


@pytest.fixture
def wire(broker: Any) -> Any:
    with broker.wire() as connection:
        yield connection


# -- The same partition twice in one request: the last one counts


def test_produce_to_a_partition_twice_stores_the_last_batch(broker: Any, wire: Wire) -> None:
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


def test_fetch_of_a_partition_twice_uses_the_last_offset(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker)
    for value in (b"a", b"b"):
        produce(wire, topic, batch([value]))
    answer = wire.call(session_request([(topic, [part(0, 0), part(0, 1)])]))
    (only,) = answer.responses[0].partitions
    assert [record.offset for record in parse(only.records)] == [1]


def test_delete_records_of_a_partition_twice_uses_the_last_offset(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker)
    produce(wire, topic, batch([b"a", b"b", b"c"]))
    row = interbroker.message_class("DeleteRecordsRequest").DeleteRecordsTopic
    parts = [row.DeleteRecordsPartition(partition_index=0, offset=offset) for offset in (3, 1)]
    answer = wire.call(request("DeleteRecords", 1, topics=[row(name=topic, partitions=parts)], timeout_ms=10_000))
    (only,) = answer.topics[0].partitions
    assert (only.error_code, only.low_watermark) == (0, 1)


# -- Log start and timestamp in produce responses


def delete_below(wire: Wire, topic: str, offset: int) -> None:
    row = interbroker.message_class("DeleteRecordsRequest").DeleteRecordsTopic
    asked = row(name=topic, partitions=[row.DeleteRecordsPartition(partition_index=0, offset=offset)])
    answer = wire.call(request("DeleteRecords", 1, topics=[asked], timeout_ms=10_000))
    assert answer.topics[0].partitions[0].low_watermark == offset


def test_batch_refused_by_the_log_is_answered_with_the_log_start(broker: Any, wire: Wire) -> None:
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
    assert (refused.error_code, refused.log_start_offset) == (INVALID_RECORD, -1), "refused before the log is read"


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_retry_is_answered_with_original_timestamp(broker: Any, wire: Wire, kind: str) -> None:
    topic = create_topic(broker, message_timestamp_type=kind)
    number, epoch = producer_id(wire)
    data = batch([b"a"], producer=number, epoch=epoch, sequence=0)
    produce(wire, topic, data)
    (stored,) = parse(fetch(wire, topic, 0).records)
    again = produce(wire, topic, data)
    assert (again.error_code, again.base_offset, again.log_append_time_ms) == (0, 0, stored.timestamp)


# -- ListOffsets


def test_negative_leader_epoch_is_fenced_by_list_offsets(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker)
    row = interbroker.message_class("ListOffsetsRequest").ListOffsetsTopic
    asked = row.ListOffsetsPartition(partition_index=0, current_leader_epoch=-2, timestamp=LATEST)
    answer = wire.call(
        request("ListOffsets", 5, replica_id=-1, isolation_level=0, topics=[row(name=topic, partitions=[asked])])
    )
    assert answer.topics[0].partitions[0].error_code == FENCED_EPOCH
    assert fetch(wire, topic, 0, epoch=-2, wait_ms=0).error_code == 0, "Fetch takes any negative epoch as no epoch"


def test_max_timestamp_may_be_that_of_a_deleted_record(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker)
    for timestamp in (NOW, NOW - 1000):
        produce(wire, topic, batch([b"a"], timestamp=timestamp))
    delete_below(wire, topic, 1)
    found = list_offsets(wire, topic, MAX_TIMESTAMP, version=7)
    assert (found.error_code, found.offset, found.timestamp) == (0, 0, NOW)


def test_max_timestamp_without_timestamps_finds_the_first_record(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker)
    found = list_offsets(wire, topic, MAX_TIMESTAMP, version=7)
    assert (found.error_code, found.offset, found.timestamp) == (0, -1, -1)
    produce(wire, topic, batch([b"a", b"b"], timestamp=-1))
    produce(wire, topic, batch([b"c"], timestamp=-1))
    found = list_offsets(wire, topic, MAX_TIMESTAMP, version=7)
    assert (found.error_code, found.offset, found.timestamp) == (0, 0, -1)


# -- Fetch with the epoch that the client fetched last (KIP-595)


def last_fetched(wire: Wire, topic: str, offset: int, last: int) -> Any:
    asked = part(0, offset)
    asked.last_fetched_epoch = last
    return wire.call(session_request([(topic, [asked])], version=12, wait_ms=0)).responses[0].partitions[0]


def test_fetch_answers_diverging_epoch(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker)
    produce(wire, topic, batch([b"a", b"b"]))
    assert [record.offset for record in parse(last_fetched(wire, topic, 0, 0).records)] == [0, 1]
    beyond = last_fetched(wire, topic, 5, 0)
    assert (beyond.error_code, beyond.diverging_epoch.epoch, beyond.diverging_epoch.end_offset) == (0, 0, 2)
    assert not beyond.records
    assert last_fetched(wire, topic, 0, 7).error_code == OUT_OF_RANGE, "an epoch that does not exist yet"


def test_current_epoch_of_an_empty_log_ends_at_zero(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker)
    row = interbroker.message_class("OffsetForLeaderEpochRequest").OffsetForLeaderTopic
    asked = row.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
    answer = wire.call(request("OffsetForLeaderEpoch", 3, replica_id=-1, topics=[row(topic=topic, partitions=[asked])]))
    (only,) = answer.topics[0].partitions
    assert (only.error_code, only.leader_epoch, only.end_offset) == (0, 0, 0)


# -- Order of checks


def test_unknown_topic_is_reported_before_invalid_acks(broker: Any, wire: Wire) -> None:
    assert produce(wire, unique("none"), batch([b"x"]), acks=7).error_code == UNKNOWN_TOPIC
    topic = create_topic(broker)
    assert produce(wire, topic, batch([b"x"]), acks=7).error_code == 21
    assert list_offsets(wire, topic, LATEST).offset == 0


@pytest.mark.parametrize("half", [{"producer_id": 5, "producer_epoch": -1}, {"producer_id": -1, "producer_epoch": 5}])
def test_incomplete_producer_id_is_refused(wire: Wire, half: dict[str, int]) -> None:
    name = unique("x")
    find_coordinator(wire, name, kind=1)
    for transactional_id in (None, name):
        asked = {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000, **half}
        assert wire.call(request("InitProducerId", 3, **asked)).error_code == INVALID_REQUEST


@pytest.mark.parametrize("named", [("consumer", None), (None, "range"), (None, None)])
def test_sync_group_without_a_protocol_is_refused(wire: Wire, named: tuple[str | None, str | None]) -> None:
    group = {"group_id": unique("g"), "generation_id": 1, "member_id": "m", "group_instance_id": None}
    kind, name = named
    asked = request("SyncGroup", 5, **group, protocol_type=kind, protocol_name=name, assignments=[])
    assert wire.call(asked).error_code == INCONSISTENT_PROTOCOL


def test_offset_delete_without_partitions_answers_unknown_topics(broker: Any, wire: Wire) -> None:
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


# -- Topics without partitions, and what groups and transactions refuse


def committed(wire: Wire, api: str, version: int, topics: dict[str, list[int]], **fields: Any) -> Any:
    row = getattr(interbroker.message_class(api + "Request"), api + "RequestTopic")
    part = getattr(row, api + "RequestPartition")
    rows = [
        row(name=name, partitions=[part(partition_index=i, committed_offset=1, committed_metadata="") for i in indexes])
        for name, indexes in topics.items()
    ]
    answer = wire.call(request(api, version, topics=rows, **fields))
    return [(topic.name, [each.error_code for each in topic.partitions]) for topic in answer.topics]


def test_offset_commit_without_partitions_answers_unknown_topics(broker: Any, wire: Wire) -> None:
    topic, other, group = create_topic(broker), unique("none"), unique("g")
    find_coordinator(wire, group)
    simple = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "retention_time_ms": -1}
    assert committed(wire, "OffsetCommit", 2, {topic: []}, **simple) == []
    assert committed(wire, "OffsetCommit", 2, {other: []}, **simple) == [(other, [])]
    producer = {"transactional_id": unique("x"), "group_id": group, "producer_id": 5, "producer_epoch": 0}
    assert committed(wire, "TxnOffsetCommit", 0, {topic: []}, **producer) == []
    assert committed(wire, "TxnOffsetCommit", 0, {other: []}, **producer) == [(other, [])]


def test_group_is_deleted_with_its_last_offset(broker: Any, wire: Wire) -> None:
    """Also if a client got a member id and has not joined; the id is then unknown."""
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


def test_clients_cannot_add_internal_topics_to_a_transaction(broker: Any, wire: Wire) -> None:
    topic, name = create_topic(broker), unique("x")
    find_coordinator(wire, name, kind=1)
    producer = producer_id(wire, transactional_id=name)
    internal = "__transaction_state"
    assert added(wire, name, producer, {topic: [0], internal: [0]}) == {topic: [55], internal: [29]}
    other = unique("none")
    assert added(wire, name, producer, {topic: [0], other: []}) == {topic: [0], other: []}


@pytest.mark.parametrize(("producer", "epoch"), [(-1, 0), (5, -1)])
def test_marker_of_invalid_producer_is_refused(broker: Any, wire: Wire, producer: int, epoch: int) -> None:
    """Kafka raises an exception."""
    topic = create_topic(broker)
    row = interbroker.message_class("WriteTxnMarkersRequest").WritableTxnMarker
    marker = row(
        producer_id=producer, producer_epoch=epoch, transaction_result=False, coordinator_epoch=0,
        topics=[row.WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
    )  # fmt: skip
    answer = wire.call(request("WriteTxnMarkers", 1, markers=[marker]))
    assert answer.markers[0].topics[0].partitions[0].error_code in (-1, 47, 49)
    assert list_offsets(wire, topic, LATEST).offset == 0


# -- Old message formats


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_client_gets_the_first_batch_though_conversion_enlarges_it(broker: Any, wire: Wire, version: int) -> None:
    topic = create_topic(broker)
    rows: list[bytes | None] = [bytes([at]) for at in range(20)]
    stored = batch(rows)
    produce(wire, topic, stored)
    produce(wire, topic, stored)
    found = fetch(wire, topic, 0, version=version, partition_bytes=len(stored))
    assert [record.value for record in parse(found.records)] == rows, "the first batch whole, and no other"


@pytest.mark.parametrize("version", [2, 7])
def test_negative_timestamp_is_refused_if_the_broker_rewrites_the_batch(broker: Any, wire: Wire, version: int) -> None:
    """Kafka raises an exception when it rewrites such a batch, and stores one that it need not rewrite."""
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
