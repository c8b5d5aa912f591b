"""Records of one size in a row are read as the columns of a table: the same records as the reference reader finds."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from odradek.pipeline.decoding import alike, arrow, gather
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.types import Chunk, Range
from odradek.protocol.batch import HEADER_SIZE, TIMESTAMP_TYPE
from odradek.protocol.records import batch_v2, bulk, codecs, varint
from odradek.protocol.records.batch_v2 import Record
from odradek.protocol.records.errors import RecordError

from .batches import NOW, PARTITION, TOPIC, Log, shown, whole
from .test_arrow import ALL, EVERYTHING, OnlyHere, read, slow_rows

SIZES = st.one_of(st.none(), st.sampled_from((0, 1, 10, 57, 58, 63, 64, 100, 1000, 8200)))
SHAPES = st.tuples(
    st.integers(1, 150), SIZES, SIZES, st.sampled_from((0, 0, 1, 70, 9000)), st.sampled_from((0, 0, 0, 2))
)


def records(
    shapes: Sequence[tuple[int, int | None, int | None, int, int]], gap: int = 1, base: int = 0
) -> list[Record]:
    """For each shape: how many records, the sizes of keys and values, milliseconds between two, headers of each."""
    rnd, out, offset, time = random.Random(1), list[Record](), base, NOW
    for count, key, value, step, headers in shapes:
        for _ in range(count):
            first, second = (None if size is None else rnd.randbytes(size) for size in (key, value))
            out.append((offset, time, first, second, [(b"h", b"v")] * headers))
            offset, time = offset + gap, time + step
    return out


@pytest.fixture(autouse=True)
def found(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records each table has that is read as a whole."""
    filled, sizes = alike.fill, list[int]()

    def counting(some: alike.Records, size: int, head: alike.Head) -> bool:
        done = filled(some, size, head)
        sizes.append(len(some.starts) if done else 0)
        return done

    monkeypatch.setattr(alike, "fill", counting)
    return sizes


@settings(max_examples=60)
@given(
    shapes=st.lists(SHAPES, min_size=1, max_size=5),
    batches=st.integers(1, 3),
    gap=st.sampled_from((1, 1, 1, 3)),
    codec=st.sampled_from((codecs.NONE, codecs.NONE, codecs.LZ4)),
    appended=st.sampled_from((None, None, NOW + 5)),
    rows=st.sampled_from((70, 50_000)),
    views=st.booleans(),
)
def test_records_of_any_shapes_are_read(
    shapes: Sequence[tuple[int, int | None, int | None, int, int]],
    batches: int,
    gap: int,
    codec: int,
    appended: int | None,
    rows: int,
    views: bool,
) -> None:
    log = Log()
    for _ in range(batches):
        log.batch([record[1:] for record in records(shapes)], codec, appended, gap=gap - 1)
    assert read(log, rows=rows, views=views) == log.rows(0, log.next_offset, True)


@settings(max_examples=150)
@given(
    shape=SHAPES.filter(lambda shape: (shape[2] or 0) < 8000),
    damage=st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 255)), min_size=1, max_size=3),
    near=st.integers(0, 16),
    appended=st.booleans(),
)
def test_damage_among_records_of_one_shape_is_an_error_or_reads_as_the_reference_reader_does(
    shape: tuple[int, int | None, int | None, int, int], damage: Sequence[tuple[float, int]], near: int, appended: bool
) -> None:
    """Most bytes are values, so the damage is near the start of a record. `appended`: the batch has the time."""
    built = with_append_time(batch_v2.build(records([shape], base=100)), appended)
    batch, starts = bytearray(built), [one.start for one in _places(built)]
    for share, byte in damage:
        at = starts[int(share * len(starts))] + near
        batch[min(HEADER_SIZE + at, len(batch) - 1)] = byte
    chunk = Chunk(bytes(batch), (), 0)
    try:
        expected = slow_rows(bytes(batch))
    except (RecordError, OnlyHere):
        with pytest.raises(PipelineError, match=r"at offset [12]"):
            shown(arrow.batches([chunk], EVERYTHING, names=ALL, check_crcs=False))
        return
    assert shown(arrow.batches([chunk], EVERYTHING, names=ALL, check_crcs=False)) == expected


