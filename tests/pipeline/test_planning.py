"""Planning: no offset is lost or read twice, limits are kept and shared fairly, and lost offsets are reported."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.pipeline.errors import DataLoss, OptionError
from odradek.pipeline.reading import planning
from odradek.pipeline.reading.losses import Loss, between, report, within
from odradek.pipeline.types import Partition, Range

A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)
PARTITION = st.tuples(st.sampled_from("abc"), st.integers(0, 4))
SIZES = st.one_of(st.integers(0, 5), st.integers(0, 300), st.integers(0, 2**40))
BACKLOG = st.dictionaries(PARTITION, st.tuples(st.integers(0, 2**50), SIZES), max_size=12)


def starts_and_ends(backlog: dict[Partition, tuple[int, int]]) -> tuple[dict[Partition, int], dict[Partition, int]]:
    """Two maps of offsets from (start, size) pairs."""
    return {key: start for key, (start, _) in backlog.items()}, {key: sum(both) for key, both in backlog.items()}


def steps(start: dict[Partition, int], end: dict[Partition, int]) -> dict[Partition, int]:
    """The number of offsets that each partition advances."""
    return {key: end[key] - start[key] for key in end}


@given(BACKLOG, st.integers(1, 10_000))
def test_a_limit_is_kept_and_shared_in_proportion(backlog: dict[Partition, tuple[int, int]], most: int) -> None:
    start, available = starts_and_ends(backlog)
    step, size = steps(start, planning.limited(start, available, most)), steps(start, available)
    waiting, total = [key for key in size if size[key]], sum(size.values())
    assert sum(step.values()) <= max(most, len(waiting))
    for key in waiting:
        assert 1 <= step[key] <= size[key]
        assert step[key] <= max(1, most * size[key] / total)
    by_size = sorted(waiting, key=lambda key: size[key])
    assert all(step[less] <= step[more] for less, more in pairwise(by_size))
    assert {key: step[key] for key in step if not size[key]} == {key: 0 for key in size if not size[key]}


@given(BACKLOG, st.integers(1, 10_000))
def test_proportional_shares_equal_sparks(backlog: dict[Partition, tuple[int, int]], most: int) -> None:
    start, available = starts_and_ends({key: both for key, both in backlog.items() if both[1]})
    size = steps(start, available)
    total = sum(size.values())
    if all(most * each >= total for each in size.values()) and total > most:
        step = steps(start, planning.limited(start, available, most))
        assert step == {key: most * each // total for key, each in size.items()}


@given(st.dictionaries(PARTITION, st.tuples(st.integers(0, 99), st.integers(0, 60)), max_size=12), st.integers(1, 50))
def test_limited_batches_read_the_whole_backlog(backlog: dict[Partition, tuple[int, int]], most: int) -> None:
    at, available = starts_and_ends(backlog)
    for _ in range(sum(size for _, size in backlog.values())):
        at = planning.limited(at, available, most)
    assert at == available


def test_small_partitions_are_not_starved_by_the_limit() -> None:
    """The case of Spark's own tests: 101, 11 and 1 offsets are available, the limit is ten."""
    start = {A0: 100, A1: 10, B0: 1}
    assert planning.limited(start, {A0: 201, A1: 21, B0: 2}, 10) == {A0: 108, A1: 11, B0: 2}


def test_one_offset_for_each_partition_does_not_exceed_the_limit() -> None:
    start = {A0: 0, A1: 0, B0: 0}
    assert planning.limited(start, {A0: 1_000_000, A1: 1, B0: 1}, 3) == {A0: 1, A1: 1, B0: 1}


def test_limit_applies_only_to_its_partitions() -> None:
    available = {A0: 50, A1: 3, B0: 9}
    assert planning.limited({A0: 0, A1: 7}, available, None) == available
    assert planning.limited({A0: 0, A1: 7}, available, 10) == {A0: 10, A1: 3, B0: 9}


@pytest.mark.parametrize(
    ("waiting", "least", "waited_ms", "waits"),
    [(5, None, 0, False), (5, 6, None, False), (5, 6, 999, True), (6, 6, 0, False), (0, 6, 1000, False)],
)
def test_batch_waits_for_min_offsets_up_to_max_delay(
    waiting: int, least: int | None, waited_ms: float | None, waits: bool
) -> None:
    assert planning.delayed(waiting, least, waited_ms, max_delay_ms=1000) is waits


