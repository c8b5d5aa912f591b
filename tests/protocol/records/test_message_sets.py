"""Magic 0 and 1: round trips, comparison with kafka-python, sets written by hand, damage, conversion."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.protocol.errors import (
    CORRUPT_MESSAGE,
    INVALID_RECORD,
    MESSAGE_TOO_LARGE,
    RECORD_LIST_TOO_LARGE,
    UNSUPPORTED_COMPRESSION_TYPE,
    UNSUPPORTED_FOR_MESSAGE_FORMAT,
)
from odradek.protocol.records import batch_v2, codecs, convert, message_sets, validate
from odradek.protocol.records.batch_v2 import Record
from odradek.protocol.records.errors import RecordError

from .strategies import NOW, mixed, plain, record_lists

bare = record_lists(headers=st.just([]))
magics = st.sampled_from([0, 1])


def by_hand(offset: int, key: bytes, value: bytes, magic: int = 0, attributes: int = 0) -> bytes:
    """A message as the protocol guide lays it out."""
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", NOW) if magic else b"")
    body += struct.pack(">i", len(key)) + key + struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, crc32(body)) + body


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_written_by_hand_are_read(magic: int) -> None:
    data = by_hand(7, b"k", b"v", magic) + by_hand(9, b"", b"w", magic)
    records: list[Record] = [(7, NOW if magic else -1, b"k", b"v", []), (9, NOW if magic else -1, b"", b"w", [])]
    assert plain(message_sets.iterate(data)) == records
    assert message_sets.build(records, magic) == data
    assert plain(message_sets.iterate(data + data[:20])) == records, "an incomplete message at the end is ignored"


def timeless(records: Iterable[Record], magic: int) -> list[Record]:
    return [(o, t if magic else -1, k, v, []) for o, t, k, v, _ in records]


@given(records=bare, magic=magics, codec=st.integers(0, 3))
def test_round_trip(records: list[Record], magic: int, codec: int) -> None:
    data = message_sets.build(records, magic, codec=codec)
    assert plain(message_sets.iterate(memoryview(data))) == timeless(records, magic)
    shallow = list(message_sets.messages(data))
    assert len(shallow) == (1 if codec else len(records))
    assert shallow[-1].offset == records[-1][0] and shallow[-1].codec == codec


@given(records=bare, magic=magics, codec=st.sampled_from([0, 1]))
def test_kafka_python_reads_our_message_sets(records: list[Record], magic: int, codec: int) -> None:
    from kafka.record import MemoryRecords

    reader = MemoryRecords(message_sets.build(records, magic, codec=codec))
    read: list[tuple[int, int | None, bytes | None, bytes | None]] = []
    while reader.has_next():
        batch = reader.next_batch()
        assert batch.validate_crc()
        read += [(r.offset, r.timestamp, r.key, r.value) for r in batch]
    expected = [(o, t if magic else None, k, v) for o, t, k, v, _ in records]
    assert read == expected


@given(records=record_lists(headers=st.just([]), gaps=False, base=0), magic=magics, codec=st.sampled_from([0, 1]))
def test_message_sets_of_kafka_python_are_stored(records: list[Record], magic: int, codec: int) -> None:
    from kafka.record.legacy_records import LegacyRecordBatchBuilder

    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=1 << 20)
    for offset, time, key, value, _ in records:
        builder.append(offset, time, key, value, [])
    data = bytes(builder.build())
    (stored,) = validate.normalise(data, validate.ValidationRules(now_ms=NOW))
    assert plain(batch_v2.iterate(stored)) == timeless(records, magic)
    assert batch_v2.check(stored, dense=True).codec == codec


@settings(max_examples=150)
@given(records=bare, magic=magics, data=st.data())
def test_every_flipped_bit_is_detected(records: list[Record], magic: int, data: st.DataObject) -> None:
    original = message_sets.build(records, magic)
    starts = {start: end for _, start, end in message_sets.entries(original)}
    start = data.draw(st.sampled_from(sorted(starts)))
    spoilt = bytearray(original)
    spoilt[data.draw(st.integers(start, starts[start] - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(RecordError) as caught:
        list(message_sets.iterate(bytes(spoilt)))
    assert caught.value.code == CORRUPT_MESSAGE


@settings(max_examples=150)
@given(records=bare, magic=magics, junk=st.binary(max_size=60), cut=st.integers(0, 60))
def test_damage_is_a_record_error_or_read(records: list[Record], magic: int, junk: bytes, cut: int) -> None:
    data = message_sets.build(records, magic)
    for spoilt in (
        data[:cut] + junk + data[cut + len(junk) :],
        junk,
        message_sets.build(records, magic, codec=1)[:cut],
    ):
        for check in (True, False):
            try:
                list(message_sets.iterate(spoilt, check_crc=check))
            except RecordError:
                pass
        try:
            validate.normalise(spoilt, validate.ValidationRules(now_ms=NOW))
        except RecordError:
            pass


@given(records=record_lists(), magic=magics, codec=st.integers(0, 3), start=st.integers(0, 12))
def test_down_conversion_keeps_records_from_the_first_offset(
    records: list[Record], magic: int, codec: int, start: int
) -> None:
    first = records[min(start, len(records) - 1)][0]
    batch = batch_v2.build(records, codec=codec)
    read = plain(message_sets.iterate(convert.down(batch + batch[:-1], magic, first).data))
    kept = records if codec else [record for record in records if record[0] >= first]
    assert read == timeless(kept, magic)


def test_down_conversion_ends_before_a_later_zstd_batch() -> None:
    log = batch_v2.build(mixed(3)) + batch_v2.build(mixed(3, base=3), codec=codecs.ZSTD)
    assert [row[0] for row in message_sets.iterate(convert.down(log, 1).data)] == [0, 1, 2]
    with pytest.raises(RecordError) as caught:
        convert.down(log, 1, first_offset=3)
    assert caught.value.code == UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("magic", [0, 1])
def test_conversion_ends_with_the_batch_that_has_enough_records(magic: int) -> None:
    """Records may be so small that 16 MiB of them are millions."""
    records = [(offset, 1, None, b"", ()) for offset in range(4_000)]
    if magic:
        one = batch_v2.build(records, codec=codecs.GZIP)
    else:
        one = message_sets.build(records, 1, codec=codecs.GZIP, timestamp_type=batch_v2.CREATE_TIME)
    found = convert.down(one * 7, magic)
    assert found.cut and len(list(message_sets.iterate(found.data))) == 5 * len(records)
    assert not convert.down(one * 5, magic).cut


def code_of(data: bytes, **rules: Any) -> int:
    with pytest.raises(RecordError) as caught:
        validate.normalise(data, validate.ValidationRules(now_ms=NOW, **rules))
    return caught.value.code


BATCH = batch_v2.build(mixed(20))
SET = message_sets.build(mixed(20, headers=False), 1)


def test_batches_over_a_size_limit_are_refused() -> None:
    assert code_of(BATCH, max_message_bytes=len(BATCH) - 1) == MESSAGE_TOO_LARGE
    just = validate.ValidationRules(now_ms=NOW, max_message_bytes=len(BATCH), segment_bytes=len(BATCH))
    assert validate.normalise(BATCH, just) == [BATCH]
    assert code_of(BATCH, segment_bytes=len(BATCH) - 1) == RECORD_LIST_TOO_LARGE
    biggest = max(map(len, convert.split(SET)))
    assert code_of(SET, max_message_bytes=biggest) == MESSAGE_TOO_LARGE, "each message fits, their batch does not"
    assert (
        code_of(batch_v2.build([(0, NOW, None, bytes(1 << 20), [])], codec=1), unpack_limit=1000) == MESSAGE_TOO_LARGE
    )


def test_corrupt_and_mixed_batches_are_refused() -> None:
    for data in (BATCH, SET):
        assert code_of(data[:-1] + bytes([data[-1] ^ 1])) == CORRUPT_MESSAGE
    assert code_of(b"\0" * 100) == CORRUPT_MESSAGE
    assert code_of(batch_v2.build(mixed(3, base=5))) == INVALID_RECORD
    assert code_of(BATCH + SET) == INVALID_RECORD
    rules = validate.ValidationRules(now_ms=NOW)
    assert validate.normalise(b"", rules) == validate.normalise(BATCH[:-1], rules) == []


def test_batches_with_headers_or_sequences_are_refused_for_old_formats() -> None:
    assert code_of(BATCH, magic_expected=1) == UNSUPPORTED_FOR_MESSAGE_FORMAT
    batch = batch_v2.build(mixed(2, headers=False), producer_id=4, producer_epoch=0, base_sequence=0)
    assert code_of(batch, magic_expected=1) == UNSUPPORTED_FOR_MESSAGE_FORMAT


def test_refusal_names_the_indexes_of_records() -> None:
    with pytest.raises(RecordError) as caught:
        validate.normalise(batch_v2.build(mixed(6), codec=4), validate.ValidationRules(now_ms=NOW, compacted=True))
    assert caught.value.code == INVALID_RECORD
    assert [index for index, _ in caught.value.record_errors] == [0, 4]


@pytest.mark.parametrize(
    ("data", "version", "code"),
    [
        (b"", 3, INVALID_RECORD),
        (SET, 3, INVALID_RECORD),
        (BATCH * 2, 9, INVALID_RECORD),
        (batch_v2.build(mixed(2), codec=4), 6, UNSUPPORTED_COMPRESSION_TYPE),
        (batch_v2.build(mixed(2), codec=4), 7, None),
        (BATCH, 3, None),
        (SET, 2, None),
        (b"", 2, None),
    ],
)
def test_request_version_limits_its_record_formats(data: bytes, version: int, code: int | None) -> None:
    try:
        validate.check_request(data, version)
        found = None
    except RecordError as error:
        found = error.code
    assert found == code


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [codecs.NONE, codecs.GZIP])
def test_message_set_with_too_many_messages_is_refused_early(
    monkeypatch: pytest.MonkeyPatch, magic: int, codec: int
) -> None:
    """A few bytes may unpack to millions of messages, so they are counted before any is read."""
    monkeypatch.setattr(codecs, "WORKER_RECORDS", 20)
    read = []
    real = message_sets.read
    monkeypatch.setattr(message_sets, "read", lambda *given, **named: read.append(1) or real(*given, **named))
    for count in (20, 21):
        read.clear()
        data = message_sets.build([(at, NOW, None, b"v", ()) for at in range(count)], magic, codec=codec)
        if count == 20:
            assert validate.normalise(data, validate.ValidationRules(now_ms=NOW))
            continue
        with pytest.raises(RecordError) as caught:
            validate.normalise(data, validate.ValidationRules(now_ms=NOW))
        assert caught.value.code == MESSAGE_TOO_LARGE
        assert len(read) <= 22
