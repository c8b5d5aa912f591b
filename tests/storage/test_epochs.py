from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from odradek.storage.checkpoints import CheckpointError
from odradek.storage.epochs import EpochCache

ASSIGNMENTS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 60)), max_size=20)


def test_assigning_the_newest_word_wins() -> None:
    cache = EpochCache([(0, 0), (2, 10), (4, 20)])
    assert not cache.assign(4, 25)
    assert cache.assign(4, 15)
    assert cache.entries == ((0, 0), (2, 10), (4, 15))
    assert cache.assign(3, 8)
    assert cache.entries == ((0, 0), (3, 8))
    with pytest.raises(ValueError, match="-1"):
        cache.assign(-1, 0)


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [(-1, (-1, -1)), (5, (-1, -1)), (4, (4, 100)), (3, (2, 20)), (2, (2, 20)), (1, (1, 10)), (0, (0, 5))],
)
def test_end_offset_as_kafka_answers(epoch: int, answer: tuple[int, int]) -> None:
    assert EpochCache([(1, 5), (2, 10), (4, 20)]).end_offset(epoch, 100) == answer


def test_end_offset_without_epochs() -> None:
    for epoch in (0, -1, -2, 1 << 31):
        assert EpochCache().end_offset(epoch, 10) == (-1, -1)


def test_truncation() -> None:
    cache = EpochCache([(0, 0), (2, 10), (4, 20)])
    assert not cache.truncate_from_end(21)
    assert cache.truncate_from_end(20)
    assert cache.entries == ((0, 0), (2, 10))
    assert cache.truncate_from_start(15)
    assert cache.entries == ((2, 15),)
    assert not cache.truncate_from_start(15)
    assert not cache.truncate_from_start(3)


@given(ASSIGNMENTS)
def test_both_columns_rise_whatever_is_assigned(pairs: list[tuple[int, int]]) -> None:
    entries = EpochCache(pairs).entries
    assert list(entries) == sorted(set(entries))
    assert len({start for _, start in entries}) == len(entries)


@given(ASSIGNMENTS, st.integers(0, 60), st.integers(0, 60))
def test_truncation_changes_no_epoch_of_an_offset_that_stays(
    pairs: list[tuple[int, int]], start: int, end: int
) -> None:
    before, after = EpochCache(pairs), EpochCache(pairs)
    after.truncate_from_end(end)
    after.truncate_from_start(start)
    for offset in range(start, end):
        assert after.epoch_of(offset) == before.epoch_of(offset)


def test_the_file(tmp_path: Path) -> None:
    cache = EpochCache([(0, 0), (7, 1042)])
    cache.write(tmp_path)
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n7 1042\n"
    assert EpochCache.read(tmp_path).entries == cache.entries
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n1\n0\n")
    with pytest.raises(CheckpointError):
        EpochCache.read(tmp_path)
