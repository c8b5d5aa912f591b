"""Produce: offsets, timestamps and the error codes that Apache Kafka gives, checked against it."""

from __future__ import annotations

import struct
import uuid
from typing import Any

import pytest

from ..harness.process import wait_until
from ..harness.wire import Wire
from .admin import create_topic, topic_id, unique
from .raw import batches
from .raw.batches import NOW, batch, compressed, message
from .raw.calls import fetch, list_offsets, produce, produce_request, supports

pytestmark = pytest.mark.live

SERVER_ERROR, CORRUPT, UNKNOWN_TOPIC, TOO_LARGE, INVALID_ACKS = -1, 2, 3, 10, 21
INVALID_TIMESTAMP, UNSUPPORTED_CODEC, INVALID_RECORD, UNKNOWN_ID = 32, 76, 87, 100
YEAR_MS = 365 * 86_400_000


@pytest.fixture
def wire(broker: Any) -> Any:
    with broker.wire() as connection:
        yield connection


def end_offset(wire: Wire, topic: str) -> int:
    return list_offsets(wire, topic, -1).offset


def test_offsets_are_dense_over_connections(broker: Any) -> None:
    topic = create_topic(broker)
    wires = [broker.wire() for _ in range(8)]
    given: list[int] = []
    for at in range(40):
        answer = produce(wires[at % 8], topic, batch([b"%d" % at] * (1 + at % 3)))
        assert answer.error_code == 0
        given += range(answer.base_offset, answer.base_offset + 1 + at % 3)
    assert given == list(range(len(given)))
    for one in wires:
        one.close()


def test_pipelined_requests_are_answered_in_order(broker: Any, wire: Wire) -> None:
    topics = [create_topic(broker), create_topic(broker)]
    asked = [produce_request(topics[at % 2], batch([b"%d" % at]), acks=1) for at in range(100)]
    for request in asked:
        wire.put(request)
    for at, request in enumerate(asked):
        answer = wire.take(request)
        assert answer.responses[0].name == topics[at % 2]
        assert answer.responses[0].partition_responses[0].base_offset == at // 2


def test_requests_in_one_packet_and_in_single_bytes_are_answered(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker)
    requests = [produce_request(topic, batch([b"%d" % at]), acks=1) for at in range(3)]
    frames = []
    for request in requests:
        request.with_header(correlation_id=1, client_id="x")
        frames.append(bytes(request.encode(header=True, framed=True)))
    wire.send_raw(b"".join(frames[:2]) + frames[2][:7])
    for byte in frames[2][7:]:
        wire.send_raw(bytes([byte]))
    offsets = [wire.take(request).responses[0].partition_responses[0].base_offset for request in requests]
    assert offsets == [0, 1, 2]


@pytest.mark.parametrize("version", range(3, 14))
def test_every_version_answers_base_offset(broker: Any, wire: Wire, version: int) -> None:
    if not supports(wire, 0, version):
        assert broker.external, f"Produce v{version} is not answered"
        pytest.skip("not there")
    topic = create_topic(broker)
    where = topic_id(wire, topic) if version >= 13 else topic
    for base in (0, 2):
        answer = produce(wire, where, batch([b"a", b"b"]), version=version)
        assert (answer.error_code, answer.base_offset) == (0, base)
        if version >= 5:
            assert answer.log_start_offset == 0
    assert [r.value for r in batches.parse(fetch(wire, topic, 0).records)] == [b"a", b"b"] * 2


def test_each_partition_of_a_request_is_answered(broker: Any, wire: Wire) -> None:
    from kafka.protocol.producer import ProduceRequest as Request

    one, two = create_topic(broker, partitions=3), create_topic(broker)
    row = Request.TopicProduceData
    parts = [row.PartitionProduceData(index=at, records=batch([b"%d" % at])) for at in (2, 0, 7)]
    topics = [row(name=one, partition_data=parts), row(name=two, partition_data=parts[1:2])]
    answer = wire.call(Request[7](transactional_id=None, acks=-1, timeout_ms=9000, topic_data=topics))
    found = {(t.name, p.index): p.error_code for t in answer.responses for p in t.partition_responses}
    assert found == {(one, 2): 0, (one, 0): 0, (one, 7): UNKNOWN_TOPIC, (two, 0): 0}


@pytest.mark.parametrize("partition", [1, 7, -1])
def test_produce_to_unknown_partition_fails(broker: Any, wire: Wire, partition: int) -> None:
    topic = create_topic(broker)
    answer = produce(wire, topic, batch([b"x"]), partition=partition)
    assert (answer.error_code, answer.base_offset) == (UNKNOWN_TOPIC, -1)


def test_produce_to_unknown_topic_fails(wire: Wire) -> None:
    assert produce(wire, unique("none"), batch([b"x"])).error_code == UNKNOWN_TOPIC


def test_produce_to_unknown_topic_id_fails(wire: Wire) -> None:
    if not supports(wire, 0, 13):
        pytest.skip("no Produce v13 here")
    assert produce(wire, uuid.uuid4(), batch([b"x"]), version=13).error_code == UNKNOWN_ID


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_invalid_acks_are_refused(broker: Any, wire: Wire, acks: int) -> None:
    topic = create_topic(broker)
    answer = produce(wire, topic, batch([b"x"]), acks=acks)
    assert (answer.error_code, answer.base_offset) == (INVALID_ACKS, -1)
    assert end_offset(wire, topic) == 0


def test_acks_zero_is_not_answered(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker)
    wire.put(produce_request(topic, batch([b"quiet"]), acks=0))
    answer = produce(wire, topic, batch([b"loud"]))
    assert (answer.error_code, answer.base_offset) == (0, 1)


