"""Chunks to Arrow: random logs, cut anywhere, compared with the records that were put into them."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.pipeline.decoding import arrow, headers
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.types import LAST_MS, Chunk, Range
from odradek.protocol.batch import CONTROL, CRC_AT, HEADER_SIZE, TIMESTAMP_TYPE
from odradek.protocol.records import batch_v2, codecs, message_sets, varint
from odradek.protocol.records.errors import RecordError

from .batches import CODECS, NOW, PARTITION, TOPIC, Log, Row, shown, some_log, some_records, whole

ALL = arrow.SCHEMA_WITH_HEADERS.names
EVERYTHING = Range(TOPIC, PARTITION, 0, 1 << 62)


def read(
    log: Log, asked: Range | None = None, committed: bool = True, sizes: Sequence[int] = (), **more: Any
) -> list[Row]:
    more = {"names": ALL, **more}
    return shown(arrow.batches(log.chunks(sizes, committed), asked or whole(log), **more))


@settings(max_examples=150)
@given(
    seed=st.integers(0, 1 << 32),
    count=st.sampled_from((1, 5, 30)),
    cut=st.tuples(st.floats(-0.2, 1.2), st.floats(-0.2, 1.2)),
    sizes=st.lists(st.integers(1, 10), max_size=3),
    rows=st.sampled_from((1, 7, 50_000)),
    committed=st.booleans(),
    views=st.booleans(),
)
def test_reader_returns_the_written_records_of_any_range(
    seed: int, count: int, cut: tuple[float, float], sizes: Sequence[int], rows: int, committed: bool, views: bool
) -> None:
    log = some_log(seed, count)
    first = log.parts[0].first
    start, end = (first + int(share * (log.next_offset - first)) for share in cut)
    start = max(start, 0)
    expected = log.rows(start, end, committed)
    assert read(log, Range(TOPIC, PARTITION, start, end), committed, sizes, rows=rows, views=views) == expected


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("committed", [True, False])
def test_logs_of_many_batches(seed: int, committed: bool) -> None:
    """Enough batches that one step finds the records of all of them, and lengths that need three bytes."""
    log = some_log(seed, 400, longest=20_000)
    assert read(log, committed=committed) == log.rows(0, log.next_offset, committed)


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_every_codec(codec: int) -> None:
    log = Log()
    for count in (1, 3, 100, 1):
        log.batch(some_records(random.Random(count), count), codec)
    assert read(log) == log.rows(0, log.next_offset, True)


@pytest.mark.parametrize("codec", [codecs.NONE, codecs.ZSTD])
def test_long_values_make_short_record_batches(codec: int) -> None:
    log = Log()
    value = random.Random(1).randbytes(3 << 20)
    log.batch([(NOW, b"k", value, ()) for _ in range(12)], codec)
    log.batch([(NOW, None, value * 6, ()), (NOW, value * 7, b"", ())], codec)
    found = list(arrow.batches(log.chunks((), True), whole(log)))
    assert [batch.num_rows for batch in found] == [5, 5, 2, 1, 1]
    assert shown(found) == log.rows(0, log.next_offset, True)


def test_record_batches_have_the_requested_size() -> None:
    log = Log()
    for _ in range(100):
        log.batch([(NOW, None, b"v", ())] * 75)
    log.batch([(NOW, None, b"v", ())] * 2600)
    found = list(arrow.batches(log.chunks([1] * 101, True), whole(log), rows=1000))
    assert [batch.num_rows for batch in found] == [975] * 7 + [675] + [1000, 1000, 600]
    assert shown(found) == log.rows(0, log.next_offset, True)


def test_old_formats_make_record_batches_of_the_same_size() -> None:
    log = Log()
    for magic in (0, 1):
        log.message_set([(NOW, None, b"v", ())] * 900, magic)
    value = bytes(5 << 20)
    log.message_set([(NOW, None, value, ())] * 5, 1)
    found = list(arrow.batches(log.chunks((), True), whole(log), rows=1000))
    assert [batch.num_rows for batch in found] == [1000, 803, 2]
    assert shown(found) == log.rows(0, log.next_offset, True)


def test_emptied_batches_and_markers_have_no_rows() -> None:
    log = Log()
    log.batch(some_records(random.Random(1), 5), kept=[])
    log.end(1, abort=False)
    log.end(1, abort=True, emptied=True)
    assert read(log) == []
    assert list(arrow.batches([], whole(log))) == []
    assert list(arrow.batches([Chunk(b"", (), 0)], whole(log))) == []


def test_aborted_transaction_may_be_reported_repeatedly() -> None:
    """A later chunk may report the producer's first aborted transaction again: it must not hide a later transaction."""
    log = Log()
    for producer, abort in ((1, True), (1, False), (2, True), (1, True)):
        log.batch([(NOW, None, b"%d" % producer, ())] * 2, producer=producer)
        log.batch([(NOW, None, b"plain", ())])
        log.end(producer, abort)
    everything = tuple((t.producer, t.first) for t in log.transactions if t.aborted)
    chunks = [Chunk(part.data, everything, part.last + 1) for part in log.parts]
    assert shown(arrow.batches(chunks, whole(log))) == log.rows(0, log.next_offset, True)
    chunks[1:] = [chunk._replace(aborted=()) for chunk in chunks[1:]]
    assert shown(arrow.batches(chunks, whole(log))) == log.rows(0, log.next_offset, True)