def with_append_time(batch: bytes, appended: bool = True) -> bytes:
    """The batch as a broker stores it that sets the time and leaves records as they are."""
    return batch[:22] + bytes((batch[22] | TIMESTAMP_TYPE * appended,)) + batch[23:]


@pytest.mark.parametrize(
    ("usual", "place", "other"),
    [
        ((640, b"p" * 56, b"v" * 20), 7, (3, b"p" * 57, b"v" * 20)),
        ((3, b"abcde", b"v" * 20), 5, (640, b"abcd", b"v" * 20)),
        ((3, b"abcde", b"v" * 20), 5, (640, b"abcde", b"v" * 19)),
    ],
)
def test_a_time_of_another_width_moves_what_follows_it(
    usual: tuple[int, bytes, bytes], place: int, other: tuple[int, bytes, bytes]
) -> None:
    """Also where the batch has the time of all records: producers choose the times in them."""
    rows = [usual] * place + [other] + [usual] * (59 - place)
    batch = with_append_time(
        _batch([_record(at, time, _sized(key), value) for at, (time, key, value) in enumerate(rows)])
    )
    found = shown(arrow.batches([Chunk(batch, (), 0)], EVERYTHING, names=ALL, check_crcs=False))
    assert found == slow_rows(batch)


def test_sizes_of_more_than_64_bits_are_an_error_also_in_a_table() -> None:
    """They are not null, in the key of every record."""
    batch = _batch([_record(at, 0, b"\x81" + b"\x80" * 8 + b"\x02", b"v") for at in range(40)])
    with pytest.raises(PipelineError, match="more than 64 bits"):
        list(arrow.batches([Chunk(batch, (), 0)], EVERYTHING, check_crcs=False))


def _record(at: int, time: int, sized_key: bytes, value: bytes) -> bytes:
    fields = b"\0" + varint.encode(time) + varint.encode(at) + sized_key + _sized(value) + b"\0"
    return _sized(fields)


def _sized(data: bytes) -> bytes:
    return varint.encode(len(data)) + data


def _batch(rows: Sequence[bytes]) -> bytes:
    head = batch_v2.build(records([(len(rows), None, 1, 0, 0)], base=100))[:HEADER_SIZE]
    batch = bytearray(head + b"".join(rows))
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    return bytes(batch)


def _places(batch: bytes) -> list[slice]:
    body, at, out = batch_v2.payload(batch), 0, []
    while at < len(body):
        length, behind = varint.decode(body, at)
        out.append(slice(at, behind + length))
        at = behind + length
    return out


def test_a_batch_of_one_shape_is_read_as_tables(found: list[int]) -> None:
    """The offset delta takes another byte from 64 and from 8192 on."""
    log = Log()
    log.batch([record[1:] for record in records([(9000, 5, 100, 0, 0)])])
    assert read(log) == log.rows(0, log.next_offset, True)
    assert found[0] == 64
    assert sum(found) == 9000 and len(found) < 6


@pytest.mark.parametrize("place", ["timestamp", "key", "value", "headers"])
def test_records_of_one_size_and_other_fields_are_read_one_by_one(found: list[int], place: str) -> None:
    """The length of each record is the same, the lengths in one of them are not."""
    usual = (NOW, b"key", b"v" * 50, ())
    other = {
        "timestamp": (NOW + 100, b"key", b"v" * 49, ()),
        "key": (NOW, b"ke", b"v" * 51, ()),
        "value": (NOW, b"keyv", b"v" * 49, ()),
        "headers": (NOW, b"key", b"v" * 46, ((b"h", b"v"),)),
    }[place]
    log = Log()
    log.batch([usual] * 40 + [other] + [usual] * 9)
    assert read(log) == log.rows(0, log.next_offset, True)
    assert found == [0]


def test_an_offset_outside_of_its_batch_is_an_error_also_in_a_table() -> None:
    batch = bytearray(batch_v2.build(records([(60, None, 100, 0, 0)], base=100)))
    batch[23:27] = (58).to_bytes(4, "big")
    with pytest.raises(PipelineError, match="at offset 100 cannot be read: an offset is outside its batch"):
        list(arrow.batches([Chunk(bytes(batch), (), 0)], EVERYTHING, check_crcs=False))


