"""numpy finds the same records as the reference reader of `protocol.records`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.pipeline.decoding import bodies, columns
from odradek.pipeline.decoding.bodies import Bodies, Unpacker
from odradek.pipeline.decoding.selection import Batches, OldMessages, Selection
from odradek.pipeline.types import Chunk, Range
from odradek.protocol.records import batch_v2, bulk, codecs, varint
from odradek.protocol.records.batch_v2 import Record
from odradek.protocol.records.errors import RecordError

from ..protocol.records.strategies import mixed, plain, record_lists

Found = tuple[int, int, bytes | None, bytes | None]
EVERYTHING = Range("t", 0, 0, 1 << 62)
NUMBERS = st.one_of(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-70, 70), st.integers(-9000, 9000))


def found(*batches: bytes, rows: int = 50_000) -> list[Bodies]:
    """Copies of the groups, because the buffer of unpacked batches is reused."""
    (whole,) = Selection(EVERYTHING).of(Chunk(b"".join(batches), (), 0))
    assert not isinstance(whole, OldMessages)
    whole = whole if isinstance(whole, Batches) else whole.since(0)
    return [group._replace(data=group.data.copy()) for group in Unpacker(1 << 20).of(whole, rows)]


def fast(*batches: bytes, rows: int = 50_000) -> list[Found]:
    """(offset, ms, key, value) of every record."""
    out: list[Found] = []
    for group in found(*batches, rows=rows):
        for some in columns.records(group, rows):
            keys, values = (
                _bytes(some.data, some.keys, some.key_sizes),
                _bytes(some.data, some.values, some.value_sizes),
            )
            out += zip(some.offsets.tolist(), some.times.tolist(), keys, values, strict=True)
    return out


def _bytes(data: np.ndarray, at: np.ndarray, sizes: np.ndarray) -> list[bytes | None]:
    pairs = zip(at.tolist(), sizes.tolist(), strict=True)
    return [None if size < 0 else data[start : start + size].tobytes() for start, size in pairs]


def slow(*batches: bytes) -> list[Found]:
    return [record[:4] for one in batches for record in batch_v2.iterate(one)]


@given(numbers=st.lists(NUMBERS, min_size=1, max_size=20))
def test_varints_of_any_length(numbers: list[int]) -> None:
    encoded = [varint.encode(number) for number in numbers]
    starts = np.cumsum([0, *map(len, encoded)])
    values, after = bulk.varints(np.frombuffer(b"".join(encoded), np.uint8), starts[:-1])
    assert values.tolist() == numbers
    assert after.tolist() == starts[1:].tolist()


@given(number=st.integers(-70, 70), padding=st.integers(1, 8))
def test_padded_varints_are_decoded(number: int, padding: int) -> None:
    short = varint.encode(number)
    long = short[:-1] + bytes((short[-1] | 128,)) + b"\x80" * (padding - 1) + b"\0"
    values, after = bulk.varints(np.frombuffer(long, np.uint8), np.array([0]))
    assert (values[0], after[0]) == varint.decode(long, 0)


def test_varints_too_long_or_truncated_are_an_error() -> None:
    with pytest.raises(RecordError):
        bulk.varints(np.frombuffer(b"\xff" * 9 + b"\2", np.uint8), np.array([0]))
    with pytest.raises(IndexError):
        bulk.varints(np.frombuffer(b"\xff" * 9, np.uint8), np.array([0]))


@given(records=record_lists(), codec=st.integers(0, 4), appended=st.booleans(), rows=st.integers(1, 13))
def test_records_of_one_batch(records: list[Record], codec: int, appended: bool, rows: int) -> None:
    kind = {"timestamp_type": batch_v2.LOG_APPEND_TIME, "append_time": 17} if appended else {}
    batch = batch_v2.build(records, codec=codec, **kind)
    assert fast(batch, rows=rows) == slow(batch)


@pytest.mark.parametrize("batches", [2, bulk.WIDE - 1, bulk.WIDE, 3 * bulk.WIDE])
@pytest.mark.parametrize("codec", [codecs.NONE, codecs.LZ4])
def test_records_of_batches_of_very_different_length(batches: int, codec: int) -> None:
    """A few long batches among many short ones; decoded together, or one by one when few are left."""
    built, base = [], 0
    for index in range(batches):
        records = mixed(300 if index % 50 == 7 else index % 5 + 1, base=base)
        base = records[-1][0] + 1
        built.append(batch_v2.build(records, codec=codec))
    assert len(found(*built)) == 1
    assert fast(*built) == slow(*built)


def test_headers_begin_where_the_value_ends() -> None:
    records = mixed(30)
    (group,) = found(batch_v2.build(records))
    (some,) = columns.records(group, 100)
    assert some.header_counts.tolist() == [len(record[4]) for record in plain(records)]
    assert (some.headers <= some.ends).all()
    assert (some.starts[1:] == some.ends[:-1]).all()


def test_groups_of_batches_end_at_their_size_limits() -> None:
    """By the number of records, by bytes, and where plain batches meet compressed ones."""
    few = [batch_v2.build([(i, 0, None, b"v", ())]) for i in range(10)]
    assert [len(group.heads) for group in found(*few, rows=4)] == [4, 4, 2]
    packed = [batch_v2.build([(i, 0, None, b"v", ())], codec=codecs.SNAPPY) for i in range(10, 13)]
    last = batch_v2.build([(13, 0, None, b"v", ())])
    assert [len(group.heads) for group in found(*few, *packed, last)] == [10, 3, 1]
    assert fast(*few, *packed, last) == slow(*few, *packed, last)
    value = b"v" * 900_000
    long = [batch_v2.build([(i, 0, None, value, ())], codec=codecs.ZSTD) for i in range(30)]
    assert [len(group.heads) for group in found(*long)] == [19, 11]
    assert 18 * len(value) < bodies.ENOUGH < 19 * len(value)
    long = [batch_v2.build([(i, 0, None, value, ())]) for i in range(30)]
    assert [len(group.heads) for group in found(*long)] == [18, 12]


def test_a_batch_with_more_records_than_rows_comes_in_parts() -> None:
    batch = batch_v2.build(mixed(95))
    (group,) = found(batch, rows=10)
    assert [len(some.starts) for some in columns.records(group, 10)] == [10] * 9 + [5]
    assert fast(batch, rows=10) == slow(batch)


def test_decompression_limit_holds_for_each_batch() -> None:
    """Even if other batches leave room in the buffer."""
    fine = batch_v2.build([(0, 0, None, b"v" * 900_000, ())], codec=codecs.ZSTD)
    large = batch_v2.build([(1, 0, None, b"v" * ((1 << 20) + 1), ())], codec=codecs.ZSTD)
    with pytest.raises(bodies.BrokenBatch) as caught:
        found(fine, large)
    assert caught.value.offset == 1


def test_bytes_of_a_former_batch_in_the_buffer_are_not_read() -> None:
    """A truncated compressed batch, in a buffer that held a longer one before."""
    log = batch_v2.build(mixed(30), codec=codecs.LZ4)
    head = batch_v2.header(log)
    body = batch_v2.payload(log)[:-3]
    short = bytearray(batch_v2.repack(head._replace(base_offset=30), body, codecs.LZ4))
    unpacker = Unpacker(1 << 20)
    for index, batch in enumerate((log, bytes(short))):
        (whole,) = Selection(EVERYTHING).of(Chunk(batch, (), 0))
        assert isinstance(whole, Batches)
        (group,) = unpacker.of(whole, 100)
        if index:
            with pytest.raises(RecordError):
                list(columns.records(group, 100))
        else:
            assert sum(len(some.starts) for some in columns.records(group, 100)) == 30