@pytest.mark.parametrize("emptied", [False, True])
def test_a_marker_emptied_by_compaction_still_ends_its_transaction(emptied: bool) -> None:
    log = Log()
    log.batch([(NOW, None, b"gone", ())], producer=1)
    log.end(1, abort=True, emptied=emptied)
    log.batch([(NOW, None, b"here", ())], producer=1)
    log.end(1, abort=False)
    assert [row.value for row in read(log)] == [b"here"]


def test_headers_with_binary_values_and_duplicate_names() -> None:
    log = Log()
    pairs = [(b"a", b"1"), (b"a", None), ("ключ".encode(), b""), (b"", b"\xff"), (b"\xff\xfe", b"2")]
    log.batch([(NOW, None, b"v", pairs), (NOW, None, b"v", ()), (NOW, None, b"v", pairs[:1])])
    (batch,) = arrow.batches(log.chunks((), True), whole(log), names=ALL)
    assert batch.schema == arrow.SCHEMA_WITH_HEADERS
    many, none, one = batch.column("headers").to_pylist()
    assert [pair["key"] for pair in many] == ["a", "a", "ключ", "", "\ufffd\ufffd"]
    assert [pair["value"] for pair in many] == [b"1", None, b"", b"\xff", b"2"]
    assert none is None and one == [{"key": "a", "value": b"1"}]


def test_no_header_column_without_headers() -> None:
    log = Log()
    log.batch(some_records(random.Random(1), 50))
    (batch,) = arrow.batches(log.chunks((), True), whole(log))
    assert batch.schema == arrow.SCHEMA
    assert shown([batch]) == [row._replace(headers=None) for row in log.rows(0, log.next_offset, True)]


def test_schemas_equal_those_of_sparks_kafka_source() -> None:
    """The expected schema is written as Spark's Kafka source declares it."""
    kinds = pytest.importorskip("pyspark.sql.types")
    from pyspark.sql.pandas.types import to_arrow_schema

    text, blob, number, time = kinds.StringType(), kinds.BinaryType(), kinds.IntegerType(), kinds.TimestampType()
    schema = kinds.StructType().add("key", blob).add("value", blob).add("topic", text).add("partition", number)
    schema.add("offset", kinds.LongType()).add("timestamp", time).add("timestampType", number)
    assert arrow.SCHEMA.equals(to_arrow_schema(schema, timezone="UTC"))
    schema.add("headers", kinds.ArrayType(kinds.StructType().add("key", text).add("value", blob)))
    assert arrow.SCHEMA_WITH_HEADERS.equals(to_arrow_schema(schema, timezone="UTC"))