@pytest.mark.parametrize("cut", [1, 50, 103, 104, 105, 3000])
def test_records_of_one_size_that_end_before_their_number_are_an_error(cut: int) -> None:
    built = batch_v2.build(records([(60, None, 100, 0, 0)], base=100))
    batch = bytearray(built[:-cut])
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    with pytest.raises(PipelineError, match="at offset 100 cannot be read"):
        list(arrow.batches([Chunk(bytes(batch), (), 0)], EVERYTHING, check_crcs=False))


@given(lengths=st.lists(st.tuples(st.integers(1, 200), st.integers(6, 300)), max_size=8), padding=st.booleans())
def test_stretches_start_where_each_record_does(lengths: Sequence[tuple[int, int]], padding: bool) -> None:
    body, starts = bytearray(), []
    for count, length in lengths:
        for _ in range(count):
            starts.append(len(body))
            prefix = varint.encode(length)
            body += (prefix[:-1] + bytes((prefix[-1] | 128, 0)) if padding else prefix) + bytes(length)
    flat = np.frombuffer(b"front" + body, np.uint8)
    found = bulk.marks(flat, 5, len(starts))
    assert found.tolist() == [start + 5 for start in [*starts, len(body)]]
    sizes = [(len(one.starts), one.size) for one in bulk.stretches(flat, 5, len(starts))]
    assert sum(count for count, _ in sizes) == len(starts)
    for count, size in sizes:
        assert not size or count >= bulk.WORTH


@settings(max_examples=60)
@given(
    counts=st.lists(st.integers(0, 130), min_size=bulk.WIDE, max_size=bulk.WIDE + 20),
    same=st.sampled_from((0, 0.5, 1)),
    length=st.sampled_from((6, 40, 63, 64, 100, 8192)),
    seed=st.integers(0, 99),
    damage=st.none() | st.tuples(st.floats(0, 0.999), st.integers(0, 255)),
)
def test_many_batches_are_walked_at_once_to_where_each_record_starts(
    counts: Sequence[int], same: float, length: int, seed: int, damage: tuple[float, int] | None
) -> None:
    """In some of them all records have one size until one is longer, in the others hardly two."""
    rnd, body, bounds, expected = random.Random(seed), bytearray(), [0], []
    for count in counts:
        alike = rnd.random() < same
        for index in range(count):
            size = (length + (index >= 64)) if alike else rnd.choice((6, 7, 63, 64, 70))
            expected.append(len(body))
            body += varint.encode(size) + bytes(size)
        bounds.append(len(body))
    if damage and expected:
        body[expected[int(damage[0] * len(expected))]] = damage[1]
    flat, places = np.frombuffer(bytes(body), np.uint8), np.array(bounds)
    naive = _walked(bytes(body), bounds, counts)
    # Only where batches are walked one by one, their records are refused for being too short already.
    assume(naive is None or all(end - start >= bulk.LEAST_RECORD for start, end in naive))
    if naive is None:
        with pytest.raises((RecordError, IndexError)):
            bulk.walk(flat, places[:-1], places[1:], np.array(counts))
    else:
        first, last = bulk.walk(flat, places[:-1], places[1:], np.array(counts))
        assert first.tolist() == [start for start, _ in naive]
        assert last.tolist() == [end for _, end in naive]


def test_a_first_record_as_long_as_all_others_is_walked_also_at_the_end() -> None:
    """Eight records of its size would end behind all data."""
    one = b"".join(varint.encode(size) + bytes(size) for size in (5000, *[6] * 9))
    flat, places = np.frombuffer(one * bulk.WIDE, np.uint8), np.arange(bulk.WIDE + 1) * len(one)
    first, last = bulk.walk(flat, places[:-1], places[1:], np.full(bulk.WIDE, 10))
    assert first[:4].tolist() == [0, 5002, 5009, 5016]
    assert (last[9::10] == places[1:]).all()


def _walked(body: bytes, bounds: Sequence[int], counts: Sequence[int]) -> list[tuple[int, int]] | None:
    out = []
    for at, stop, count in zip(bounds, bounds[1:], counts, strict=False):
        for _ in range(count):
            try:
                length, behind = varint.decode(body, at)
            except (IndexError, RecordError):
                return None
            if length < 0 or behind + length > stop:
                return None
            out.append((at, behind + length))
            at = behind + length
        if at != stop:
            return None
    return out


