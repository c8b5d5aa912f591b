"""Boundaries of batches; any range of a log has all its records, for every format and codec."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from odradek.pipeline.batches import WholeBatches, checked, whole
from odradek.pipeline.decoding import arrow
from odradek.pipeline.types import Chunk, Range

from ..clients.raw.batches import batch, message, wrapped
from .batches import PARTITION, TOPIC, Log, shown, some_records


def bounds(data: bytes, offset: int, end: int) -> tuple[int, int, int]:
    return whole(data, offset, end)[:3]


def at(offset: int, data: bytes) -> bytes:
    return offset.to_bytes(8, "big") + data[8:]


def test_only_whole_batches_are_read() -> None:
    three, next_three = batch([b"a", b"b", b"c"]), at(3, batch([b"d", b"e", b"f"]))
    size = len(three)
    assert whole(three + next_three[:-1], 0, 100) == WholeBatches(0, size, 3, size, [])
    assert whole(three[:-1], 0, 100) == WholeBatches(0, 0, 0, size, [])
    assert bounds(three[:13], 0, 100) == bounds(b"", 0, 100) == (0, 0, 0)


def test_batches_outside_the_range_are_skipped() -> None:
    two, next_two = batch([b"a", b"b"]), at(2, batch([b"c", b"d"]))
    size = len(two)
    assert bounds(two + next_two, 0, 2) == bounds(two + next_two, 0, 1) == (0, size, 2)
    assert whole(two + bytes(99), 0, 1, behind=False)[:3] == (0, size, 2)
    assert bounds(two + next_two, 2, 9) == (size, 2 * size, 4)


def test_holes_are_found_between_batches() -> None:
    """Before the first batch, between two, and up to the end, which the following batch proves."""
    one, two, three = (at(offset, batch([b"a"] * 2)) for offset in (4, 9, 20))
    size = len(one)
    assert whole(three, 3, 7) == WholeBatches(0, 0, 7, 0, [(3, 7)], True)
    assert whole(one + two + three, 3, 15) == WholeBatches(0, 2 * size, 15, 0, [(3, 4), (6, 9), (11, 15)], True)
    assert whole(one + two + three, 4, 6) == WholeBatches(0, size, 6, 0, [(6, 9)], True)
    assert whole(one + two, 9, 11) == WholeBatches(size, 2 * size, 11, 0, [], False)
    assert whole(one + two, 5, 10).holes == [(6, 9)]
    assert whole(one + two, 7, 10).holes == [(7, 9)]


@pytest.mark.parametrize("second", [0, 3, 4, 5, -1])
def test_decreasing_offsets_are_damage(second: int) -> None:
    """Wherever the range begins: also if the second batch would be skipped."""
    one, two = at(4, batch([b"a"] * 2)), at(second & ((1 << 64) - 1), batch([b"b"] * 2))
    for start in (0, 4, 5):
        with pytest.raises(ValueError, match="damaged"):
            whole(one + two, start, 9)
    with pytest.raises(ValueError, match=f"offset {second} where 6 is expected"):
        whole(one + two, 4, 6)
    if second >= 0:
        assert whole(two, second, second + 2, least=second).holes == []
        with pytest.raises(ValueError, match=f"where {second + 1} is expected"):
            whole(two, second + 1, second + 2, least=second + 1)


def test_checksums_are_verified() -> None:
    one, two = at(4, batch([b"a"] * 2)), at(6, batch([b"b"] * 2))
    assert list(checked(one + two + one[:40])) == [(4, 6), (6, 8)]
    with pytest.raises(ValueError, match="damaged: batch with offset 4 after offset 7"):
        list(checked(two + one))
    with pytest.raises(ValueError, match="damaged: batch with offset 6"):
        list(checked(one + two[:-1] + b"x"))


@pytest.mark.parametrize("length", [0, -12, 13])
def test_invalid_batch_length_is_damage(length: int) -> None:
    data = at(5, batch([b"a"]))
    with pytest.raises(ValueError, match="damaged after offset 4"):
        whole(data[:8] + length.to_bytes(4, "big", signed=True) + data[12:], 5, 9)


@pytest.mark.parametrize("magic", [0, 1])
def test_boundaries_of_old_message_formats(magic: int) -> None:
    """The smallest message, and a wrapper, whose offset is that of its last message."""
    small = message(None, magic=magic, offset=6)
    assert bounds(small, 0, 100) == (0, len(small), 7)
    packed = wrapped([b"a", b"b", b"c"], "gzip", magic=magic)
    assert bounds(packed + small, 0, 100) == (0, len(packed) + len(small), 7)
    assert bounds(packed, 0, 100) == (0, len(packed), 3)


def test_hole_before_a_compressed_message_set_is_not_seen() -> None:
    """A wrapper has no first offset. An uncompressed message has one, so a hole before it is found."""
    packed = at(9, wrapped([b"a", b"b", b"c"], "gzip", magic=1))
    assert whole(packed, 0, 10).holes == []
    assert whole(message(b"a", magic=1, offset=9), 0, 10).holes == [(0, 9)]


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_every_range_has_all_its_records(magic: int, codec: int) -> None:
    log, rnd = Log(), random.Random(magic)
    for count in (10, 1, 3):
        records = [(*record[:3], ()) for record in some_records(rnd, count)]
        log.batch(records, codec) if magic == 2 else log.message_set(records, magic, codec)
    data = b"".join(part.data for part in log.parts)
    for start, end in combinations(range(log.next_offset + 1), 2):
        begin, upto, until, _, holes, _ = whole(data, start, end)
        found = shown(
            arrow.batches(
                [Chunk(data[begin:upto], (), until)],
                Range(TOPIC, PARTITION, start, end),
                arrow.SCHEMA_WITH_HEADERS.names,
            )
        )
        assert until >= end and found == log.rows(start, end, committed=False), (start, end)
        assert not holes, (start, end)
