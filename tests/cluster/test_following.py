"""What a follower asks of a leader: rule by rule, and against a leader's own sessions in any order of events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from odradek.cluster import fetch_session, following
from odradek.cluster.ahead import Coming
from odradek.cluster.fetch_session import Key, Session
from odradek.cluster.following import (
    APPEND,
    DIVERGED,
    HELD_WAIT_MS,
    LEAVE,
    LONGEST_STRIKE_MS,
    LOST_PLACE,
    RESTART,
    TRUNCATE,
    Cut,
    Following,
    Limits,
    Position,
    Seek,
)
from odradek.protocol import errors
from odradek.protocol.fetch import FetchPart, FetchRequest
from odradek.protocol.fetch_client import EARLIEST, LATEST
from odradek.workers.sessions import Sessions

LIMITS = Limits(replica=7, max_wait_ms=500, min_bytes=1, max_bytes=1000, part_bytes=100, backoff_ms=1000)
A, B, C = ((b"t" * 16, 0), (b"t" * 16, 1), (b"u" * 16, 0))
SESSION = 99


def at(offset: int, epoch: int = 3) -> Position:
    return Position(epoch, offset, epoch - 1, 0)


def part(key: Key, offset: int, epoch: int = 3) -> FetchPart:
    return FetchPart(*key, epoch, offset, epoch - 1, 0, 100)


def following_of(*keys: Key) -> Following:
    """All from offset 10 on; the first request is answered."""
    machine = Following(LIMITS)
    for key in keys:
        machine.assign(key, at(10))
    fetched(machine)
    assert machine.answered(0, SESSION, 0)
    return machine


def fetched(machine: Following, now_ms: int = 0) -> FetchRequest:
    request = machine.request(now_ms)
    assert isinstance(request, FetchRequest)
    return request


# -- requests and sessions


def test_nothing_assigned_nothing_asked() -> None:
    machine = Following(LIMITS)
    assert machine.request(0) is None
    assert machine.due_ms() is None
    assert len(machine) == 0


def test_the_first_request_names_everything() -> None:
    machine = Following(LIMITS)
    machine.assign(A, at(10))
    machine.assign(C, at(20))
    request = fetched(machine)
    assert request == FetchRequest(7, 500, 1, 1000, 0, 0, 0, [part(A, 10), part(C, 20)], [], b"")


def test_an_idle_request_names_nothing() -> None:
    machine = following_of(A, B)
    for epoch in (1, 2, 3):
        request = fetched(machine)
        assert (request.session_id, request.session_epoch) == (SESSION, epoch)
        assert request.parts == request.forgotten == []
        machine.answered(0, SESSION, 0)


def test_an_idle_request_looks_at_no_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = following_of(*[(b"t" * 16, index) for index in range(1000)])
    looked: list[Key] = []
    monkeypatch.setattr(Following, "_is_apart", lambda _, key: looked.append(key))
    fetched(machine)
    assert looked == []


def test_later_requests_name_what_has_changed() -> None:
    machine = following_of(A, B)
    machine.moved(A, at(15))
    machine.assign(C, at(20))
    machine.remove(B)
    request = fetched(machine)
    assert request.parts == [part(A, 15), part(C, 20)]
    assert request.forgotten == [B]


def test_back_where_it_was_is_no_change() -> None:
    machine = following_of(A, B)
    machine.remove(A)
    machine.assign(A, at(10))
    machine.assign(C, at(1))
    machine.remove(C)
    request = fetched(machine)
    assert request.parts == request.forgotten == []


def test_a_new_leader_epoch_is_told() -> None:
    machine = following_of(A, B)
    machine.assign(A, at(10, epoch=4))
    assert machine.asked(A) is None, "the answer under way is to the request of the former epoch"
    assert machine.asked(B) == part(B, 10)
    assert fetched(machine).parts == [part(A, 10, epoch=4)]


def test_a_leader_without_sessions_is_told_everything_each_time() -> None:
    machine = Following(LIMITS)
    machine.assign(A, at(10))
    for _ in range(3):
        request = fetched(machine)
        assert (request.session_id, request.session_epoch, request.parts) == (0, 0, [part(A, 10)])
        machine.answered(0, 0, 0)


def test_a_session_that_the_leader_ends() -> None:
    machine = following_of(A)
    fetched(machine)
    machine.answered(0, 0, 0)
    assert fetched(machine).parts == [part(A, 10)]


@pytest.mark.parametrize(
    ("error", "session"),
    [
        (errors.FETCH_SESSION_ID_NOT_FOUND, 0),
        (errors.INVALID_FETCH_SESSION_EPOCH, SESSION),
        (errors.UNKNOWN_TOPIC_ID, 0),
    ],
)
def test_a_refused_session_begins_anew(error: int, session: int) -> None:
    machine = following_of(A, B)
    machine.remove(B)
    fetched(machine)
    assert not machine.answered(error, 0, 50)
    request = fetched(machine, 50)
    assert (request.session_id, request.session_epoch) == (session, 0)
    assert (request.parts, request.forgotten) == ([part(A, 10)], [])
    machine.answered(0, 5, 50)
    assert fetched(machine, 50).session_epoch == 1


def test_a_session_refused_twice_waits() -> None:
    machine = following_of(A)
    for _ in range(2):
        fetched(machine)
        machine.answered(errors.FETCH_SESSION_ID_NOT_FOUND, 0, 50)
    assert machine.request(1049) is None
    assert machine.due_ms() == 1050
    fetched(machine, 1050)
    machine.answered(0, 5, 1050)
    fetched(machine, 1050)
    machine.answered(errors.FETCH_SESSION_ID_NOT_FOUND, 0, 1060)
    fetched(machine, 1060)


def test_a_lost_connection_begins_anew() -> None:
    machine = following_of(A, B)
    fetched(machine)
    machine.lost()
    assert machine.asked(A) is None
    request = fetched(machine)
    assert (request.session_id, request.session_epoch, len(request.parts)) == (0, 0, 2)


def test_session_epochs_begin_again_at_one() -> None:
    session = Session()
    session.answered(5)
    session.epoch = fetch_session._LAST
    session.answered(5)
    assert session.epoch == 1


# -- parts of answers


@pytest.mark.parametrize(
    ("error", "diverging", "about"),
    [
        (0, None, APPEND),
        (0, (1, 5), DIVERGED),
        (errors.OFFSET_OUT_OF_RANGE, None, LOST_PLACE),
        *[(error, None, LEAVE) for error in following.TRANSIENT],
        (errors.CORRUPT_MESSAGE, None, LEAVE),
        (errors.KAFKA_STORAGE_ERROR, None, LEAVE),
        (errors.UNKNOWN_SERVER_ERROR, None, LEAVE),
        (12345, None, LEAVE),
    ],
)
def test_what_a_part_is_about(error: int, diverging: tuple[int, int] | None, about: str) -> None:
    assert Following(LIMITS).judge(error, diverging) == about


def test_parts_that_nobody_asked_for() -> None:
    machine = following_of(A)
    machine.assign(B, at(5))
    assert machine.asked(A) == part(A, 10)
    assert machine.asked(B) is None, "assigned after the request"
    assert machine.asked(C) is None


# -- the next request before the records are in the log


def test_asking_for_more_before_what_came_is_used() -> None:
    machine = following_of(A, B)
    assert machine.ahead([Coming(A, 15, 2, 30)])
    assert fetched(machine).parts == [part(A, 15)]
    machine.moved(A, at(15))
    assert machine.answered(0, SESSION, 0)
    assert machine.asked(A) == part(A, 15)
    assert fetched(machine).parts == [], "it was said before"


def test_all_that_came_may_be_asked_beyond_or_nothing() -> None:
    machine = following_of(A, B)
    assert not machine.ahead([Coming(A, 15, 2, 30), Coming(B, 15, 2, 15)])
    assert not machine.ahead([])
    assert fetched(machine).parts == [], "both are where they were"


@pytest.mark.parametrize("how", ["hold", "strike", "remove"])
def test_what_was_said_and_did_not_come_true(how: str) -> None:
    machine = following_of(A, B)
    machine.ahead([Coming(A, 15, 2, 30)])
    fetched(machine)
    {"remove": lambda: machine.remove(A), "hold": lambda: machine.hold(A), "strike": lambda: machine.strike(A, 0)}[
        how
    ]()
    machine.stand(A, at(12))
    assert machine.answered(0, SESSION, 0)
    assert machine.asked(A) is None, "the answer comes behind records that are not there"
    assert fetched(machine).forgotten == [A]


def test_the_log_ends_elsewhere_than_was_said() -> None:
    machine = following_of(A)
    machine.ahead([Coming(A, 15, 2, 30)])
    fetched(machine)
    machine.moved(A, at(12))
    assert machine.answered(0, SESSION, 0)
    assert machine.asked(A) is None
    assert fetched(machine).parts == [part(A, 12)]


def test_what_was_held_is_in_the_log_before_the_answer_comes() -> None:
    machine = following_of(A)
    machine.ahead([Coming(A, 15, 2, 30)])
    fetched(machine)
    machine.hold(A)
    machine.moved(A, at(15))
    assert machine.answered(0, SESSION, 0)
    assert machine.asked(A) == part(A, 15)


# -- parts that are set aside


SET_ASIDE: dict[str, Callable[[Following, Key], Any]] = {
    "hold": lambda machine, key: machine.hold(key),
    "leave": lambda machine, key: machine.leave(key, 0),
    "strike": lambda machine, key: machine.strike(key, 0),
}


@pytest.mark.parametrize("how", SET_ASIDE)
def test_what_is_set_aside_is_forgotten_and_told_again(how: str) -> None:
    machine = following_of(A, B)
    SET_ASIDE[how](machine, A)
    assert machine.asked(A) is None
    request = fetched(machine)
    assert (request.parts, request.forgotten) == ([], [A])
    machine.answered(0, SESSION, 0)
    machine.moved(A, at(15))
    request = fetched(machine)
    assert (request.parts, request.forgotten) == ([part(A, 15)], [])


@pytest.mark.parametrize("how", [*SET_ASIDE, "seek"])
def test_what_is_removed_stays_away(how: str) -> None:
    machine = following_of(A)
    (SET_ASIDE | {"seek": lambda one, key: one.seek(key)})[how](machine, A)
    machine.remove(A)
    machine.moved(A, at(15))
    machine.hold(A)
    machine.leave(A, 0)
    machine.strike(A, 0)
    machine.seek(A)
    machine.look_again()
    assert machine.request(10**9) is None
    assert (len(machine), machine.due_ms()) == (0, None)


def test_the_leader_waits_no_longer_than_what_is_held_may() -> None:
    machine = following_of(A, B)
    machine.hold(A)
    assert fetched(machine).max_wait_ms == HELD_WAIT_MS
    machine.answered(0, SESSION, 0)
    machine.moved(A, at(11))
    assert fetched(machine).max_wait_ms == 500


def left_often(*keys: Key, now_ms: int) -> Following:
    """The first of `keys` is left out for the whole backoff from `now_ms` on."""
    machine = following_of(*keys)
    for _ in range(20):
        machine.leave(keys[0], now_ms)
    return machine


def test_leaving_in_a_row_lasts_longer_until_a_new_epoch_or_a_quiet_time() -> None:
    machine = following_of(A)
    pauses = []
    for _ in range(10):
        machine.leave(A, 50)
        pauses.append((machine.due_ms() or 0) - 50)
    assert pauses == [10, 20, 40, 80, 160, 320, 640, 1000, 1000, 1000]
    machine.leave(A, 2051)
    assert machine.due_ms() == 2061
    machine.leave(A, 2061)
    machine.assign(A, at(10))
    machine.leave(A, 2062)
    assert machine.due_ms() == 2072


def test_the_leader_waits_no_longer_than_what_is_left_out_may() -> None:
    machine = left_often(A, B, now_ms=0)
    assert fetched(machine, 0).max_wait_ms == 500
    machine.answered(0, SESSION, 499)
    assert fetched(machine, 700).max_wait_ms == 300
    machine.answered(0, SESSION, 999)
    assert fetched(machine, 999).max_wait_ms == 1
    machine.answered(0, SESSION, 1000)
    request = fetched(machine, 1000)
    assert (request.parts, request.max_wait_ms) == ([part(A, 10)], 500)


def test_nothing_but_what_is_left_out() -> None:
    machine = left_often(A, now_ms=100)
    assert machine.request(1099) is None
    assert machine.due_ms() == 1100
    assert fetched(machine, 1100).parts == [], "the leader was never told to forget it"


def test_new_metadata_end_a_backoff_but_not_a_strike() -> None:
    machine = following_of(A, B)
    machine.leave(A, 0)
    machine.strike(B, 0)
    machine.look_again()
    assert fetched(machine).forgotten == [B]
    assert machine.asked(A) == part(A, 10)


def test_strikes_in_a_row_last_longer_until_one_succeeds() -> None:
    machine = following_of(A)
    pauses = [machine.strike(A, 0) for _ in range(20)]
    assert pauses[:4] == [1000, 2000, 4000, 8000]
    assert set(pauses[6:]) == {LONGEST_STRIKE_MS}
    machine.succeeded(A)
    assert machine.strike(A, 0) == 1000
    machine.assign(A, at(10, epoch=4))
    assert machine.strike(A, 0) == 1000


def test_a_long_backoff_is_not_shortened_by_a_strike() -> None:
    machine = Following(LIMITS._replace(backoff_ms=100_000))
    machine.assign(A, at(10))
    assert [machine.strike(A, 0) for _ in range(3)] == [100_000] * 3


def test_standing_elsewhere_while_left_out() -> None:
    machine = following_of(A)
    machine.strike(A, 0)
    machine.stand(A, at(13))
    machine.stand(B, at(13))
    assert machine.request(999) is None
    assert fetched(machine, 1000).parts == [part(A, 13)]


# -- logs that have no place in the leader's


def seeking(*keys: Key) -> tuple[Following, Seek]:
    machine = following_of(*keys)
    for key in keys:
        machine.seek(key)
    seek = machine.request(0)
    assert seek == Seek(LATEST, [(key, 3) for key in keys])
    return machine, seek


@pytest.mark.parametrize("end", [0, 9])
def test_a_log_beyond_the_leaders_is_cut(end: int) -> None:
    machine, seek = seeking(A)
    assert machine.found(seek, {A: (0, end)}, 0) == [Cut(A, TRUNCATE, end)]
    machine.moved(A, at(end))
    assert fetched(machine).parts == [part(A, end)]


@pytest.mark.parametrize("end", [10, 11, 1000])
def test_a_log_that_ends_before_the_leaders_begins_anew(end: int) -> None:
    machine, seek = seeking(A, B)
    assert machine.found(seek, {A: (0, end), B: (0, 4)}, 0) == [Cut(B, TRUNCATE, 4)]
    machine.moved(B, at(4))
    seek = machine.request(0)
    assert seek == Seek(EARLIEST, [(A, 3)])
    assert machine.found(seek, {A: (0, 11)}, 0) == [Cut(A, RESTART, 11)]
    machine.moved(A, at(11))
    assert sorted(fetched(machine).parts) == [part(A, 11), part(B, 4)]


@pytest.mark.parametrize("start", [0, 10])
def test_a_leader_that_has_what_it_said_it_had_not(start: int) -> None:
    machine, seek = seeking(A)
    assert machine.found(seek, {A: (0, 10)}, 0) == []
    seek = machine.request(0)
    assert isinstance(seek, Seek)
    assert machine.found(seek, {A: (0, start)}, 0) == []
    assert machine.request(999) is None
    machine.look_again()
    assert machine.request(999) is None, "it is a strike"
    assert isinstance(machine.request(1000), FetchRequest)


@pytest.mark.parametrize("answer", [{}, {A: (errors.NOT_LEADER_OR_FOLLOWER, -1)}, {A: (0, -1)}])
def test_no_answer_where_it_begins_or_ends(answer: dict[Key, tuple[int, int]]) -> None:
    for first in (None, {A: (0, 50)}):
        machine, seek = seeking(A)
        if first is not None:
            machine.found(seek, first, 0)
            again = machine.request(0)
            assert isinstance(again, Seek)
            seek = again
        assert machine.found(seek, answer, 0) == []
        assert machine.request(0) is None
        assert isinstance(machine.request(1000), FetchRequest)


def test_an_answer_that_comes_after_a_new_assignment() -> None:
    machine, seek = seeking(A, B)
    machine.assign(A, at(10, epoch=4))
    machine.seek(A)
    machine.remove(B)
    assert machine.found(seek, {A: (0, 5), B: (0, 5)}, 0) == []
    assert machine.request(0) == Seek(LATEST, [(A, 4)])


def test_what_the_leader_said_is_forgotten_with_the_connection() -> None:
    machine, seek = seeking(A)
    machine.found(seek, {A: (0, 50)}, 0)
    machine.lost()
    assert machine.request(0) == seek


# -- any order of events, against a leader's sessions


class Leader:
    """As far as a follower can tell: logs by their ends, starts and epochs, and the sessions of a worker."""

    def __init__(self) -> None:
        self.sessions = Sessions(2)
        self.session: Any = None
        self.ends = dict.fromkeys((A, B, C), 5)
        self.hws = dict.fromkeys((A, B, C), 3)
        self.starts = dict.fromkeys((A, B, C), 0)
        self.epochs = dict.fromkeys((A, B, C), 0)

    def fetch(self, request: FetchRequest) -> tuple[int, int, dict[Key, FetchPart]]:
        """(error, session id, what is to be looked at)."""
        error, self.session = self.sessions.open(request, True, 0.0)
        if error:
            return error, 0, {}
        if self.session is None:
            return 0, 0, {(one.topic, one.partition): one for one in request.parts}
        self.session.advance()
        return 0, self.session.id, self.session.parts

    def error_of(self, key: Key, one: FetchPart) -> int:
        if one.leader_epoch != self.epochs[key]:
            return errors.FENCED_LEADER_EPOCH if one.leader_epoch < self.epochs[key] else errors.UNKNOWN_LEADER_EPOCH
        return 0 if self.starts[key] <= one.offset <= self.ends[key] else errors.OFFSET_OUT_OF_RANGE


class Machine(RuleBasedStateMachine):
    """A follower's logs are numbers; every rule is something that may happen between two requests."""

    keys = st.sampled_from([A, B, C])

    @initialize()
    def begin(self) -> None:
        self.machine, self.leader, self.now = Following(LIMITS), Leader(), 0
        self.own = dict.fromkeys((A, B, C), 0)
        self.assigned: dict[Key, int] = {}
        self.held: dict[Key, int] = {}
        self.under_way: FetchRequest | Seek | None = None
        self.coming: dict[Key, int] = {}  # where logs are said to end already

    def where(self, key: Key) -> Position:
        return Position(self.assigned[key], self.own[key], 0, 0)

    @rule(key=keys, newer=st.booleans())
    def assign(self, key: Key, newer: bool) -> None:
        self.leader.epochs[key] += newer
        self.assigned[key] = self.leader.epochs[key]
        self.held.pop(key, None)
        self.machine.assign(key, self.where(key))

    @rule(key=keys)
    def remove(self, key: Key) -> None:
        self.assigned.pop(key, None)
        self.held.pop(key, None)
        self.machine.remove(key)

    @rule(key=keys)
    def leader_moves_on(self, key: Key) -> None:
        self.leader.epochs[key] += 1

    @rule(key=keys, count=st.integers(1, 5))
    def produce(self, key: Key, count: int) -> None:
        self.leader.ends[key] += count

    @rule(key=keys, end=st.integers(0, 10))
    def lose_records(self, key: Key, end: int) -> None:
        """Another leader, elected uncleanly, in the same epoch: as bad as can be."""
        self.leader.ends[key] = max(self.leader.starts[key], min(end, self.leader.ends[key]))
        self.leader.hws[key] = min(self.leader.hws[key], self.leader.ends[key])

    @rule(key=keys, count=st.integers(1, 5))
    def commit(self, key: Key, count: int) -> None:
        self.leader.hws[key] = min(self.leader.hws[key] + count, self.leader.ends[key])

    @rule(key=keys)
    def retain(self, key: Key) -> None:
        self.leader.starts[key] = self.leader.hws[key] = self.leader.ends[key]

    @rule()
    def forget_sessions(self) -> None:
        self.leader.sessions = Sessions(2)

    @rule()
    def no_sessions(self) -> None:
        self.leader.sessions = Sessions(0)

    @rule()
    def lose_connection(self) -> None:
        self.under_way = None
        self.machine.lost()

    @rule(ms=st.integers(1, 3000))
    def wait(self, ms: int) -> None:
        self.now += ms

    @rule()
    def metadata(self) -> None:
        self.machine.look_again()

    @rule(key=keys)
    def lock_is_free(self, key: Key) -> None:
        if key in self.held:
            self.own[key] = self.held.pop(key)
            self.machine.moved(key, self.where(key))

    @precondition(lambda self: self.under_way is None)
    @rule()
    def ask(self) -> None:
        self.under_way = self.machine.request(self.now)
        if isinstance(self.under_way, FetchRequest):
            assert 1 <= self.under_way.max_wait_ms <= 500
            self.answer_of = self.leader.fetch(self.under_way)
            self.parts = dict(self.answer_of[2])
            self.check_what_the_leader_knows()

    def check_what_the_leader_knows(self) -> None:
        """Exactly what is wanted now, and no offset that the follower has not, but below the high watermark."""
        if not self.answer_of[0]:
            assert len(self.parts) == self.machine._fetched
            for key, one in self.parts.items():
                assert one == FetchPart(*key, *self.where(key), 100)._replace(
                    offset=self.coming.get(key, self.own[key])
                )
                assert one.offset == self.own[key] or one.offset < self.leader.hws[key]
                assert key not in self.held

    @precondition(lambda self: self.under_way is not None)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        asked, self.under_way = self.under_way, None
        if isinstance(asked, Seek):
            self.settle(asked)
        elif self.machine.answered(*self.answer_of[:2], self.now):
            wanted = {key: one for key, one in self.parts.items() if self.machine.asked(key) is not None}
            for key, one in wanted.items():
                assert self.machine.asked(key) == one, "what an answer is used for is what it was asked for"
                assert one.offset == self.own[key], "and comes behind what is in the log"
            ends = {key: self.sent(key, one, data) for key, one in wanted.items()}
            self.go_ahead(wanted, ends)
            for key, one in wanted.items():
                self.take(key, one, ends[key], data)
            self.coming = {}

    def sent(self, key: Key, one: FetchPart, data: st.DataObject) -> int:
        """Where the records end that the leader has sent."""
        end, hw = self.leader.ends[key], self.leader.hws[key]
        return max(one.offset, data.draw(st.sampled_from([one.offset + 1, hw - 1, min(hw, end), end])))

    def go_ahead(self, wanted: dict[Key, FetchPart], ends: dict[Key, int]) -> None:
        """As broker.leader: the next request leaves before the answer is used."""
        if any(self.leader.error_of(key, one) for key, one in wanted.items()):
            return
        coming = [Coming(key, ends[key], 0, self.leader.hws[key]) for key in wanted if ends[key] > wanted[key].offset]
        if self.machine.ahead(coming):
            self.coming = {one.key: one.end for one in coming}
            self.ask()

    def take(self, key: Key, one: FetchPart, end: int, data: st.DataObject) -> None:
        about = self.machine.judge(self.leader.error_of(key, one), None)
        if about == LEAVE:
            self.machine.leave(key, self.now)
        elif about == LOST_PLACE:
            self.machine.seek(key)
        elif end > one.offset:
            self.append(key, end, data.draw(st.sampled_from(["append", "append", "hold", "strike", "a part"])))

    def append(self, key: Key, end: int, how: str) -> None:
        if how == "append":
            self.own[key] = end
            self.machine.moved(key, self.where(key))
            self.machine.succeeded(key)
        elif how == "hold":
            self.held[key] = end
            self.machine.hold(key)
        elif how == "a part":
            self.own[key] = (self.own[key] + end) // 2
            self.machine.strike(key, self.now)
            self.machine.stand(key, self.where(key))
        else:
            self.machine.strike(key, self.now)

    def settle(self, asked: Seek) -> None:
        of = self.leader.ends if asked.at == LATEST else self.leader.starts
        answers = {
            key: (0, of[key]) if epoch == self.leader.epochs[key] else (errors.FENCED_LEADER_EPOCH, -1)
            for key, epoch in asked.places
        }
        for cut in self.machine.found(asked, answers, self.now):
            assert cut.offset != self.own[cut.key]
            self.own[cut.key] = cut.offset
            self.machine.moved(cut.key, self.where(cut.key))

    @invariant()
    def counts(self) -> None:
        if hasattr(self, "assigned"):
            assert len(self.machine) == len(self.assigned)
            assert self.machine._fetched >= 0

    def teardown(self) -> None:
        """Once all goes well, everything is fetched up to the leader's ends, and then nothing more is named."""
        if not hasattr(self, "assigned"):
            return
        self.leader.sessions = Sessions(2)
        self.lose_connection()
        for key in list(self.assigned):
            self.lock_is_free(key)
            self.assign(key, False)
        for _ in range(12):
            self.now += LONGEST_STRIKE_MS
            self.ask()
            if isinstance(self.under_way, Seek):
                self.settle(self.under_way)
            elif self.under_way is not None:
                assert self.machine.answered(*self.answer_of[:2], self.now)
                for key, one in self.parts.items():
                    self.take_well(key, one)
            self.under_way = None
        assert all(self.own[key] == self.leader.ends[key] for key in self.assigned)
        request = self.machine.request(self.now)
        assert (request is None) == (not self.assigned)
        assert request is None or (isinstance(request, FetchRequest) and request.parts == request.forgotten == [])

    def take_well(self, key: Key, one: FetchPart) -> None:
        if self.machine.judge(self.leader.error_of(key, one), None) == LOST_PLACE:
            self.machine.seek(key)
        elif self.leader.ends[key] > one.offset:
            self.append(key, self.leader.ends[key], "append")


TestAnyOrder = Machine.TestCase
TestAnyOrder.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
