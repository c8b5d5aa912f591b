from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.storage.files.checkpoints import CheckpointError
from odradek.storage.segment.epochs import EpochCache, UnknownEpoch, common_end, diverges

ASSIGNMENTS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 60)), max_size=20)


def test_newest_assignment_of_an_epoch_wins() -> None:
    cache = EpochCache([(0, 0), (2, 10), (4, 20)])
    assert not cache.assign(4, 25)
    assert cache.assign(4, 15)
    assert cache.entries == ((0, 0), (2, 10), (4, 15))
    assert cache.assign(3, 8)
    assert list(cache.entries) == [(0, 0), (3, 8)]
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
    assert list(cache.entries) == [(2, 15)]
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


def test_epoch_file_round_trip(tmp_path: Path) -> None:
    cache = EpochCache([(0, 0), (7, 1042)])
    cache.write(tmp_path)
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n7 1042\n"
    assert EpochCache.read(tmp_path).entries == cache.entries
    for line in ("0", "-1 0", "0 -1", f"{1 << 31} 0", f"0 {1 << 63}"):
        (tmp_path / "leader-epoch-checkpoint").write_text(f"0\n1\n{line}\n")
        with pytest.raises(CheckpointError):
            EpochCache.read(tmp_path)


# --- where two logs part


def test_what_a_leader_answers_a_follower() -> None:
    cache = EpochCache([(1, 5), (2, 10), (4, 20)])
    assert diverges(cache, 4, 30, 30) is None
    assert diverges(cache, 4, 31, 30) == (4, 30)
    assert diverges(cache, 2, 20, 30) is None
    assert diverges(cache, 2, 21, 30) == (2, 20)
    assert diverges(cache, 3, 15, 30) == (2, 20)
    assert diverges(cache, 0, 5, 30) is None
    assert diverges(cache, -1, 99, 30) is None
    for unknown in (5, 99):
        with pytest.raises(UnknownEpoch, match="newest is 4"):
            diverges(cache, unknown, 10, 30)
    with pytest.raises(UnknownEpoch):
        diverges(EpochCache(), 0, 0, 0)


@pytest.mark.parametrize(
    ("epoch", "end", "common"),
    [
        (4, 25, 25),  # both have it: the shorter one's end
        (4, 99, 30),
        (2, 99, 20),
        (2, 12, 12),
        (3, 25, 20),  # the leader's epoch is unknown here: back to the end of the one before, and ask again
        (0, 3, 3),  # from before this follower's first: the leader's answer alone
        (0, 99, 5),  # (as Kafka: with an epoch above it, its own end is that one's start)
        (-1, 17, 17),  # the leader tells no epoch
        (-1, 99, 30),
        (7, -1, -1),  # the leader does not know
    ],
)
def test_truncation_offset_of_a_follower(epoch: int, end: int, common: int) -> None:
    assert common_end(EpochCache([(1, 5), (2, 10), (4, 20)]), epoch, end, 30) == common


def test_follower_without_epochs_accepts_the_leaders_answer() -> None:
    assert common_end(EpochCache(), 3, 12, 30) == 12
    assert common_end(EpochCache(), 3, 40, 30) == 30


class Replica:
    """A log of records, each an (epoch, number of its own) pair, and its epochs."""

    def __init__(self) -> None:
        self.log: list[tuple[int, int]] = []
        self.cache = EpochCache()

    def lead(self, epoch: int, count: int, first: int) -> None:
        self.cache.assign(epoch, len(self.log))
        self.log += [(epoch, first + n) for n in range(count)]

    def fetch(self, leader: Replica, most: int) -> bool:
        """One fetch; whether that has changed anything."""
        told = diverges(leader.cache, self.cache.latest, len(self.log), len(leader.log))
        if told is not None:
            end = common_end(self.cache, *told, len(self.log))
            before = (len(self.log), self.cache.entries)
            del self.log[end:]
            self.cache.truncate_from_end(end)
            return before != (len(self.log), self.cache.entries)
        for record in leader.log[len(self.log) : len(self.log) + most]:
            if record[0] != self.cache.latest:
                self.cache.truncate_from_end(len(self.log))
                self.cache.assign(record[0], len(self.log))
            self.log.append(record)
            most -= 1
        return False


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 4), st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5)))),
        min_size=1,
        max_size=12,
    ),
    st.integers(0, 2),
)
def test_any_two_histories_converge(elections: list[tuple[int, int, list[tuple[int, int]]]], last_leader: int) -> None:
    """Any replica may be elected, however far behind; the common part stays, and other records are truncated."""
    replicas, numbers = [Replica() for _ in range(3)], 0
    for epoch, (leader, count, fetches) in enumerate([*elections, (last_leader, 1, [])]):
        replicas[leader].lead(epoch, count, numbers)
        numbers += count
        for who, most in fetches:
            if who != leader:
                replicas[who].fetch(replicas[leader], most)
    wanted = replicas[last_leader]
    for one in replicas:
        common = next((n for n, pair in enumerate(zip(one.log, wanted.log, strict=False)) if pair[0] != pair[1]), None)
        common = min(len(one.log), len(wanted.log)) if common is None else common
        least, turns = len(one.log), 0
        while one.log != wanted.log:
            one.fetch(wanted, 3)
            least, turns = min(least, len(one.log)), turns + 1
            assert turns < 200
        assert least >= common
        assert [one.cache.epoch_of(n) for n in range(len(one.log))] == [epoch for epoch, _ in one.log]
