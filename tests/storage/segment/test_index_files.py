import itertools
import os
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.storage.files import names
from odradek.storage.segment import index_files
from odradek.storage.segment.index_files import IndexBuilder
from tests.storage.written import offset_entry, time_entry


def test_entries_come_after_more_than_the_interval() -> None:
    builder = IndexBuilder(100, 10)
    for offset, position, timestamp in [
        (101, 0, 5),
        (103, 10, 4),
        (105, 11, 9),
        (107, 20, 8),
        (109, 22, 8),
        (111, 23, 9),
    ]:
        builder.add(offset, position, timestamp)
    assert list(struct.iter_unpack(">ii", builder.offsets)) == [(5, 11), (9, 22)]
    assert list(struct.iter_unpack(">qi", builder.times)) == [(9, 5)]
    assert (builder.max_timestamp, builder.max_offset) == (9, 105)
    builder.add(113, 24, 12)
    builder.close()
    builder.close()
    assert list(struct.iter_unpack(">qi", builder.times)) == [(9, 5), (12, 13)]


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 300), st.integers(-1, 1000)), max_size=60), st.integers(0, 500)
)
def test_both_indexes_rise_and_no_gap_is_longer_than_the_interval_and_a_batch(
    batches: list[tuple[int, int, int]], interval: int
) -> None:
    builder, offset, position = IndexBuilder(0, interval), 0, 0
    for step, size, timestamp in batches:
        offset += step
        builder.add(offset, position, timestamp)
        position += size
    builder.close()
    offsets = list(struct.iter_unpack(">ii", builder.offsets))
    times = list(struct.iter_unpack(">qi", builder.times))
    for entries in (offsets, times):
        assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(entries))
    positions = [0, *(position for _, position in offsets)]
    assert all(b - a > interval for a, b in itertools.pairwise(positions))
    assert max((t for _, _, t in batches), default=-1) == (times[-1][0] if times else -1)


def write(tmp_path: Path, offsets: bytes, times: bytes) -> None:
    names.segment_path(tmp_path, 5, names.INDEX).write_bytes(offsets)
    names.segment_path(tmp_path, 5, names.TIME_INDEX).write_bytes(times)


OFFSETS = offset_entry(5, 8, 4100) + offset_entry(5, 20, 8300)
TIMES = time_entry(5, 1000, 8) + time_entry(5, 1003, 19)


@pytest.mark.parametrize("tail", [0, 8, 24, 10_000_000 // 24 * 24])
def test_trailing_zeros_of_a_crashed_kafka_are_no_entries(tmp_path: Path, tail: int) -> None:
    write(tmp_path, OFFSETS + bytes(tail), TIMES + bytes(tail))
    assert index_files.read_offset_index(names.segment_path(tmp_path, 5, names.INDEX), 5) == [(8, 4100), (20, 8300)]
    assert index_files.read_time_index(names.segment_path(tmp_path, 5, names.TIME_INDEX), 5) == [(1000, 8), (1003, 19)]


def test_an_entry_that_ends_in_zeros_is_kept_whole() -> None:
    entry = offset_entry(0, 3, 256)
    assert index_files.trim_zeros(entry + bytes(16), index_files.OFFSET_ENTRY) == entry


@pytest.mark.parametrize(
    ("offsets", "times", "right"),
    [
        (OFFSETS, TIMES, True),
        (b"", b"", True),
        (OFFSETS + bytes(8), TIMES, False),
        (OFFSETS + b"x", TIMES, False),
        (OFFSETS, TIMES[:-1], False),
        (OFFSETS, TIMES + bytes(12), False),
        (b"", bytes(12), True),
        (b"", bytes(24), False),
        (offset_entry(5, 30, 100), TIMES, False),
        (offset_entry(5, 8, 9000), TIMES, False),
        (OFFSETS, time_entry(5, 1, 4), False),
    ],
)
def test_quick_check_of_a_sealed_segment(tmp_path: Path, offsets: bytes, times: bytes, right: bool) -> None:
    write(tmp_path, offsets, times)
    assert index_files.indexes_look_right(tmp_path, 5, 9000, 25) is right
    os.unlink(names.segment_path(tmp_path, 5, names.TIME_INDEX))
    assert not index_files.indexes_look_right(tmp_path, 5, 9000, 25)


def test_largest_timestamp_is_the_files_mtime_without_timestamps(tmp_path: Path) -> None:
    write(tmp_path, OFFSETS, TIMES)
    log = names.segment_path(tmp_path, 5)
    log.touch()
    os.utime(log, (50, 50))
    assert index_files.largest_timestamp(tmp_path, 5) == 1003
    write(tmp_path, OFFSETS, b"")
    assert index_files.largest_timestamp(tmp_path, 5) == 50_000