# Damage


def _ten(log: Log, magic: int, codec: int) -> None:
    records = [(NOW + i, b"key", b"value-%d" % i, [(b"h", b"1")] if magic == 2 and i % 2 else ()) for i in range(10)]
    if magic == 2:
        log.batch(records, codec)
    else:
        log.message_set(records, magic, codec)


def _formats() -> list[tuple[int, int]]:
    return [(magic, codec) for magic in range(3) for codec in CODECS if magic == 2 or codec != codecs.ZSTD]


@pytest.mark.parametrize(("magic", "codec"), _formats())
@pytest.mark.parametrize("bits", [0x80, *(pytest.param(bits, marks=pytest.mark.long) for bits in (0x01, 0xFF))])
def test_no_damaged_byte_makes_a_wrong_record(magic: int, codec: int, bits: int) -> None:
    """Damage every byte of a batch between two others.

    The leader epoch does not affect records, nor does the offset of a compressed set of magic 0.
    """
    log = Log()
    for _ in range(3):
        _ten(log, magic, codec)
    before, batch, after = (part.data for part in log.parts)
    harmless = range(12, 16) if magic == 2 else range(8) if magic == 0 and codec else range(0)
    for position in range(len(batch)):
        broken = bytearray(batch)
        broken[position] ^= bits
        chunk = Chunk(before + broken + after, (), 30)
        try:
            assert shown(arrow.batches([chunk], whole(log), names=ALL)) == log.rows(0, 30, True)
            assert position in harmless
        except PipelineError as error:
            assert re.match(rf"{TOPIC}-{PARTITION}: the batch at offset -?\d+ cannot be read: ", str(error))
            assert magic < 2 or position not in harmless


@settings(max_examples=300)
@given(seed=st.integers(0, 1 << 32), data=st.data())
def test_damage_without_checksums_is_an_error_or_reads_as_the_reference_reader_does(
    seed: int, data: st.DataObject
) -> None:
    """Damaged batches give the same records as `protocol.records`, or an error where `protocol.records` fails, too."""
    rnd = random.Random(seed)
    log = Log(next_offset=100)
    log.batch(some_records(rnd, data.draw(st.integers(1, 4))))
    batch = bytearray(log.parts[0].data)
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(HEADER_SIZE, len(batch) - 1))] = data.draw(st.integers(0, 255))
    chunk = Chunk(bytes(batch), (), 0)
    try:
        expected = slow_rows(bytes(batch))
    except (RecordError, OnlyHere):
        with pytest.raises(PipelineError, match="at offset 1"):
            shown(arrow.batches([chunk], EVERYTHING, names=ALL, check_crcs=False))
        return
    assert shown(arrow.batches([chunk], EVERYTHING, names=ALL, check_crcs=False)) == expected


class OnlyHere(Exception):
    """The reference reader accepts it, the columns refuse it."""


def slow_rows(batch: bytes) -> list[Row]:
    head = batch_v2.header(batch)
    out, time_type = [], int(bool(head.attributes & TIMESTAMP_TYPE))
    for offset, time, key, value, pairs in batch_v2.iterate(batch):
        if not head.base_offset <= offset <= head.last_offset:
            raise OnlyHere
        shown_pairs = tuple((name.decode(errors="replace"), text) for name, text in pairs) or None
        out.append(Row(key, value, offset, _shown(time), time_type, shown_pairs))
    return out


def test_the_error_names_the_damaged_batch() -> None:
    """The checksum is right, a length in one batch is wrong: many batches are decoded together, the error names one."""
    log = Log()
    for _ in range(100):
        _ten(log, 2, codecs.NONE)
    parts = [bytearray(part.data) for part in log.parts]
    parts[57][HEADER_SIZE] += 2
    batch_v2.set_crc(parts[57])
    with pytest.raises(PipelineError, match=rf"^{TOPIC}-{PARTITION}: the batch at offset 570 cannot be read: "):
        list(arrow.batches([Chunk(b"".join(parts), (), 0)], whole(log)))


