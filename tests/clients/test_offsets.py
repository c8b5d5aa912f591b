"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

from __future__ import annotations

from typing import Any

import pytest

from ..harness.wire import Wire
from .admin import create_topic, unique
from .raw.batches import NOW, batch, compressed, parse
from .raw.calls import fetch, list_offsets, produce, supports

pytestmark = pytest.mark.live

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
OUT_OF_RANGE, UNKNOWN_TOPIC, UNSUPPORTED_VERSION, INVALID_REQUEST = 1, 3, 35, 42
POLICY_VIOLATION = 44


@pytest.fixture
def wire(broker: Any) -> Any:
    with broker.wire() as connection:
        yield connection


@pytest.fixture
def stepped(broker: Any, wire: Wire) -> str:
    """Offsets 0..19 with timestamps NOW + 10 × offset, two records a batch, over several segments."""
    topic = create_topic(broker, segment_bytes=1000, index_interval_bytes=100)
    for at in range(10):
        data = batch([b"x" * 100] * 2, timestamp=NOW + 20 * at, step=10)
        assert produce(wire, topic, data).error_code == 0
    return topic


@pytest.mark.parametrize("version", range(1, 11))
def test_every_list_offsets_version_answers(broker: Any, wire: Wire, stepped: str, version: int) -> None:
    if not supports(wire, 2, version):
        assert broker.external, f"ListOffsets v{version} is not answered"
        pytest.skip("not there")
    for asked, offset in ((EARLIEST, 0), (LATEST, 20), (NOW + 35, 4)):
        answer = list_offsets(wire, stepped, asked, version=version)
        assert (answer.error_code, answer.offset) == (0, offset)
        if version >= 4:
            assert answer.leader_epoch in (0, -1)


@pytest.mark.parametrize(
    ("later", "offset", "found"),  # ms after NOW; test ids must not depend on the clock
    [(-1_000_000_000_000, 0, 0), (0, 0, 0), (1, 1, 10), (100, 10, 100), (190, 19, 190)],
)
def test_timestamp_finds_the_first_record_not_older(
    wire: Wire, stepped: str, later: int, offset: int, found: int
) -> None:
    answer = list_offsets(wire, stepped, NOW + later)
    assert (answer.error_code, answer.offset, answer.timestamp) == (0, offset, NOW + found)


def test_timestamp_after_the_last_record_finds_none(wire: Wire, stepped: str) -> None:
    answer = list_offsets(wire, stepped, NOW + 191)
    assert (answer.error_code, answer.offset, answer.timestamp) == (0, -1, -1)


def test_max_timestamp_finds_the_newest_record(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker)
    assert list_offsets(wire, topic, MAX_TIMESTAMP, version=7).offset == -1
    for stamp in (NOW + 5, NOW + 50, NOW + 20):
        assert produce(wire, topic, batch([b"x"], timestamp=stamp)).error_code == 0
    answer = list_offsets(wire, topic, MAX_TIMESTAMP, version=7)
    assert (answer.offset, answer.timestamp) == (1, NOW + 50)


@pytest.mark.parametrize(
    ("version", "asked"), [(0, -3), (1, -99), (6, MAX_TIMESTAMP), (7, -4), (8, -5), (8, -99), (10, -7), (10, -(2**63))]
)
def test_undefined_special_timestamp_is_refused(wire: Wire, stepped: str, version: int, asked: int) -> None:
    """Also one that a later version defines, and whether the partition exists or not."""
    if not supports(wire, 2, version):
        pytest.skip("not there")
    for topic in (stepped, unique("none")):
        assert list_offsets(wire, topic, asked, version=version).error_code == UNSUPPORTED_VERSION


def test_partition_asked_for_twice_is_refused(wire: Wire, stepped: str) -> None:
    from kafka.protocol.consumer import ListOffsetsRequest as Request

    row = Request.ListOffsetsTopic
    asked = row.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=LATEST)
    other = row.ListOffsetsPartition(partition_index=1, current_leader_epoch=-1, timestamp=-99)
    topics = [row(name=stepped, partitions=[asked, other]), row(name=stepped, partitions=[asked])]
    found = wire.call(Request[5](replica_id=-1, isolation_level=0, topics=topics)).topics
    codes = {(part.partition_index, part.error_code) for topic in found for part in topic.partitions}
    assert codes == {(0, INVALID_REQUEST), (1, UNSUPPORTED_VERSION)}


def test_timestamp_finds_a_record_in_a_compressed_batch(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker)
    assert produce(wire, topic, compressed([b"a"] * 5, "gzip")).error_code == 0
    answer = list_offsets(wire, topic, NOW)
    assert (answer.offset, answer.timestamp) == (0, NOW)