def test_pending_offsets_are_counted() -> None:
    assert planning.pending({A0: 5, A1: 9}, {A0: 15, A1: 3, B0: 7}) == 17


RANGES = st.dictionaries(PARTITION, st.tuples(st.integers(0, 2**50), st.integers(0, 2000)), max_size=6).map(
    lambda found: [Range(*key, start, start + size) for key, (start, size) in found.items()]
)


@given(
    RANGES,
    st.dictionaries(PARTITION, st.integers(0, 10_000)),
    st.none() | st.integers(1, 300),
    st.integers(100, 1 << 30),
    st.none() | st.integers(1, 5000),
)
def test_splits_cover_each_range_once(
    ranges: list[Range],
    sizes: dict[Partition, int],
    min_partitions: int | None,
    split_bytes: int,
    max_records: int | None,
) -> None:
    pieces = planning.split(ranges, sizes, min_partitions, split_bytes, max_records)
    whole = [each for each in ranges if each.size]
    for each in whole:
        mine = [piece for piece in pieces if piece.key == each.key]
        assert (mine[0].start, mine[-1].end) == (each.start, each.end)
        assert all(one.end == other.start for one, other in pairwise(mine))
        assert all(piece.size > 0 for piece in mine)
        assert max(piece.size for piece in mine) - min(piece.size for piece in mine) <= 1
        assert len(mine) >= min(each.size, sizes.get(each.key, 0) / split_bytes)
    assert {piece.key for piece in pieces} == {each.key for each in whole}
    assert all(piece.size <= (max_records or piece.size) for piece in pieces)
    assert len(pieces) >= min(min_partitions or 0, sum(each.size for each in whole))


@given(RANGES, st.integers(1, 300))
def test_pieces_do_not_exceed_min_partitions(ranges: list[Range], min_partitions: int) -> None:
    pieces = planning.split(ranges, {}, min_partitions, 1, None)
    whole = [each for each in ranges if each.size]
    assert len(pieces) == max(len(whole), min(min_partitions, sum(each.size for each in whole)))
    parts = [(each.size, sum(piece.key == each.key for piece in pieces)) for each in whole]
    largest = max((size / count for size, count in parts), default=0)
    assert all(size / (count - 1) >= largest for size, count in parts if count > 1)


def test_the_largest_range_is_split() -> None:
    ranges = [Range("a", 0, 0, 100), Range("b", 0, 10, 20)]
    assert planning.split(ranges, {}, 3, 1, None) == [
        Range("a", 0, 0, 50),
        Range("a", 0, 50, 100),
        Range("b", 0, 10, 20),
    ]


def test_split_satisfies_min_partitions_and_max_records() -> None:
    whole = [Range("a", 0, 0, 100), Range("b", 0, 0, 5)]
    assert len(planning.split(whole, {}, 11, 1, 10)) == 11
    assert len(planning.split(whole, {}, 13, 1, 10)) == 13


def test_a_large_backlog_is_split_by_its_bytes() -> None:
    whole = Range("a", 0, 0, 1000)
    sizes = planning.weigh([whole], {A0: 4000}, {A0: 0}, {A0: 2000})
    assert sizes == {A0: 2000}
    assert len(planning.split([whole], sizes, None, 600, None)) == 4


def test_a_split_has_at_least_one_record() -> None:
    pieces = planning.split([Range("a", 0, 7, 9)], {A0: 1000}, None, 10, None)
    assert pieces == [Range("a", 0, 7, 8), Range("a", 0, 8, 9)]


def test_bytes_of_a_range_are_its_share_of_the_log() -> None:
    ranges = [Range("a", 0, 30, 40), Range("a", 1, 0, 0), Range("b", 0, 0, 9)]
    assert planning.weigh(ranges, {A0: 1000, A1: 5}, {A0: 20, A1: 0, B0: 0}, {A0: 120, A1: 0, B0: 9}) == {A0: 100}


def test_batch_with_its_start_after_its_end_is_refused() -> None:
    assert planning.batch({B0: 3, A0: 5, A1: 7}, {B0: 9, A0: 6, A1: 7}) == [Range("a", 0, 5, 6), Range("b", 0, 3, 9)]
    with pytest.raises(OptionError, match="a-1: the start 8 is after the end 7"):
        planning.batch({A0: 5, A1: 8}, {A0: 6, A1: 7})


