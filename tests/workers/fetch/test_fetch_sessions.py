"""The fetch sessions (KIP-227) of a worker."""

from __future__ import annotations

import pytest

from odradek.protocol import errors
from odradek.protocol.fetch import FetchPartition, FetchRequest, FetchResult
from odradek.workers.fetch import fetch_sessions as module
from odradek.workers.fetch.fetch_sessions import EVICTION_S, INITIAL, SESSIONLESS, FetchSession, FetchSessionCache

A, B = (b"a", 0), (b"b", 1)


def part(key: tuple[bytes, int], offset: int = 0) -> FetchPartition:
    return FetchPartition(key[0], key[1], -1, offset, -1, -1, 1000)


def request(
    session: int, epoch: int, *parts: FetchPartition, forget: tuple[tuple[bytes, int], ...] = ()
) -> FetchRequest:
    return FetchRequest(-1, 500, 1, 1000, 0, session, epoch, list(parts), list(forget), b"")


def new(sessions: FetchSessionCache, *parts: FetchPartition, now: float = 0.0) -> FetchSession:
    error, session = sessions.open(request(0, INITIAL, *parts), False, now)
    assert error == errors.NONE
    assert session is not None
    session.advance()
    return session


def result(key: tuple[bytes, int], hw: int = 5, error: int = 0, payload: bytes = b"") -> FetchResult:
    return FetchResult(key[0], key[1], error, hw, hw, 0, [payload] if payload else ())


def test_sessionless_fetch_creates_no_session() -> None:
    sessions = FetchSessionCache(10)
    assert sessions.open(request(0, SESSIONLESS, part(A)), False, 0) == (errors.NONE, None)
    assert len(sessions) == 0


def test_request_adds_changes_and_forgets_partitions() -> None:
    sessions = FetchSessionCache(10)
    session = new(sessions, part(A), part(B))
    change = request(session.id, 1, part(B, 7), part((b"c", 0)), forget=(A,))
    assert sessions.open(change, False, 1) == (errors.NONE, session)
    assert [(key, one.offset) for key, one in session.parts.items()] == [(B, 7), ((b"c", 0), 0)]


def test_new_session_ignores_forgotten_partitions() -> None:
    sessions = FetchSessionCache(10)
    error, session = sessions.open(request(0, INITIAL, part(A), part(B), forget=(A,)), False, 0)
    assert error == errors.NONE
    assert session is not None
    assert list(session.parts) == [A, B]


def test_session_epochs_increase_by_one_and_skip_zero() -> None:
    sessions = FetchSessionCache(10)
    session = new(sessions, part(A))
    for epoch in (0x7FFFFFFE, 3, 2, -2):
        if epoch != session.epoch:
            assert sessions.open(request(session.id, epoch), False, 0)[0] == errors.INVALID_FETCH_SESSION_EPOCH
    assert sessions.open(request(session.id, 1), False, 0) == (errors.NONE, session)
    session.epoch = 0x7FFFFFFF
    session.advance()
    assert session.epoch == 1


def test_unknown_session_id_is_refused() -> None:
    sessions = FetchSessionCache(10)
    session = new(sessions, part(A))
    assert sessions.open(request(session.id + 1, 1), False, 0)[0] == errors.FETCH_SESSION_ID_NOT_FOUND


def test_full_request_closes_its_session() -> None:
    sessions = FetchSessionCache(10)
    first, second = new(sessions, part(A)), new(sessions, part(A))
    sessions.open(request(first.id, SESSIONLESS, part(A)), False, 0)
    assert sessions.open(request(first.id, 1), False, 0)[0] == errors.FETCH_SESSION_ID_NOT_FOUND
    sessions.open(request(second.id, INITIAL, part(A)), False, 0)
    assert sessions.open(request(second.id, 1), False, 0)[0] == errors.FETCH_SESSION_ID_NOT_FOUND
    assert len(sessions) == 1


def test_session_without_partitions_is_closed() -> None:
    sessions = FetchSessionCache(10)
    session = new(sessions, part(A))
    assert sessions.open(request(session.id, 1, forget=(A,)), False, 0) == (errors.NONE, None)
    assert len(sessions) == 0


def test_session_that_grows_above_the_limit_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other sessions continue, and may change their partitions."""
    monkeypatch.setattr(module, "MOST_PARTS", 5)
    sessions = FetchSessionCache(10)
    first, second = new(sessions, part(A), part(B)), new(sessions, part(A))
    more = [part((b"c", index)) for index in range(3)]
    assert sessions.open(request(second.id, 1, part(B, 7), more[0]), False, 1) == (errors.NONE, second)
    second.advance()
    assert sessions.open(request(first.id, 1, *more), False, 1) == (errors.FETCH_SESSION_ID_NOT_FOUND, None)
    assert sessions.open(request(first.id, 1), False, 1) == (errors.FETCH_SESSION_ID_NOT_FOUND, None)
    assert sessions.open(request(second.id, 2, part(B, 9)), False, 1) == (errors.NONE, second)
    assert len(second.parts) == 3


def test_session_by_name_refuses_topic_ids() -> None:
    sessions = FetchSessionCache(10)
    session = new(sessions, part(A))
    assert sessions.open(request(session.id, 1), True, 0)[0] == errors.FETCH_SESSION_TOPIC_ID_ERROR
    assert sessions.open(request(session.id, 1), False, 0) == (errors.NONE, session)


def test_only_an_idle_session_is_evicted() -> None:
    sessions = FetchSessionCache(2)
    first, second = new(sessions, part(A), now=0), new(sessions, part(A), now=1)
    assert sessions.open(request(0, INITIAL, part(A)), False, 2) == (errors.NONE, None)
    sessions.open(request(first.id, 1), False, 50)
    third = new(sessions, part(A), now=1 + EVICTION_S)
    assert sessions.open(request(second.id, 1), False, 1 + EVICTION_S)[0] == errors.FETCH_SESSION_ID_NOT_FOUND
    first.advance()
    assert sessions.open(request(first.id, 2), False, 1 + EVICTION_S) == (errors.NONE, first)
    assert len(sessions) == 2
    assert third.id != second.id


def test_cache_of_size_zero_creates_no_session() -> None:
    assert FetchSessionCache(0).open(request(0, INITIAL, part(A)), False, 0) == (errors.NONE, None)


def test_only_changed_partitions_are_answered() -> None:
    session = FetchSession(1, False, 0)
    session.update(request(1, 0, part(A), part(B)))
    assert session.changed_partitions([result(A), result(B)]) == [result(A), result(B)]
    assert session.changed_partitions([result(A), result(B)]) == []
    assert session.changed_partitions([result(A, hw=6), result(B)]) == [result(A, hw=6)]
    assert session.changed_partitions([result(A, hw=6), result(B, error=3)]) == [result(B, error=3)]
    assert session.changed_partitions([result(A, hw=6), result(B, error=3)]) == [result(B, error=3)]
    assert session.changed_partitions([result(A, hw=6), result(B, payload=b"x")]) == [result(B, payload=b"x")]


def test_partition_with_records_moves_to_the_end() -> None:
    session = new(FetchSessionCache(1), part(A), part(B))
    session.changed_partitions([result(A, payload=b"x"), result(B)])
    assert list(session.parts) == [B, A]


def test_first_answer_keeps_the_requests_order() -> None:
    """As in Kafka; the order matters where `max_bytes` leaves no room for later partitions."""
    session = FetchSession(1, False, 0)
    session.add(request(0, INITIAL, part(A), part(B)))
    session.changed_partitions([result(A, payload=b"x"), result(B)])
    assert list(session.parts) == [A, B]