def test_list_offsets_of_unknown_topic_or_partition_fails(broker: Any, wire: Wire) -> None:
    assert list_offsets(wire, unique("none"), LATEST).error_code == UNKNOWN_TOPIC
    assert list_offsets(wire, create_topic(broker), LATEST, partition=9).error_code == UNKNOWN_TOPIC


def test_read_committed_end_is_the_log_end_without_transactions(wire: Wire, stepped: str) -> None:
    assert list_offsets(wire, stepped, LATEST, isolation=1).offset == 20


def epoch_end(wire: Wire, topic: str, epoch: int, current: int = -1) -> Any:
    from kafka.protocol.consumer import OffsetForLeaderEpochRequest as Request

    row = Request.OffsetForLeaderTopic
    asked = row.OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
    request = Request[3](replica_id=-1, topics=[row(topic=topic, partitions=[asked])])
    return wire.call(request).topics[0].partitions[0]


def test_offset_for_leader_epoch_answers_the_end_of_the_epoch(wire: Wire, stepped: str) -> None:
    answer = epoch_end(wire, stepped, 0)
    assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, 0, 20)
    assert epoch_end(wire, stepped, 9).end_offset == -1
    assert epoch_end(wire, stepped, 0, current=9).error_code == 75


# -- DeleteRecords


def delete_records(wire: Wire, topic: str, offset: int, partition: int = 0) -> Any:
    from kafka.protocol.admin import DeleteRecordsRequest as Request

    row = Request.DeleteRecordsTopic
    asked = row.DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = Request[1](topics=[row(name=topic, partitions=[asked])], timeout_ms=10_000)
    return wire.call(request).topics[0].partitions[0]


def test_delete_records_moves_the_log_start(broker: Any, wire: Wire, stepped: str) -> None:
    answer = delete_records(wire, stepped, 7)
    assert (answer.error_code, answer.low_watermark) == (0, 7)
    with broker.wire() as other:
        assert list_offsets(other, stepped, EARLIEST).offset == 7
        assert fetch(other, stepped, 6).error_code == OUT_OF_RANGE
        found = fetch(other, stepped, 7)
        assert (found.error_code, found.log_start_offset) == (0, 7)
        assert parse(found.records)[-1].offset >= 7
        if not broker.external:  # Kafka finds nothing until the earlier segments are deleted
            assert list_offsets(other, stepped, 0).offset == 7
    assert delete_records(wire, stepped, 3).low_watermark == 7, "the log start never moves back"


def test_epoch_before_the_first_ends_at_the_log_start(wire: Wire, stepped: str) -> None:
    assert delete_records(wire, stepped, 7).low_watermark == 7
    answer = epoch_end(wire, stepped, -2)  # before the first epoch
    assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, -2, 7)


def test_delete_records_at_minus_one_empties_the_log(wire: Wire, stepped: str) -> None:
    assert delete_records(wire, stepped, -1).low_watermark == 20
    assert [list_offsets(wire, stepped, at).offset for at in (EARLIEST, LATEST)] == [20, 20]
    assert produce(wire, stepped, batch([b"next"])).base_offset == 20
    assert [r.offset for r in parse(fetch(wire, stepped, 20).records)] == [20]


def test_delete_records_beyond_the_end_is_refused(wire: Wire, stepped: str) -> None:
    answer = delete_records(wire, stepped, 21)
    assert (answer.error_code, answer.low_watermark) == (OUT_OF_RANGE, -1)


@pytest.mark.parametrize(
    ("policy", "error"), [("delete", 0), ("compact,delete", 0), ("compact", POLICY_VIOLATION), ("", POLICY_VIOLATION)]
)
def test_delete_records_needs_a_cleanup_policy_that_deletes(broker: Any, wire: Wire, policy: str, error: int) -> None:
    topic = create_topic(broker, cleanup_policy=policy)
    assert produce(wire, topic, batch([b"v"], key=b"k")).error_code == 0
    assert delete_records(wire, topic, 1).error_code == error
    assert list_offsets(wire, topic, EARLIEST).offset == (0 if error else 1)


def test_delete_records_of_unknown_topic_or_partition_fails(broker: Any, wire: Wire) -> None:
    assert delete_records(wire, unique("none"), 1).error_code == UNKNOWN_TOPIC
    assert delete_records(wire, create_topic(broker), 0, partition=4).error_code == UNKNOWN_TOPIC


def test_deleted_records_stay_deleted_after_a_restart(fresh_broker: Any) -> None:
    broker = fresh_broker()
    topic = create_topic(broker)
    with broker.wire() as wire:
        for _ in range(5):
            assert produce(wire, topic, batch([b"x"])).error_code == 0
        assert delete_records(wire, topic, 3).low_watermark == 3
    broker.restart()
    with broker.wire() as wire:
        assert list_offsets(wire, topic, EARLIEST).offset == 3
        assert list_offsets(wire, topic, LATEST).offset == 5