@pytest.mark.parametrize(
    ("start", "end", "first", "ranges", "losses"),
    [
        ({A0: 5}, {A0: 9}, {A0: 0}, [Range("a", 0, 5, 9)], []),
        ({A0: 5}, {A0: 5}, {A0: 9}, [], []),
        ({A0: 5}, {A0: 9, A1: 4}, {A0: 0, A1: 0}, [Range("a", 0, 5, 9), Range("a", 1, 0, 4)], []),
        (
            {A0: 5},
            {A0: 9, A1: 4},
            {A0: 0, A1: 3},
            [Range("a", 0, 5, 9), Range("a", 1, 3, 4)],
            [Loss("a-1: offsets 0 to 2 are gone; the log starts at 3", 3)],
        ),
        (
            {A0: 5},
            {A0: 9},
            {A0: 7},
            [Range("a", 0, 7, 9)],
            [Loss("a-0: offsets 5 to 6 are gone; the log starts at 7", 2)],
        ),
        ({A0: 5}, {A0: 9}, {A0: 12}, [], [Loss("a-0: offsets 5 to 8 are gone; the log starts at 12", 4)]),
        (
            {A0: 5, B0: 3},
            {A0: 9},
            {A0: 0},
            [Range("a", 0, 5, 9)],
            [Loss("b-0 was deleted; it had been read up to offset 3", 0)],
        ),
        ({A0: 5}, {A0: 9}, {}, [], [Loss("a-0 was deleted before its offsets 5 to 8 were read", 4)]),
        ({}, {A0: 9}, {}, [], [Loss("a-0 was deleted before its offsets 0 to 8 were read", 9)]),
        ({A0: 5}, {A0: 5}, {}, [], []),
        ({A0: 9}, {A0: 5}, {}, [], [Loss("a-0 was read up to offset 9 and now ends at 5", 0)]),
        ({A0: 9}, {A0: 5}, {A0: 2}, [], [Loss("a-0 was read up to offset 9 and now ends at 5", 3)]),
    ],
)
def test_ranges_and_losses_between_two_stream_offsets(
    start: dict[Partition, int],
    end: dict[Partition, int],
    first: dict[Partition, int],
    ranges: list[Range],
    losses: list[Loss],
) -> None:
    assert between(start, end, first) == (ranges, losses)


@pytest.mark.parametrize(
    ("wanted", "kept", "told", "count"),
    [
        ((3, 10), [(3, 10)], [], 0),
        ((0, 9), [(3, 9)], ["a-0: offsets 0 to 2 are gone; the log starts at 3"], 3),
        ((5, 15), [(5, 10)], ["a-0: offsets 10 to 14 do not exist; the log ends at 10"], 5),
        (
            (0, 15),
            [(3, 10)],
            [
                "a-0: offsets 0 to 2 are gone; the log starts at 3",
                "a-0: offsets 10 to 14 do not exist; the log ends at 10",
            ],
            8,
        ),
        ((12, 15), [], ["a-0: offsets 12 to 14 do not exist; the log ends at 10"], 3),
        ((0, 2), [], ["a-0: offsets 0 to 1 are gone; the log starts at 3"], 2),
    ],
)
def test_ranges_are_limited_to_the_offsets_of_the_log(
    wanted: tuple[int, int], kept: list[tuple[int, int]], told: list[str], count: int
) -> None:
    found, losses = within([Range("a", 0, *wanted)], {A0: 3}, {A0: 10})
    assert found == [Range("a", 0, *each) for each in kept]
    assert [loss.text for loss in losses] == told
    assert report(losses, fail=False) == count


def test_loss_is_reported_in_one_line() -> None:
    assert report([], fail=True) == 0
    losses = [Loss(f"a-{i} was deleted; it had been read up to offset 3", 2) for i in range(12)]
    assert report(losses, fail=False) == 24
    with pytest.raises(DataLoss) as caught:
        report(losses, fail=True)
    assert "a-9 was deleted; it had been read up to offset 3; and 2 more (with failOnDataLoss=false" in str(
        caught.value
    )
    assert "\n" not in str(caught.value)
