"""The acceptor within a supervisor: its errors end neither the supervisor nor a stop. Without processes."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator, Mapping
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from odradek.broker.acceptor import hosted_acceptor
from odradek.broker.acceptor.hosted_acceptor import HostedAcceptor
from odradek.ipc import roles

NO_FILES = OSError(24, "Too many open files")


class FakeAcceptor:
    """Reports what is asked of it, and raises what a test wants."""

    made: list[FakeAcceptor] = []
    fails_at = ""

    def __init__(self, process: object, listening: Mapping[str, socket.socket]) -> None:
        self.listening = listening
        self.calls: list[str] = []
        self.door, self._peer = socket.socketpair()
        self.made.append(self)
        self._does("start")

    def _does(self, what: str) -> None:
        self.calls.append(what)
        if what == self.fails_at:
            raise NO_FILES

    def fileno(self) -> int:
        return self.door.fileno()

    def turn(self, _timeout: float) -> None:
        self._does("turn")

    def adjust(self) -> float:
        return 0.5

    def finish(self) -> None:
        self._does("finish")

    def close(self) -> None:
        self.calls.append("close")
        for sock in (*self.listening.values(), self.door, self._peer):
            sock.close()


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[MagicMock]:
    monkeypatch.setattr(hosted_acceptor, "Acceptor", FakeAcceptor)
    monkeypatch.setattr(hosted_acceptor, "RETRY_S", 0.0)
    monkeypatch.setattr(FakeAcceptor, "made", [])
    yield MagicMock(role=roles.ACCEPTOR)
    for one in FakeAcceptor.made:
        one.close()


@pytest.fixture
def poll() -> select.poll:
    return select.poll()


def hosted(process: MagicMock, poll: select.poll) -> HostedAcceptor:
    return HostedAcceptor(cast(Any, process), {}, poll)


@pytest.mark.parametrize("fault", ["turn", "start"])
def test_acceptor_that_fails_is_closed_and_started_again(
    process: MagicMock, poll: select.poll, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    acceptor = hosted(process, poll)
    monkeypatch.setattr(FakeAcceptor, "fails_at", "turn")
    acceptor.turn({})
    assert FakeAcceptor.made[0].calls == ["start", "turn", "close"]
    monkeypatch.setattr(FakeAcceptor, "fails_at", fault)
    acceptor.turn({})
    monkeypatch.setattr(FakeAcceptor, "fails_at", "")
    acceptor.turn({})
    assert [one.calls[:2] for one in FakeAcceptor.made[-1:]] == [["start", "turn"]]
    assert acceptor.within(9) == 0.5
    FakeAcceptor.made[-1]._peer.send(b"x")
    assert poll.poll(0) == [(FakeAcceptor.made[-1].fileno(), select.POLLIN)], "the loop wakes for the new one only"


@pytest.mark.parametrize("fault", ["", "finish"])
def test_end_releases_the_role_whatever_fails(
    process: MagicMock, poll: select.poll, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    acceptor = hosted(process, poll)
    monkeypatch.setattr(FakeAcceptor, "fails_at", fault)
    acceptor.end()
    acceptor.end()
    acceptor.turn({})
    assert [one.calls for one in FakeAcceptor.made] == [["start", "finish", "close"]]
    process.locks.release.assert_called_once_with(roles.ACCEPTOR)


def test_acceptor_that_has_failed_can_be_ended(
    process: MagicMock, poll: select.poll, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosted_acceptor, "RETRY_S", 60.0)
    acceptor = hosted(process, poll)
    monkeypatch.setattr(FakeAcceptor, "fails_at", "turn")
    acceptor.turn({})
    acceptor.turn({})
    acceptor.end()
    assert len(FakeAcceptor.made) == 1, "it waits before it starts again"
    process.locks.release.assert_called_once_with(roles.ACCEPTOR)


def test_acceptor_that_cannot_start_holds_no_role(
    process: MagicMock, poll: select.poll, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the stop that follows takes the supervisor for an acceptor that others have started."""
    monkeypatch.setattr(FakeAcceptor, "fails_at", "start")
    with pytest.raises(OSError, match="Too many open files"):
        hosted(process, poll)
    process.locks.release.assert_called_once_with(roles.ACCEPTOR)
