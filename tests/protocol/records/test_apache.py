"""Records compared with Apache Kafka's classes: each reads what the other writes, and both validate alike."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.protocol.batch import COMPRESSION, HEADER, MAGIC_AT
from odradek.protocol.records import batch_v2, codecs, control, convert, message_sets, validate
from odradek.protocol.records.batch_v2 import Record
from odradek.protocol.records.errors import RecordError

from .oracle import Oracle, Refused, tohex, written
from .strategies import NOW, mixed, plain, record_lists, timestamps

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1")]
APPENDED = NOW + 5
FORMATS = [(magic, codec) for magic in (0, 1, 2) for codec in range(5) if magic == 2 or codec != codecs.ZSTD]
relaxed = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    one = Oracle()
    yield one
    one.close()


def ours(records: list[Record], magic: int, codec: int, kind: int) -> bytes:
    if magic == 2:
        return batch_v2.build(records, codec=codec, timestamp_type=kind, append_time=APPENDED)
    return message_sets.build(records, magic, codec=codec, timestamp_type=kind, append_time=APPENDED)


def theirs(oracle: Oracle, records: list[Record], magic: int, codec: int, kind: int) -> bytes:
    time = APPENDED if kind else -1
    return oracle.data("build", magic, codec, kind, time, records[0][0], -1, -1, -1, written(records))


def read(data: bytes) -> list[Record]:
    return plain(batch_v2.iterate(data) if data[MAGIC_AT] == 2 else message_sets.iterate(data))


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_we_and_kafka_read_each_others_batches(oracle: Oracle, magic: int, codec: int, kind: int) -> None:
    records = mixed(headers=magic == 2, base=1000)
    mine, kafkas = ours(records, magic, codec, kind), theirs(oracle, records, magic, codec, kind)
    assert oracle.records(mine) == oracle.records(kafkas) == read(mine) == read(kafkas)
    assert [row[2:] for row in read(mine)] == [row[2:] for row in records]
    if codec == codecs.NONE:
        assert mine == kafkas
    if magic == 2:
        batch_v2.check(kafkas, dense=True)
        same = ("base_offset", "attributes", "last_offset_delta", "base_timestamp", "max_timestamp", "num_records")
        for name in same:
            assert getattr(batch_v2.header(mine), name) == getattr(batch_v2.header(kafkas), name)


@relaxed
@given(records=record_lists())
def test_uncompressed_batches_equal_kafkas_bytes(oracle: Oracle, records: list[Record]) -> None:
    assert ours(records, 2, 0, 0) == theirs(oracle, records, 2, 0, 0)


@relaxed
@given(records=record_lists(headers=st.just([])), magic=st.sampled_from([0, 1]), codec=st.integers(0, 3))
def test_message_sets_are_read_alike(oracle: Oracle, records: list[Record], magic: int, codec: int) -> None:
    mine = ours(records, magic, codec, 0)
    assert oracle.records(mine) == read(mine)


@pytest.mark.smoke
@pytest.mark.parametrize("kind", [control.ABORT, control.COMMIT])
def test_end_markers_equal_kafkas_bytes(oracle: Oracle, kind: int) -> None:
    mine = control.end_marker(
        kind, producer_id=5, producer_epoch=2, coordinator_epoch=9, timestamp=NOW, base_offset=77, leader_epoch=3
    )
    assert mine == oracle.data("marker", kind, 5, 2, 9, NOW, 77, 3)


@pytest.mark.parametrize("start", [0, 1015, 1030, 2000])
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", range(5))
def test_down_conversion_equals_kafkas(oracle: Oracle, codec: int, magic: int, start: int) -> None:
    marker = control.end_marker(
        1, producer_id=5, producer_epoch=2, coordinator_epoch=9, timestamp=NOW, base_offset=1020
    )
    log = ours(mixed(20, base=1000), 2, 0, 0) + marker + ours(mixed(base=1021)[::2], 2, codec, 1)
    log += ours(mixed(3, headers=False, base=3000), 1, 1, 0)
    log += ours(mixed(base=4000), 2, 0, 0)[:100]
    try:
        kafkas = oracle.data("down", magic, start, tohex(log))
    except Refused as refused:
        assert codec == codecs.ZSTD
        with pytest.raises(RecordError) as caught:
            convert.down(batch_v2.build(mixed(), codec=codec), magic, start)
        assert caught.value.code == refused.code
        return
    mine = convert.down(log, magic, start).data
    assert oracle.records(mine) == oracle.records(kafkas) == read(mine)
    if codec == codecs.NONE and magic == 1:
        assert mine == kafkas


RULES = {
    "magic_expected": 2,
    "codec": None,
    "timestamp_type": 0,
    "before_max_ms": validate.UNLIMITED,
    "after_max_ms": validate.UNLIMITED,
    "compacted": False,
    "base_offset": 500,
}


def judged(oracle: Oracle, data: bytes, **changes: Any) -> bytes | tuple[int, list[int]]:
    """The result of Kafka's LogValidator for `data`: bytes, or (error, records at fault)."""
    rule = RULES | changes
    codec = -1 if rule["codec"] is None else rule["codec"]
    limits = (rule["before_max_ms"], rule["after_max_ms"], str(rule["compacted"]).lower(), rule["base_offset"])
    try:
        return oracle.data("validate", rule["magic_expected"], codec, rule["timestamp_type"], NOW, *limits, tohex(data))
    except Refused as refused:
        return refused.code, refused.indexes