@given(
    runs=st.lists(st.tuples(st.integers(1, 60), st.integers(-1, 20), st.integers(0, 9)), min_size=1, max_size=8),
    short=st.booleans(),
)
def test_scattered_bytes_become_an_array(runs: Sequence[tuple[int, int, int]], short: bool) -> None:
    """Of pieces at equal distances and of others, with nulls and empty ones."""
    data, at, sizes = np.frombuffer(random.Random(2).randbytes(60 * 8 * 30 + 9), np.uint8), [], []
    place = 0
    for count, size, gap in runs:
        for index in range(count):
            at.append(place)
            sizes.append(size)
            place += max(size, 0) + gap + (index % 3 if short else 0)
    expected = [
        None if size < 0 else data[start : start + size].tobytes() for start, size in zip(at, sizes, strict=True)
    ]
    for make, kind in ((gather.binary, pa.binary()), (gather.views, pa.binary_view())):
        found = make(data, np.array(at), np.array(sizes))
        found.validate(full=True)
        assert found.type == kind
        assert found.to_pylist() == expected


@given(
    pieces=st.lists(
        st.tuples(st.booleans(), st.sampled_from((-1, -1, 0, 3, 3, 20)), st.lists(st.integers(1, 40), max_size=3)),
        max_size=8,
    ),
    ended=st.integers(0, 8),
)
def test_tables_and_other_pieces_become_one_array(
    pieces: Sequence[tuple[bool, int, Sequence[int]]], ended: int
) -> None:
    """Of one size and of others, with nulls, in any order; `ended`: the piece before which another array begins."""
    data = np.frombuffer(random.Random(3).randbytes(4000), np.uint8)
    for column, kind in (
        (gather.Copies(lambda size: np.empty(size + 100, np.uint8)), pa.binary()),
        (gather.Views(), pa.binary_view()),
    ):
        found, expected = list[bytes | None](), list[bytes | None]()
        for number, (is_table, size, counts) in enumerate(pieces):
            if number == ended:
                found += column.array().to_pylist()
            runs = [gather.Run(at * 7, size + 5, rows) for at, rows in enumerate(counts)]
            starts = np.array([run.at + row * run.step for run in runs for row in range(run.rows)], np.int64)
            if is_table:
                column.add_runs(data, runs, size)
            else:
                starts = np.arange(len(starts)) * 23
                column.add(data, starts, np.full(len(starts), size))
            expected += [None if size < 0 else data[start : start + size].tobytes() for start in starts]
        last = column.array()
        last.validate(full=True)
        assert last.type == kind
        assert found + last.to_pylist() == expected


def test_a_range_within_a_table_is_read() -> None:
    log = Log()
    log.batch([record[1:] for record in records([(300, 5, 100, 0, 0)])])
    log.batch([record[1:] for record in records([(300, 5, 100, 0, 0)])])
    assert read(log, Range(TOPIC, PARTITION, 50, 410)) == log.rows(50, 410, True)
    assert read(log, Range(TOPIC, PARTITION, 50, 410), check_crcs=False) == log.rows(50, 410, True)
    assert whole(log).end == 600


def test_views_end_with_the_data_and_are_of_its_memory() -> None:
    """The last piece has fewer bytes than a view holds itself, and there is nothing behind it."""
    data = np.frombuffer(b"0123456789abcdef" + b"xy", np.uint8)
    found = gather.views(data, np.array([0, 16]), np.array([16, 2]))
    found.validate(full=True)
    assert found.to_pylist() == [b"0123456789abcdef", b"xy"]
    assert found.buffers()[2].address == data.ctypes.data
    assert gather.views(data, np.array([16, 18]), np.array([2, 0])).to_pylist() == [b"xy", b""]


def test_views_keep_what_each_batch_was_read_into() -> None:
    """Also that of compressed batches, which are unpacked into one buffer over and over."""
    log = Log()
    for size, codec in enumerate((codecs.NONE, codecs.LZ4, codecs.ZSTD, codecs.LZ4), 100):
        log.batch([record[1:] for record in records([(70, 20, size, 0, 0)])], codec)
    log.message_set([(NOW, b"k", b"v" * 20, ())] * 2, 1)
    found = list(arrow.batches(log.chunks([1, 1, 1], True), whole(log), rows=70, views=True))
    assert {batch.schema.field("value").type for batch in found} == {pa.binary_view()}
    assert shown(found) == [row._replace(headers=None) for row in log.rows(0, log.next_offset, True)]