def test_the_error_names_the_record_with_invalid_headers() -> None:
    log = Log()
    _ten(log, 2, codecs.NONE)
    batch = bytearray(log.parts[0].data)
    at = batch.index(b"value-7") + len(b"value-7")
    assert batch[at : at + 5] == bytes((2, 2)) + b"h" + bytes((2,)) + b"1"
    batch[at + 1] = 1  # a null name
    batch_v2.set_crc(batch)
    with pytest.raises(PipelineError, match="at offset 7 cannot"):
        list(arrow.batches([Chunk(bytes(batch), (), 0)], whole(log), names=ALL))


@pytest.mark.parametrize("cut", [1, 12, 16, 17, 60, 61, 100])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_partial_batch_at_the_end_is_an_error(magic: int, cut: int) -> None:
    log = Log()
    _ten(log, magic, 0)
    _ten(log, magic, 0)
    data = log.parts[0].data + log.parts[1].data[:cut]
    with pytest.raises(PipelineError, match=rf"{TOPIC}-{PARTITION}: the batch at offset \d+"):
        shown(arrow.batches([Chunk(data, (), 0)], whole(log)))


def test_decreasing_offsets_are_an_error_also_between_chunks() -> None:
    log = Log()
    _ten(log, 2, 0)
    _ten(log, 1, 0)
    one, two = (Chunk(part.data, (), 0) for part in log.parts)
    for order in ([one, one], [two, two], [two, one]):
        with pytest.raises(PipelineError, match="comes after offset"):
            shown(arrow.batches(order, whole(log)))


def test_crc_check_can_be_disabled() -> None:
    log = Log()
    _ten(log, 2, 0)
    batch = bytearray(log.parts[0].data)
    batch[CRC_AT] ^= 1
    assert shown(arrow.batches([Chunk(bytes(batch), (), 0)], whole(log), check_crcs=False)) == [
        row._replace(headers=None) for row in log.rows(0, 10, True)
    ]


def _shown(time: int) -> int:
    """Milliseconds after Java's overflow of 64 bits, limited to the range of Spark's timestamps."""
    return max(-LAST_MS, min(LAST_MS, (time + (1 << 63)) % (1 << 64) - (1 << 63)))


# Forged batches of a hostile producer


def _forged(body: bytes, count: int, codec: int = 0, base_timestamp: int = NOW) -> Chunk:
    """A batch with a valid checksum around `body`."""
    span = batch_v2.RecordsSpan(0, (1 << 31) - 1, base_timestamp, NOW, count)
    return Chunk(batch_v2.assemble(codecs.compress(codec, body), span, codec), (), 0)


RECORD = b"\x0c\0\0\0\1\1\0"
FAR = b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"  # the minimum of int64
HUGE = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        RECORD[:-1],
        RECORD * 2,
        RECORD + b"\0",
        b"\0" * 7,
        b"\x0b" + RECORD[1:],
        HUGE + RECORD[1:],
        FAR + RECORD[1:],
        b"\x80" * 11,
        b"\xfe\xff\xff\xff\x0f\0\0\0\1\1\0",
        b"\x1e\0\0\0" + HUGE + b"\1\0",
        b"\x1e\0\0\0\1" + HUGE + b"\0",
        b"\x1e\0\0\0\1\1" + HUGE,
        b"\x1e\0\0" + HUGE + b"\1\1\0",
        b"\x0e\0\0\0\1\1\x7e\0",
        b"\x0e\0\0\0\1\1\1\0",
        b"\x0e\0\0\0\1\1\0\0",
        b"\x10\0\0\0\1\1\x06\0\1",
    ],
)
@pytest.mark.parametrize("others", [0, 100])
@pytest.mark.parametrize("names", [ALL, arrow.SCHEMA.names])
def test_invalid_records(body: bytes, others: int, names: list[str]) -> None:
    """Alone, and with so many other batches that one step decodes them."""
    log = Log(next_offset=1 << 40)
    for _ in range(others):
        log.batch([(NOW, None, None, ())] * 2)
    data = bytes(_forged(body, 1).data) + b"".join(part.data for part in log.parts)
    data = data[:23] + bytes(4) + data[27:]  # last offset delta 0
    batch = bytearray(data[: batch_v2.header(data).size])
    batch_v2.set_crc(batch)
    data = bytes(batch) + data[len(batch) :]
    with pytest.raises(PipelineError, match="at offset 0 cannot"):
        list(arrow.batches([Chunk(data, (), 0)], Range(TOPIC, PARTITION, 0, 1 << 62), names))