def test_acks_zero_to_an_unknown_topic_closes_the_connection(wire: Wire) -> None:
    wire.put(produce_request(unique("none"), batch([b"x"]), acks=0))
    assert wire.closed_by_peer()


GOOD = [b"one", b"two"]
GARBAGE = b"\x1f\x8bthis is no compressed data at all"
REFUSED = {
    "corrupt crc": (batch(GOOD, break_crc=True), CORRUPT),
    "cut off": (batch(GOOD)[:-3], INVALID_RECORD),
    "size too small": (struct.pack(">qi", 0, 5) + b"\0" * 60, CORRUPT),
    "count too high": (batch(GOOD, count=3), INVALID_RECORD),
    "count too low": (batch(GOOD, count=1), INVALID_RECORD),
    "last offset delta too high": (batch(GOOD, last_delta=7), INVALID_RECORD),
    "last offset delta negative": (batch(GOOD, last_delta=-1), INVALID_RECORD),
    "no records": (batch([], last_delta=0, count=0), INVALID_RECORD),
    "two batches": (batch(GOOD) + batch(GOOD), INVALID_RECORD),
    "no batch": (b"", INVALID_RECORD),
    "control batch": (batch(GOOD, attributes=0x20), INVALID_RECORD),
    "magic 0": (message(b"x"), INVALID_RECORD),
    "magic 1": (message(b"x", magic=1), INVALID_RECORD),
    "future timestamp": (batch(GOOD, timestamp=NOW + YEAR_MS), INVALID_TIMESTAMP),
    "gzip garbage": (batch(GOOD, payload=GARBAGE, attributes=1), SERVER_ERROR),
    "snappy garbage": (batch(GOOD, payload=GARBAGE, attributes=2), SERVER_ERROR),
    "lz4 garbage": (batch(GOOD, payload=GARBAGE, attributes=3), SERVER_ERROR),
    "zstd garbage": (batch(GOOD, payload=GARBAGE, attributes=4), SERVER_ERROR),
}


@pytest.mark.parametrize("name", REFUSED)
def test_invalid_batch_is_refused(broker: Any, wire: Wire, name: str) -> None:
    data, code = REFUSED[name]
    topic = create_topic(broker, message_timestamp_after_max_ms=3_600_000)
    answer = produce(wire, topic, data)
    assert (answer.error_code, answer.base_offset) == (code, -1)
    assert end_offset(wire, topic) == 0
    assert produce(wire, topic, batch(GOOD)).base_offset == 0, "the next batch is stored"


def test_zstd_needs_version_7(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker)
    data = compressed(GOOD, "zstd")
    assert produce(wire, topic, data, version=6).error_code == UNSUPPORTED_CODEC
    assert produce(wire, topic, data, version=7).error_code == 0


def test_batch_above_max_message_bytes_is_refused(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker, max_message_bytes=1000)
    assert produce(wire, topic, batch([b"x" * 1000])).error_code == TOO_LARGE
    assert produce(wire, topic, batch([b"x" * 900])).error_code == 0
    limit = 1_048_588  # message.max.bytes: the whole batch with its header
    wide = create_topic(broker)
    head = len(batch([b"x" * 1_000_000])) - 1_000_000
    assert produce(wire, wide, batch([b"x" * (limit - head)])).error_code == 0
    assert produce(wire, wide, batch([b"x" * (limit - head + 1)])).error_code == TOO_LARGE


def test_compacted_topic_refuses_records_without_keys(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker, cleanup_policy="compact")
    assert produce(wire, topic, batch(GOOD)).error_code == INVALID_RECORD
    assert produce(wire, topic, batch(GOOD, key=b"k")).error_code == 0


def test_record_errors_name_the_invalid_records(broker: Any, wire: Wire) -> None:
    """KIP-467: from version 8 the answer says which record is wrong."""
    topic = create_topic(broker, cleanup_policy="compact")
    answer = produce(wire, topic, batch(GOOD), version=8)
    assert answer.error_code == INVALID_RECORD
    assert [row.batch_index for row in answer.record_errors] == [0, 1]
    assert answer.error_message


def test_log_append_time_replaces_create_time(broker: Any, wire: Wire) -> None:
    topic = create_topic(broker, message_timestamp_type="LogAppendTime")
    answer = produce(wire, topic, batch(GOOD, timestamp=1000))
    assert answer.error_code == 0 and answer.log_append_time_ms >= NOW
    records = batches.parse(fetch(wire, topic, 0).records)
    assert {record.timestamp for record in records} == {answer.log_append_time_ms}


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_compression_type_of_the_topic_is_applied(broker: Any, wire: Wire, codec: str) -> None:
    """`compression.type` other than `producer` recompresses; offsets and records stay as they were."""
    topic = create_topic(broker, compression_type=codec)
    values: list[bytes | None] = [b"abc" * 100] * 10
    for data in (batch(values), compressed(values, "gzip"), compressed(values, "lz4")):
        assert produce(wire, topic, data).error_code == 0
    answer = fetch(wire, topic, 0)
    assert [(r.offset, r.value) for r in batches.parse(answer.records)] == list(enumerate(values * 3))
    bits = (answer.records[22] & 7) if answer.records else None
    assert bits == batches.CODEC_BITS.get(codec, 0)


def test_created_topic_is_known_to_every_connection(broker: Any) -> None:
    """Every worker knows the topic once CreateTopics is answered."""
    wires = [broker.wire() for _ in range(12)]
    for _ in range(5):
        topic = create_topic(broker, partitions=4)
        for at, wire in enumerate(wires):
            if broker.external:
                wait_until(lambda: produce(wires[0], topic, batch([b"x"])).error_code == 0)  # noqa: B023
            assert produce(wire, topic, batch([b"x"]), partition=at % 4).error_code == 0
    for wire in wires:
        wire.close()