def normalised(data: bytes, **changes: Any) -> bytes | tuple[int, list[int]]:
    try:
        return b"".join(
            validate.normalise(data, validate.ValidationRules(now_ms=NOW, leader_epoch=7, **RULES | changes))
        )
    except RecordError as error:
        return error.code, [index for index, _ in error.record_errors]


def assert_alike(oracle: Oracle, data: bytes, **changes: Any) -> None:
    kafkas, mine = judged(oracle, data, **changes), normalised(data, **changes)
    if isinstance(mine, tuple) or isinstance(kafkas, tuple):
        assert mine == kafkas
        return
    assert oracle.records(mine) == oracle.records(kafkas)
    if mine[MAGIC_AT] == 2:
        # The size differs with the compressor's version, and with it the CRC.
        unlike = {"length": 0, "crc": 0}
        assert batch_v2.header(mine)._replace(**unlike) == batch_v2.header(kafkas)._replace(**unlike)
    if not mine[MAGIC_AT + 1 if mine[MAGIC_AT] < 2 else 22] & COMPRESSION:
        assert mine == kafkas


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("target", [None, 0, 1, 2, 3, 4])
@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_batches_of_producers_are_stored_as_by_kafka(
    oracle: Oracle, magic: int, codec: int, target: int | None, kind: int
) -> None:
    data = ours(mixed(headers=magic == 2), magic, codec, 0)
    assert_alike(oracle, data, codec=target, timestamp_type=kind)


@pytest.mark.parametrize("to", [0, 1])
@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize(("magic", "codec"), [one for one in FORMATS if one[1] != codecs.ZSTD])
def test_old_formats_are_stored_as_by_kafka(oracle: Oracle, magic: int, codec: int, kind: int, to: int) -> None:
    for target in (None, 0, 1):
        data = ours(mixed(headers=False), magic, codec, 0)
        assert_alike(oracle, data, codec=target, timestamp_type=kind, magic_expected=to)


@pytest.mark.parametrize("times", [(-5,), (-5, -2), (-1, -5, -1), (-5, NOW), (-1 << 63,), (NOW - (1 << 63),)], ids=str)
def test_times_before_1970_are_validated_as_by_kafka(oracle: Oracle, times: list[int]) -> None:
    data = batch_v2.build([(at, time, None, b"v", ()) for at, time in enumerate(times)], codec=0)
    for limit in (1000, validate.UNLIMITED):
        assert_alike(oracle, data, before_max_ms=limit)


odd_times = st.one_of(timestamps, st.just(-1), st.integers(0, 10))


@relaxed
@given(
    records=record_lists(gaps=False, times=odd_times, base=0),
    codec=st.sampled_from([0, 1]),
    producer_type=st.sampled_from([0, 0, 0, 1]),
    rule=st.fixed_dictionaries(
        {
            "codec": st.sampled_from([None, 0, 1]),
            "timestamp_type": st.sampled_from([0, 0, 1]),
            "compacted": st.booleans(),
            "before_max_ms": st.sampled_from([1000, validate.UNLIMITED]),
            "after_max_ms": st.sampled_from([1000, 1 << 50]),
        }
    ),
)
def test_batches_are_validated_as_by_kafka(
    oracle: Oracle, records: list[Record], codec: int, producer_type: int, rule: dict[str, Any]
) -> None:
    data = batch_v2.build(records, codec=codec, timestamp_type=producer_type, append_time=NOW)
    assert_alike(oracle, data, **rule)


@relaxed
@given(
    records=record_lists(headers=st.just([]), gaps=False, times=odd_times, base=0),
    magic=st.sampled_from([0, 1]),
    codec=st.sampled_from([0, 1]),
    rule=st.fixed_dictionaries(
        {
            "codec": st.sampled_from([None, 0, 1]),
            "timestamp_type": st.sampled_from([0, 0, 1]),
            "compacted": st.booleans(),
            "after_max_ms": st.sampled_from([1000, 1 << 50]),
        }
    ),
)
def test_message_sets_are_validated_as_by_kafka(
    oracle: Oracle, records: list[Record], magic: int, codec: int, rule: dict[str, Any]
) -> None:
    data = message_sets.build(records, magic, codec=codec)
    assert_alike(oracle, data, **rule)


