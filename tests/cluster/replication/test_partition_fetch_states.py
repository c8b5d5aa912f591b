"""A follower's requests to a leader, rule by rule: requests, sessions, and partitions of responses."""

from __future__ import annotations

import pytest

from odradek.cluster.replication import fetch_session, partition_fetch_states
from odradek.cluster.replication.fetch_session import FetchSessionHandler, Key
from odradek.cluster.replication.partition_fetch_states import (
    APPEND,
    DELAY,
    DIVERGED,
    OUT_OF_RANGE,
    PartitionFetchStates,
)
from odradek.cluster.replication.pipelined_fetch import PendingAppend
from odradek.protocol import errors
from odradek.protocol.fetch import FetchRequest

from ..asking import LIMITS, SESSION, A, B, C, at, fetched, following_of, part

# -- requests and sessions


def test_no_request_without_partitions() -> None:
    machine = PartitionFetchStates(LIMITS)
    assert machine.request(0) is None
    assert machine.due_ms() is None
    assert len(machine) == 0


def test_first_request_names_all_partitions() -> None:
    machine = PartitionFetchStates(LIMITS)
    machine.assign(A, at(10))
    machine.assign(C, at(20))
    request = fetched(machine)
    assert request == FetchRequest(7, 500, 1, 1000, 0, 0, 0, [part(A, 10), part(C, 20)], [], b"")


def test_idle_request_names_no_partition() -> None:
    machine = following_of(A, B)
    for epoch in (1, 2, 3):
        request = fetched(machine)
        assert (request.session_id, request.session_epoch) == (SESSION, epoch)
        assert not request.parts and not request.forgotten
        machine.answered(0, SESSION, 0)


def test_idle_request_visits_no_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = following_of(*[(b"t" * 16, index) for index in range(1000)])
    looked: list[Key] = []
    monkeypatch.setattr(PartitionFetchStates, "_is_excluded", lambda _, key: looked.append(key))
    fetched(machine)
    assert looked == []


def test_later_requests_name_changed_partitions() -> None:
    machine = following_of(A, B)
    machine.resume_at(A, at(15))
    machine.assign(C, at(20))
    machine.remove(B)
    request = fetched(machine)
    assert request.parts == [part(A, 15), part(C, 20)]
    assert request.forgotten == [B]


def test_restored_offset_is_no_change() -> None:
    machine = following_of(A, B)
    machine.remove(A)
    machine.assign(A, at(10))
    machine.assign(C, at(1))
    machine.remove(C)
    request = fetched(machine)
    assert not request.parts and not request.forgotten


def test_new_leader_epoch_is_sent() -> None:
    machine = following_of(A, B)
    machine.assign(A, at(10, epoch=4))
    assert machine.requested(A) is None, "the response in flight belongs to the former epoch"
    assert machine.requested(B) == part(B, 10)
    assert fetched(machine).parts == [part(A, 10, epoch=4)]


def test_request_without_session_names_every_partition() -> None:
    machine = PartitionFetchStates(LIMITS)
    machine.assign(A, at(10))
    for _ in range(3):
        request = fetched(machine)
        assert (request.session_id, request.session_epoch, request.parts) == (0, 0, [part(A, 10)])
        machine.answered(0, 0, 0)


def test_session_that_the_leader_ended_is_replaced() -> None:
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
def test_refused_session_is_replaced(error: int, session: int) -> None:
    machine = following_of(A, B)
    machine.remove(B)
    fetched(machine)
    assert not machine.answered(error, 0, 50)
    request = fetched(machine, 50)
    assert (request.session_id, request.session_epoch) == (session, 0)
    assert (request.parts, request.forgotten) == ([part(A, 10)], [])
    machine.answered(0, 5, 50)
    assert fetched(machine, 50).session_epoch == 1


def test_session_refused_twice_backs_off() -> None:
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


def test_lost_connection_begins_new_session() -> None:
    machine = following_of(A, B)
    fetched(machine)
    machine.lost()
    assert machine.requested(A) is None
    request = fetched(machine)
    assert (request.session_id, request.session_epoch, len(request.parts)) == (0, 0, 2)


def test_session_epochs_begin_again_at_one() -> None:
    session = FetchSessionHandler()
    session.answered(5)
    session.epoch = fetch_session._LAST
    session.answered(5)
    assert session.epoch == 1


# -- partitions of responses


@pytest.mark.parametrize(
    ("error", "diverging", "about"),
    [
        (0, None, APPEND),
        (0, (1, 5), DIVERGED),
        (errors.OFFSET_OUT_OF_RANGE, None, OUT_OF_RANGE),
        *[(error, None, DELAY) for error in partition_fetch_states.TRANSIENT],
        (errors.CORRUPT_MESSAGE, None, DELAY),
        (errors.KAFKA_STORAGE_ERROR, None, DELAY),
        (errors.UNKNOWN_SERVER_ERROR, None, DELAY),
        (12345, None, DELAY),
    ],
)
def test_responses_are_classified(error: int, diverging: tuple[int, int] | None, about: str) -> None:
    assert PartitionFetchStates(LIMITS).classify(error, diverging) == about


def test_unrequested_partitions_are_ignored() -> None:
    machine = following_of(A)
    machine.assign(B, at(5))
    assert machine.requested(A) == part(A, 10)
    assert machine.requested(B) is None, "the partition is assigned after the request"
    assert machine.requested(C) is None


# -- the next request before the records are in the log


def test_next_request_leaves_before_records_are_appended() -> None:
    machine = following_of(A, B)
    assert machine.pipeline([PendingAppend(A, 15, 2, 30)])
    assert fetched(machine).parts == [part(A, 15)]
    machine.resume_at(A, at(15))
    assert machine.answered(0, SESSION, 0)
    assert machine.requested(A) == part(A, 15)
    assert fetched(machine).parts == [], "the offset was sent before"


def test_pipelined_request_covers_all_answers_or_none() -> None:
    machine = following_of(A, B)
    assert not machine.pipeline([PendingAppend(A, 15, 2, 30), PendingAppend(B, 15, 2, 15)])
    assert not machine.pipeline([])
    assert fetched(machine).parts == [], "both positions are unchanged"


@pytest.mark.parametrize("how", ["hold", "back_off", "remove"])
def test_pipelined_answer_of_paused_partition_is_ignored(how: str) -> None:
    machine = following_of(A, B)
    machine.pipeline([PendingAppend(A, 15, 2, 30)])
    fetched(machine)
    {"remove": lambda: machine.remove(A), "hold": lambda: machine.hold(A), "back_off": lambda: machine.back_off(A, 0)}[
        how
    ]()
    machine.set_position(A, at(12))
    assert machine.answered(0, SESSION, 0)
    assert machine.requested(A) is None, "the response follows records that are not in the log"
    assert fetched(machine).forgotten == [A]


def test_pipelined_answer_of_moved_partition_is_ignored() -> None:
    machine = following_of(A)
    machine.pipeline([PendingAppend(A, 15, 2, 30)])
    fetched(machine)
    machine.resume_at(A, at(12))
    assert machine.answered(0, SESSION, 0)
    assert machine.requested(A) is None
    assert fetched(machine).parts == [part(A, 12)]


def test_held_records_are_appended_before_answer() -> None:
    machine = following_of(A)
    machine.pipeline([PendingAppend(A, 15, 2, 30)])
    fetched(machine)
    machine.hold(A)
    machine.resume_at(A, at(15))
    assert machine.answered(0, SESSION, 0)
    assert machine.requested(A) == part(A, 15)
