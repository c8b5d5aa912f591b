"""Connections that break, fail, or carry invalid data."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable

import pytest

from odradek.broker.interbroker import connection

from ...harness.process import refusing_socket
from .leading import LEADER, Maker, PlayedLeader, caught_up


def test_a_lost_connection_comes_again(follow: Maker, leader: PlayedLeader) -> None:
    follower = follow()
    follower.turn_until(lambda: len(leader.requests) >= 2, "the delayed fetch")
    for number in range(2, 5):
        leader.append()
        leader.hang_up()
        follower.turn_until(lambda number=number: leader.connections == number, "another connection")  # type: ignore[misc]  # a default in a lambda
        follower.turn_until(caught_up(follower, leader), "the log end")
    assert follower.content() == leader.log().content()
    assert set(leader.first_epochs) == {0}, "each connection must start a new session"


def test_new_metadata_end_the_wait_for_a_connection(
    follow: Maker, leader: PlayedLeader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "AGAIN_MS", 3_600_000)
    monkeypatch.setattr(connection, "LONGEST_MS", 3_600_000)
    follower = follow()
    follower.turn_until(lambda: len(leader.requests) >= 2, "the delayed fetch")
    leader.hang_up()
    follower.turn_until(lambda: follower.count_of("errors") == 1, "the loss")
    leader.append()  # not earlier, as the delayed fetch might still return the record
    for _ in range(20):
        follower.turn()
    assert follower.count_of("connections") == 0
    follower.publish()
    follower.turn_until(caught_up(follower, leader), "the log end")
    assert leader.connections == 2


def test_a_leader_that_is_not_there_yet(follow: Maker, leader: PlayedLeader, caplog: pytest.LogCaptureFixture) -> None:
    with refusing_socket() as silent:
        follower = follow(leaders={LEADER: silent.getsockname()})
        follower.turn_until(lambda: follower.count_of("errors") >= 5, "5 attempts")
    (fetcher,) = follower.replicator._leaders.values()
    assert fetcher.link._backoff_ms >= connection.AGAIN_MS << 5, "the pause must double after each attempt"
    assert caplog.text.count("Connection refused") == 1, "the error must be logged once"
    follower.leaders[LEADER] = leader.address
    leader.append()
    follower.publish()
    follower.turn_until(caught_up(follower, leader), "the log end")


def test_a_host_by_name(follow: Maker, leader: PlayedLeader) -> None:
    leader.append()
    follower = follow(leaders={LEADER: ("localhost", leader.address[1])})
    follower.turn_until(caught_up(follower, leader), "the log end")


def test_a_host_that_has_no_address(follow: Maker, leader: PlayedLeader, caplog: pytest.LogCaptureFixture) -> None:
    follower = follow(leaders={LEADER: ("no.such.host.invalid", 1)})
    follower.turn_until(lambda: "leader 1 at no.such.host.invalid:1: " in caplog.text, "the reason in the log", 60)


def test_a_leader_that_does_not_answer(follow: Maker, leader: PlayedLeader, caplog: pytest.LogCaptureFixture) -> None:
    leader.silent = True
    leader.append()
    follower = follow(replica_socket_timeout_ms=100, replica_fetch_wait_max_ms=50)
    follower.turn_until(lambda: leader.connections >= 2, "another connection")
    assert "no answer within 100 ms" in caplog.text
    leader.silent = False
    follower.turn_until(caught_up(follower, leader), "the log end")


def _short(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame) - 10) + frame[4:-6]


MANGLED: dict[str, Callable[[bytes], bytes]] = {
    "cut short": _short,
    "too long": lambda frame: struct.pack(">i", len(frame)) + frame[4:] + b"\0" * 4,
    "another's answer": lambda frame: frame[:4] + b"\0\0\0\x63" + frame[8:],
    "huge": lambda frame: b"\x7f\xff\xff\xff" + frame[4:],
    "negative": lambda frame: b"\xff\xff\xff\xff" + frame[4:],
    "empty": lambda frame: bytes(4),
    "two": lambda frame: frame + frame,
    "garbage": lambda frame: struct.pack(">i", 1000) + b"\xff" * 1000,
}


@pytest.mark.parametrize("how", MANGLED)
def test_a_malformed_answer_closes_the_connection(
    follow: Maker, leader: PlayedLeader, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    caplog.set_level(logging.WARNING)
    leader.mangle = MANGLED[how]
    leader.append()
    follower = follow()
    follower.turn_until(lambda: leader.connections >= 3, "another connection")
    assert len(caplog.records) == 1, "the error must be one line"
    leader.mangle = lambda frame: frame
    follower.turn_until(caught_up(follower, leader), "the log end")
    assert follower.content() == leader.log().content()


def test_answers_in_small_pieces(follow: Maker, leader: PlayedLeader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection.Frame, "room", property(lambda self: _frame_room(self)[:3]))
    for _ in range(3):
        leader.append(count=2)
    follower = follow()
    follower.turn_until(caught_up(follower, leader), "the log end")
    assert follower.content() == leader.log().content()


_frame_room = connection.Frame.room.fget  # type: ignore[attr-defined]  # a property


def test_a_large_buffer_is_given_back() -> None:
    frame = connection.Frame(connection.LinkLimits(1 << 20, 2 << 20, 1000, -1))

    def receive(size: int) -> int:
        data = struct.pack(">i", size) + bytes(size)
        while data:
            room = len(frame.room)
            frame.room[: len(data[:room])] = data[:room]
            frame.add(len(data[:room]), 2 << 20)
            data = data[room:]
        assert frame.is_complete
        used = len(frame._buffer)
        frame.clear()
        return used

    assert receive(100) == connection.SMALL
    assert receive(connection.SMALL) == 1 << 20
    assert [receive(100) for _ in range(connection.SMALL_IN_A_ROW)] == [1 << 20] * connection.SMALL_IN_A_ROW
    assert receive(100) == connection.SMALL
    assert receive(3 << 19) == (3 << 19) + 4
    assert receive(100) == connection.SMALL