@pytest.mark.parametrize(
    ("count", "pairs"),
    [
        (1, b"\2h\2vx"),  # one byte too many
        (1, b"\2h\x0cv"),  # a value that ends in the next record, or after the last
        (1, b"\x0ch"),
        (2, b"\1\2h\1"),  # a null name
        (1, b"\2h" + HUGE),
        (1, b"\2h" + HUGE[:-1] + b"\x7f"),  # more than 64 bits
        (1, HUGE + b"h\1"),
        (1, b"\2h\x80"),
    ],
)
@pytest.mark.parametrize("behind", [0, 1])
@pytest.mark.parametrize("many", [0, headers.MANY])
def test_invalid_headers(monkeypatch: pytest.MonkeyPatch, many: int, count: int, pairs: bytes, behind: int) -> None:
    monkeypatch.setattr(headers, "MANY", many)
    rest = b"\0\0\0\1\1" + varint.encode(count) + pairs
    chunk = _forged(varint.encode(len(rest)) + rest + RECORD * behind, 1 + behind)
    with pytest.raises(PipelineError, match="at offset 0 cannot"):
        list(arrow.batches([chunk], Range(TOPIC, PARTITION, 0, 10), names=ALL))


@pytest.mark.parametrize("many", [0, 1, 3, 9])
def test_records_with_many_headers_among_others(monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    """Records with many headers are decoded one by one, the others in columns."""
    monkeypatch.setattr(headers, "MANY", many)
    log, rnd = Log(), random.Random(many)
    for _ in range(3):
        log.batch(some_records(rnd, 40))
    assert read(log) == log.rows(0, log.next_offset, committed=False)


@pytest.mark.parametrize("count", [-1, 0, 2, 1 << 20, (1 << 31) - 1])
def test_invalid_record_count_is_an_error(count: int) -> None:
    with pytest.raises(PipelineError, match="at offset 0 cannot"):
        list(arrow.batches([_forged(RECORD, count)], Range(TOPIC, PARTITION, 0, 10)))


@pytest.mark.parametrize("codec", [codecs.GZIP, codecs.SNAPPY, codecs.LZ4, codecs.ZSTD])
def test_a_decompression_bomb_is_refused(codec: int) -> None:
    chunk = _forged(bytes(codecs.DEFAULT_LIMIT + 1), 1, codec)
    with pytest.raises(PipelineError, match="at offset 0 cannot be read: Unpacks to more than"):
        list(arrow.batches([chunk], Range(TOPIC, PARTITION, 0, 10)))


def test_more_headers_than_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers, "MOST", 5000)
    pair = b"\0\1"
    for count, fine in ((headers.MOST, True), (headers.MOST + 1, False)):
        rest = b"\0\0\0\1\1" + varint.encode(count) + pair * count
        chunk = _forged(varint.encode(len(rest)) + rest, 1)
        reading = arrow.batches([chunk], Range(TOPIC, PARTITION, 0, 10), names=ALL)
        if fine:
            (row,) = shown(reading)
            assert row.headers == (("", None),) * count
        else:
            with pytest.raises(PipelineError, match="at offset 0 cannot be read: a record has 5001 headers"):
                list(reading)