def header_changed(**changes: Any) -> bytes:
    """A batch of four records with a changed header and a correct CRC."""
    batch = bytearray(batch_v2.build(mixed(4), codec=changes.pop("codec", 0)))
    HEADER.pack_into(batch, 0, *batch_v2.header(bytes(batch))._replace(**changes))
    batch_v2.set_crc(batch)
    return bytes(batch)


INVALID = {
    "count too high": header_changed(num_records=5, last_offset_delta=4),
    "count too low": header_changed(num_records=3, last_offset_delta=2),
    "count too low, packed": header_changed(num_records=3, last_offset_delta=2, codec=1),
    "count is not the range": header_changed(num_records=3),
    "no records": header_changed(num_records=0, last_offset_delta=-1),
    "negative count": header_changed(num_records=-4, last_offset_delta=-5),
    "control": header_changed(attributes=0x20),
    "no sequence": header_changed(producer_id=9, producer_epoch=1, base_sequence=-1),
    "wrong codec": header_changed(attributes=4),
    "unknown codec": header_changed(attributes=6),
    "two batches": header_changed() * 2,
    "mixed magic": message_sets.build(mixed(2, headers=False), 1) + message_sets.build(mixed(2, headers=False), 0),
    "two wrappers": message_sets.build(mixed(2, headers=False), 1, codec=1) * 2,
    "a wrapper after a message": message_sets.build(mixed(2, headers=False), 1)
    + message_sets.build(mixed(2, headers=False), 1, codec=1),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_batches_are_refused_as_by_kafka(oracle: Oracle, name: str) -> None:
    assert_alike(oracle, INVALID[name])


def test_wrong_offset_deltas_are_replaced(oracle: Oracle) -> None:
    """Kafka replaces them when it recompresses, and fails otherwise; we always replace them."""
    batch = bytearray(batch_v2.build(mixed(12)[::3], codec=1))
    HEADER.pack_into(batch, 0, *batch_v2.header(bytes(batch))._replace(last_offset_delta=3))
    batch_v2.set_crc(batch)
    assert_alike(oracle, bytes(batch), codec=0)
    (stored,) = validate.normalise(bytes(batch), validate.ValidationRules(now_ms=NOW))
    batch_v2.check(stored, dense=True)


def wrapped(inner: bytes, magic: int = 1, offset: int = 0, attributes: int = 1, value: bytes | None = b"") -> bytes:
    """A gzip wrapper message around any bytes."""
    value = codecs.compress(codecs.GZIP, inner) if value == b"" else value
    record: Record = (offset, NOW, None, value, [])
    message = bytearray(message_sets.build([record], magic))
    message[MAGIC_AT + 1] = attributes
    return with_crc(bytes(message))


def with_crc(message: bytes) -> bytes:
    from zlib import crc32

    return message[:12] + crc32(message[16:]).to_bytes(4, "big") + message[16:]


one, two = mixed(1, headers=False), mixed(2, headers=False)
INNER = {
    "librdkafka's wrapper at 0": wrapped(message_sets.build(two, 1)),
    "wrapper below its messages": wrapped(message_sets.build(mixed(9, headers=False), 1), offset=3),
    "no messages": wrapped(b"\0" * 5),
    "other magic": wrapped(message_sets.build(two, 0)),
    "nested": wrapped(wrapped(message_sets.build(two, 1))),
    "inner crc": wrapped(message_sets.build(one, 1)[:-1] + b"\7"),
    "null value": wrapped(b"", value=None),
    "not gzip": wrapped(b"", value=b"garbage"),
    "zstd": wrapped(b"", value=codecs.compress(4, message_sets.build(two, 1)), attributes=4),
    "absolute offsets in magic 1": wrapped(message_sets.build(mixed(3, headers=False, base=70), 1), offset=72),
    "magic 0 from 5 on": wrapped(message_sets.build(mixed(3, headers=False, base=5), 0), magic=0, offset=7),
    "part of a message": wrapped(message_sets.build(two, 1) + b"\0" * 13 + b"\x20"),
    "log append time": wrapped(message_sets.build(two, 1), attributes=9),
    "wrong snappy": wrapped(b"", value=b"garbage", attributes=2),
}


@pytest.mark.parametrize("name", INNER)
def test_unusual_wrappers_are_validated_as_by_kafka(oracle: Oracle, name: str) -> None:
    for magic in (2,) if name == "log append time" else (2, 1):  # see validate's docstring
        assert_alike(oracle, INNER[name], magic_expected=magic)


def test_lz4_header_checksums_are_checked_as_by_kafka(oracle: Oracle) -> None:
    """Magic 1 needs the correct checksum, magic 0 accepts any."""
    for magic, broken in itertools.product((0, 1), (0, 2)):
        packed = codecs.compress(codecs.LZ4, message_sets.build(two, magic), magic=broken)
        data = wrapped(b"", magic=magic, value=packed, attributes=codecs.LZ4)
        assert_alike(oracle, data)
        assert isinstance(normalised(data), tuple) == (magic == 1 and broken == 0)
