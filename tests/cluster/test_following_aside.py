"""Partitions that a follower pauses, and logs that end outside the leader's range."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from odradek.cluster.replication.fetch_session import Key
from odradek.cluster.replication.partition_fetch_states import (
    HELD_WAIT_MS,
    LONGEST_BACKOFF_MS,
    RESTART,
    TRUNCATE,
    OffsetLookup,
    PartitionFetchStates,
    Truncation,
)
from odradek.protocol import errors
from odradek.protocol.fetch import FetchRequest
from odradek.protocol.fetch_client import EARLIEST, LATEST

from .asking import LIMITS, SESSION, A, B, at, fetched, following_of, part

# -- paused partitions


SET_ASIDE: dict[str, Callable[[PartitionFetchStates, Key], Any]] = {
    "hold": lambda machine, key: machine.hold(key),
    "begin_truncation": lambda machine, key: machine.begin_truncation(key),
    "delay": lambda machine, key: machine.delay(key, 0),
    "back_off": lambda machine, key: machine.back_off(key, 0),
}


@pytest.mark.parametrize("how", SET_ASIDE)
def test_paused_partition_leaves_session_and_returns(how: str) -> None:
    machine = following_of(A, B)
    SET_ASIDE[how](machine, A)
    assert machine.requested(A) is None
    request = fetched(machine)
    assert (request.parts, request.forgotten) == ([], [A])
    machine.answered(0, SESSION, 0)
    machine.resume_at(A, at(15))
    request = fetched(machine)
    assert (request.parts, request.forgotten) == ([part(A, 15)], [])


@pytest.mark.parametrize("how", [*SET_ASIDE, "look_up_offsets"])
def test_removed_partition_stays_out(how: str) -> None:
    machine = following_of(A)
    (SET_ASIDE | {"look_up_offsets": lambda one, key: one.look_up_offsets(key)})[how](machine, A)
    machine.remove(A)
    machine.resume_at(A, at(15))
    machine.hold(A)
    machine.begin_truncation(A)
    machine.delay(A, 0)
    machine.back_off(A, 0)
    machine.look_up_offsets(A)
    machine.retry_delayed()
    assert machine.request(10**9) is None
    assert (len(machine), machine.due_ms()) == (0, None)


def test_wait_is_bounded_by_held_partitions() -> None:
    machine = following_of(A, B)
    machine.hold(A)
    assert fetched(machine).max_wait_ms == HELD_WAIT_MS
    machine.answered(0, SESSION, 0)
    machine.resume_at(A, at(11))
    assert fetched(machine).max_wait_ms == 500


def test_truncating_partition_is_not_fetched_and_does_not_shorten_wait() -> None:
    machine = following_of(A, B)
    machine.begin_truncation(A)
    machine.retry_delayed()
    request = fetched(machine, 10**9)
    assert (request.parts, request.forgotten, request.max_wait_ms) == ([], [A], LIMITS.max_wait_ms)


def backed_off_repeatedly(*keys: Key, now_ms: int) -> PartitionFetchStates:
    """The first of `keys` is paused for the whole backoff from `now_ms` on."""
    machine = following_of(*keys)
    for _ in range(20):
        machine.delay(keys[0], now_ms)
    return machine


def test_repeated_backoff_grows_until_new_epoch_or_quiet_time() -> None:
    machine = following_of(A)
    pauses = []
    for _ in range(10):
        machine.delay(A, 50)
        pauses.append((machine.due_ms() or 0) - 50)
    assert pauses == [10, 20, 40, 80, 160, 320, 640, 1000, 1000, 1000]
    machine.delay(A, 2051)
    assert machine.due_ms() == 2061
    machine.delay(A, 2061)
    machine.assign(A, at(10))
    machine.delay(A, 2062)
    assert machine.due_ms() == 2072


def test_wait_is_bounded_by_backoff() -> None:
    machine = backed_off_repeatedly(A, B, now_ms=0)
    assert fetched(machine, 0).max_wait_ms == 500
    machine.answered(0, SESSION, 499)
    assert fetched(machine, 700).max_wait_ms == 300
    machine.answered(0, SESSION, 999)
    assert fetched(machine, 999).max_wait_ms == 1
    machine.answered(0, SESSION, 1000)
    request = fetched(machine, 1000)
    assert (request.parts, request.max_wait_ms) == ([part(A, 10)], 500)


def test_no_request_while_all_partitions_back_off() -> None:
    machine = backed_off_repeatedly(A, now_ms=100)
    assert machine.request(1099) is None
    assert machine.due_ms() == 1100
    assert fetched(machine, 1100).parts == [], "the session still has the partition"


def test_new_metadata_ends_a_backoff_but_not_a_strike() -> None:
    machine = following_of(A, B)
    machine.delay(A, 0)
    machine.back_off(B, 0)
    machine.retry_delayed()
    assert fetched(machine).forgotten == [B]
    assert machine.requested(A) == part(A, 10)


def test_consecutive_strikes_last_longer_until_a_fetch_succeeds() -> None:
    machine = following_of(A)
    pauses = [machine.back_off(A, 0) for _ in range(20)]
    assert pauses[:4] == [1000, 2000, 4000, 8000]
    assert set(pauses[6:]) == {LONGEST_BACKOFF_MS}
    machine.succeeded(A)
    assert machine.back_off(A, 0) == 1000
    machine.assign(A, at(10, epoch=4))
    assert machine.back_off(A, 0) == 1000


def test_strike_does_not_shorten_a_long_backoff() -> None:
    machine = PartitionFetchStates(LIMITS._replace(backoff_ms=100_000))
    machine.assign(A, at(10))
    assert [machine.back_off(A, 0) for _ in range(3)] == [100_000] * 3


def test_new_position_during_a_backoff_is_fetched_after_it() -> None:
    machine = following_of(A)
    machine.back_off(A, 0)
    machine.set_position(A, at(13))
    machine.set_position(B, at(13))
    assert machine.request(999) is None
    assert fetched(machine, 1000).parts == [part(A, 13)]


# -- logs outside the leader's range


def seeking(*keys: Key) -> tuple[PartitionFetchStates, OffsetLookup]:
    machine = following_of(*keys)
    for key in keys:
        machine.look_up_offsets(key)
    seek = machine.request(0)
    assert seek == OffsetLookup(LATEST, [(key, 3) for key in keys])
    return machine, seek


@pytest.mark.parametrize("end", [0, 9])
def test_log_beyond_leaders_is_truncated(end: int) -> None:
    machine, seek = seeking(A)
    assert machine.offsets_found(seek, {A: (0, end)}, 0) == [Truncation(A, TRUNCATE, end)]
    machine.resume_at(A, at(end))
    assert fetched(machine).parts == [part(A, end)]


@pytest.mark.parametrize("end", [10, 11, 1000])
def test_log_that_ends_before_leaders_start_is_reset(end: int) -> None:
    machine, seek = seeking(A, B)
    assert machine.offsets_found(seek, {A: (0, end), B: (0, 4)}, 0) == [Truncation(B, TRUNCATE, 4)]
    machine.resume_at(B, at(4))
    second = machine.request(0)
    assert isinstance(second, OffsetLookup) and second == OffsetLookup(EARLIEST, [(A, 3)])
    assert machine.offsets_found(second, {A: (0, 11)}, 0) == [Truncation(A, RESTART, 11)]
    machine.resume_at(A, at(11))
    assert sorted(fetched(machine).parts) == [part(A, 11), part(B, 4)]


@pytest.mark.parametrize("start", [0, 10])
def test_range_that_has_the_refused_offset_backs_off(start: int) -> None:
    machine, seek = seeking(A)
    assert machine.offsets_found(seek, {A: (0, 10)}, 0) == []
    second = machine.request(0)
    assert isinstance(second, OffsetLookup)
    assert machine.offsets_found(second, {A: (0, start)}, 0) == []
    assert machine.request(999) is None
    machine.retry_delayed()
    assert machine.request(999) is None, "the second refusal is a strike"
    assert isinstance(machine.request(1000), FetchRequest)


@pytest.mark.parametrize("answer", [{}, {A: (errors.NOT_LEADER_OR_FOLLOWER, -1)}, {A: (0, -1)}])
def test_offset_lookup_without_an_answer_is_repeated_later(answer: dict[Key, tuple[int, int]]) -> None:
    for first in (None, {A: (0, 50)}):
        machine, seek = seeking(A)
        if first is not None:
            machine.offsets_found(seek, first, 0)
            again = machine.request(0)
            assert isinstance(again, OffsetLookup)
            seek = again
        assert machine.offsets_found(seek, answer, 0) == []
        assert machine.request(0) is None
        assert isinstance(machine.request(1000), FetchRequest)


def test_answer_after_new_assignment_is_ignored() -> None:
    machine, seek = seeking(A, B)
    machine.assign(A, at(10, epoch=4))
    machine.look_up_offsets(A)
    machine.remove(B)
    assert machine.offsets_found(seek, {A: (0, 5), B: (0, 5)}, 0) == []
    assert machine.request(0) == OffsetLookup(LATEST, [(A, 4)])


def test_lost_connection_discards_leaders_answers() -> None:
    machine, seek = seeking(A)
    machine.offsets_found(seek, {A: (0, 50)}, 0)
    machine.lost()
    assert machine.request(0) == seek