@pytest.mark.parametrize("ms", [LAST_MS + 1, -(1 << 63), (1 << 63) - 1, -(1 << 62), 1_800_000_000_000_000_000])
@pytest.mark.parametrize("magic", [1, 2])
def test_timestamps_beyond_sparks_range_are_clamped(caplog: pytest.LogCaptureFixture, magic: int, ms: int) -> None:
    """The nearest value replaces them, and a warning names the records that were read: no query fails."""
    log = Log(next_offset=5)
    for time in (ms, NOW, LAST_MS, ms, -LAST_MS, -1):
        record = (time, None, b"v", ())
        log.batch([record]) if magic == 2 else log.message_set([record], 1)
    nearest = LAST_MS if ms > 0 else -LAST_MS
    assert [row.time for row in read(log)] == [nearest, NOW, LAST_MS, nearest, -LAST_MS, -1]
    [told] = caplog.messages
    assert f"{TOPIC}-{PARTITION}: of offsets 5 to 10 2 records" in told and f"of offset 5, {ms} ms" in told
    caplog.clear()
    assert [row.time for row in read(log, Range(TOPIC, PARTITION, 9, 11))] == [-LAST_MS, -1]
    assert not caplog.messages


def test_timestamp_overflow_wraps_as_in_java() -> None:
    chunk = _forged(b"\x1e\0" + HUGE + b"\0\1\1\0", 1, base_timestamp=(1 << 63) - 1)
    assert [row.time for row in shown(arrow.batches([chunk], Range(TOPIC, PARTITION, 0, 10)))] == [-2]


def test_log_append_time_replaces_timestamps_beyond_sparks_range(caplog: pytest.LogCaptureFixture) -> None:
    log = Log()
    log.batch([(0, None, None, ()), (1 << 62, None, None, ())], appended=NOW)
    assert [row.time for row in read(log)] == [NOW, NOW]
    assert not caplog.messages


def test_half_a_million_records_of_one_batch_take_little_memory() -> None:
    import tracemalloc

    count = 500_000
    chunk = _forged(RECORD * count, count, codecs.ZSTD)
    tracemalloc.start()
    try:
        least = sum(batch.num_rows for batch in arrow.batches([chunk], Range(TOPIC, PARTITION, 0, 10), rows=1000))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert least == count
    assert peak < codecs.DEFAULT_LIMIT + (16 << 20) + (8 << 20)  # the used part of the buffer, and the rest


def test_batches_beyond_two_gib_of_a_chunk_are_read(tmp_path: Path) -> None:
    """Chunks are mapped files: batches decoded in one step must lie near each other, however large the chunk is."""
    log = Log()
    for _ in range(3):
        log.batch([(NOW, None, b"x", ())] * 3)
    import mmap

    gap = batch_v2.assemble(b"", batch_v2.RecordsSpan(3, 2, -1, NOW, 0), CONTROL)
    far = (1 << 31) - 12 - 100
    with open(tmp_path / "log", "wb+") as file:
        file.write(log.parts[0].data)
        file.write(gap[:8] + (far + 49).to_bytes(4, "big") + gap[12:])
        file.seek(far, 1)
        file.write(log.parts[2].data)
        file.flush()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as view:
            found = shown(arrow.batches([Chunk(view, (), 9)], whole(log), check_crcs=False))
    assert [row.offset for row in found] == [0, 1, 2, 6, 7, 8]
    assert pa.total_allocated_bytes() < 64 << 20


def test_a_nested_wrapper_message_is_an_error() -> None:
    inner = message_sets.build([(0, NOW, None, b"v", ())], 1, codec=codecs.GZIP)
    wrapped = message_sets.build([(5, NOW, None, inner, ())], 1)
    data = bytearray(wrapped)
    data[17] |= codecs.GZIP
    with pytest.raises(PipelineError, match="at offset 5 cannot"):
        list(arrow.batches([Chunk(bytes(data), (), 0)], Range(TOPIC, PARTITION, 0, 10), check_crcs=False))
