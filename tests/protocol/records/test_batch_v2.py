"""Magic 2: round trips, comparison with kafka-python, batches written by hand, every kind of damage."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.protocol.batch import CONTROL, HEADER
from odradek.protocol.errors import CORRUPT_MESSAGE, INVALID_RECORD
from odradek.protocol.records import batch_v2, codecs, control, varint
from odradek.protocol.records.batch_v2 import Record
from odradek.protocol.records.errors import RecordError

from .strategies import NOW, mixed, plain, record_lists

# Written by kafka-clients 3.9.1 (MemoryRecords.builder, magic 2, base offset 5): (5, 10, "a", "b") and
# (6, 11, null, null, header "h": null).
GOLDEN = bytes.fromhex(
    "000000000000000500000044ffffffff021d961c7c000000000001000000000000000a000000000000000b"
    "ffffffffffffffffffffffffffff0000000210000000026102620012000202010102026801"
)
GOLDEN_RECORDS: list[Record] = [(5, 10, b"a", b"b", []), (6, 11, None, None, [(b"h", None)])]


def test_golden_batch_is_read_and_written() -> None:
    assert plain(batch_v2.iterate(GOLDEN)) == GOLDEN_RECORDS
    assert batch_v2.build(GOLDEN_RECORDS) == GOLDEN
    assert batch_v2.check(GOLDEN, dense=True).last_offset == 6


@given(records=record_lists(), codec=st.integers(0, 4))
def test_round_trip(records: list[Record], codec: int) -> None:
    batch = batch_v2.build(records, codec=codec)
    assert plain(batch_v2.iterate(memoryview(batch))) == records
    head = batch_v2.check(batch)
    assert (head.base_offset, head.last_offset, head.codec) == (records[0][0], records[-1][0], codec)
    assert head.max_timestamp == max(record[1] for record in records)
    assert head.size == len(batch) and head.num_records == len(records)


@given(records=record_lists(gaps=False, base=0))
def test_batches_equal_those_of_kafka_python(records: list[Record]) -> None:
    from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

    read = list(DefaultRecordBatch(bytearray(batch_v2.build(records))))
    assert [(r.offset, r.timestamp, r.key, r.value) for r in read] == [row[:4] for row in records]
    assert [[(k.encode(), v) for k, v in r.headers] for r in read] == [row[4] for row in records]
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=0, producer_id=-1, producer_epoch=-1,
        base_sequence=-1, batch_size=1 << 20,
    )  # fmt: skip
    for offset, time, key, value, headers in records:
        builder.append(offset, time, key, value, [(k.decode(), v) for k, v in headers])
    assert plain(batch_v2.iterate(bytes(builder.build()))) == records


@given(number=st.integers(-(1 << 63), (1 << 63) - 1))
def test_varint_round_trip(number: int) -> None:
    packed = varint.encode(number)
    assert varint.decode(packed + b"\xff", 0) == (number, len(packed))


@pytest.mark.parametrize(
    ("number", "packed"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (8191, "fe7f"),
        (-(1 << 31), "ffffffff0f"),
    ],
)
def test_varints_equal_the_specifications_examples(number: int, packed: str) -> None:
    """The examples of Protocol Buffers' zig-zag encoding, and the borders of one and two bytes."""
    assert varint.encode(number).hex() == packed


def test_endless_varint_is_refused() -> None:
    with pytest.raises(RecordError):
        varint.decode(b"\x80" * 20, 0)


def test_batch_without_records_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one"):
        batch_v2.build([])


@settings(max_examples=150)
@given(records=record_lists(), codec=st.sampled_from([0, 1]), data=st.data())
def test_every_flipped_bit_is_detected(records: list[Record], codec: int, data: st.DataObject) -> None:
    """The leader changes base offset (its low bytes) and leader epoch; the CRC covers all else."""
    batch = bytearray(batch_v2.build(records, codec=codec))
    position = data.draw(st.integers(16, len(batch) - 1))
    batch[position] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(RecordError) as caught:
        batch_v2.check(bytes(batch))
    assert caught.value.code == CORRUPT_MESSAGE


@settings(max_examples=150)
@given(records=record_lists(), data=st.data())
def test_damage_under_a_correct_crc_is_a_record_error_or_read(records: list[Record], data: st.DataObject) -> None:
    """A read of any bytes of a producer gives records or a RecordError."""
    batch = bytearray(batch_v2.build(records))
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(61, len(batch) - 1))] = data.draw(st.integers(0, 255))
    batch_v2.set_crc(batch)
    try:
        batch_v2.check(bytes(batch))
    except RecordError as error:
        assert error.code == INVALID_RECORD


@pytest.mark.parametrize("change", [{"num_records": 2}, {"num_records": 4}, {"last_offset_delta": 1}])
def test_header_that_disagrees_with_the_records_is_refused(change: dict[str, Any]) -> None:
    batch = bytearray(batch_v2.build(mixed(3)))
    HEADER.pack_into(batch, 0, *batch_v2.header(bytes(batch))._replace(**change))
    batch_v2.set_crc(batch)
    with pytest.raises(RecordError) as caught:
        batch_v2.check(bytes(batch))
    assert caught.value.code == INVALID_RECORD


def test_gaps_are_refused_only_if_the_batch_must_be_dense() -> None:
    batch = batch_v2.build(mixed(9)[::2])
    batch_v2.check(batch)
    with pytest.raises(RecordError):
        batch_v2.check(batch, dense=True)


def test_short_batch_is_refused() -> None:
    for size in (0, 20, 60, len(GOLDEN) - 1):
        with pytest.raises(RecordError):
            batch_v2.check(GOLDEN[:size])


def test_marker_equals_kafkas_bytes() -> None:
    """The marker of kafka-clients 3.9.1 for COMMIT, producer 5 epoch 2, coordinator 9, offset 7, epoch 3, time 55."""
    golden = bytes.fromhex(
        "0000000000000007000000420000000302287c4cf80030000000000000000000000037000000000000003700000000"
        "000000050002ffffffff000000012000000008000000010c00000000000900"
    )
    fields = {"producer_id": 5, "producer_epoch": 2, "coordinator_epoch": 9, "timestamp": 55}
    assert control.end_marker(control.COMMIT, base_offset=7, leader_epoch=3, **fields) == golden
    assert control.read_marker(golden) == (control.COMMIT, 9)
    assert control.read_marker(control.end_marker(control.ABORT, **fields)) == (control.ABORT, 9)
    with pytest.raises(ValueError, match="end"):
        control.end_marker(2, **fields)


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"\0", b""), (None, b""), (b"\0\0\0\1", b"\0"), (b"\0\0\0\5", b"\0" * 6), (b"\xff\xff\0\1", b"")],
)
def test_invalid_marker_is_refused(key: bytes | None, value: bytes) -> None:
    batch = batch_v2.build([(0, NOW, key, value, [])], attributes=CONTROL)
    with pytest.raises(RecordError):
        control.read_marker(batch)


def test_data_batch_is_no_marker() -> None:
    with pytest.raises(RecordError):
        control.read_marker(GOLDEN)


def test_zip_bomb_in_a_batch_is_refused() -> None:
    batch = batch_v2.build([(0, NOW, None, bytes(3 << 20), [])], codec=codecs.ZSTD)
    with pytest.raises(RecordError):
        list(batch_v2.iterate(batch, limit=1 << 20))
