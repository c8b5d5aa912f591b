"""A worker that gives its connections, and one that takes them: each in the test's process, the test is the other."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from odradek.ipc.channel import Channel
from odradek.security.principal import Principal
from odradek.security.sasl.exchange import Exchange, Now, SaslListener, Session
from odradek.security.sasl.exchange_states import State
from odradek.workers.authentication import kept_sessions
from odradek.workers.takeover import takeover_messages
from odradek.workers.takeover.handing_over import HandingOver
from odradek.workers.takeover.takeover_messages import NEWEST, OLDEST, Kept
from odradek.workers.takeover.taking_over import TakingOver

from ...clients.raw.batches import batch
from ...clients.raw.calls import fetch_request, produce_request
from ..inprocess import Bench, Client, correlations, raw

VERSIONS = raw(18, 0, 7)
ALICE = Principal("User", "alice")
KEPT = Kept("PLAINTEXT", "h", 1, ("User", "ANONYMOUS"), False, None, b"\0\7harness", 0, b"")


class Other:
    """The test's end of the channel, and what the worker has reported."""

    def __init__(self, bench: Bench, begin: Callable[[Channel, list[bytes]], Any]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.bench, self.link = bench, Channel(ours)
        self.said: list[bytes] = []
        self.kept_alive = begin(Channel(theirs), self.said)

    def await_message(self, kind: bytes) -> bytes:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            self.bench.turn()
            for message in self.link.receive():
                if message[:1] == kind:
                    return message
        raise AssertionError(f"no message {kind!r}")

    def nothing_comes(self) -> bool:
        self.bench.turn(20)
        return self.link.receive() == []

    def fd(self) -> int:
        (fd,) = self.link.take_fds()
        return fd


@pytest.fixture
def taker(bench: Bench) -> Iterator[Callable[[], Other]]:
    """`taker()` makes the bench's worker hand over; returns the end of its successor, which has greeted."""
    made: list[Other] = []

    def make() -> Other:
        other = Other(bench, lambda link, said: HandingOver(bench.worker, link, 60, said.append))
        made.append(other)
        other.link.send(takeover_messages.versions(OLDEST, NEWEST))
        return other

    yield make
    for other in made:
        other.link.close()


@pytest.fixture
def giver(bench: Bench) -> Iterator[Other]:
    """The end of the worker that the bench's worker takes over from."""
    other = Other(bench, lambda link, _: TakingOver(bench.worker, link))
    yield other
    other.link.close()


def give(other: Other, number: int, kept: Kept) -> Client:
    """Give the worker a connection; returns the client's end."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with theirs:
        other.link.send(takeover_messages.give(number, kept), [theirs.fileno()])
    client = Client(ours, other.bench)
    other.bench._clients.append(client)
    return client


# -- the giver


def test_unfinished_frame_client_id_and_principal_go_along(bench: Bench, client: Client, taker: Any) -> None:
    bench.connection(client).principal = ALICE
    client.send(VERSIONS + VERSIONS[:9])
    client.answers()
    other = taker()
    kept = takeover_messages.kept(other.await_message(takeover_messages.GIVE))
    os.close(other.fd())
    assert kept == KEPT._replace(port=0, principal=("User", "alice"), received=VERSIONS[:9])
    assert not bench.worker.loop.connections


def test_fetch_that_waits_is_answered_before_its_connection_goes(bench: Bench, client: Client, taker: Any) -> None:
    client.send(client.frame(fetch_request("t", 0, wait_ms=60_000)))
    bench.turn(5)
    assert client.frames() == []
    other = taker()
    other.await_message(takeover_messages.GIVE)
    os.close(other.fd())
    assert correlations(client.frames()) == [1]


def test_connection_with_an_unanswered_request_stays_until_it_is_answered(
    bench: Bench, client: Client, taker: Any
) -> None:
    with bench.held("t"):
        client.send(client.frame(produce_request("t", batch([b"a"]))))
        bench.turn(5)
        other = taker()
        assert other.nothing_comes()
    other.await_message(takeover_messages.GIVE)
    os.close(other.fd())
    assert correlations(client.frames()) == [1]


def test_client_that_pipelines_without_a_pause_gets_its_answers_and_goes(
    bench: Bench, client: Client, taker: Any
) -> None:
    frames = [client.frame(produce_request("t", batch([b"a"]))) for _ in range(3)]
    with bench.held("t"):
        client.send(frames[0] + frames[1])
        bench.turn(5)
        other = taker()
        assert other.nothing_comes()
        client.send(frames[2])
        assert other.nothing_comes()
    other.await_message(takeover_messages.GIVE)
    taken = socket.socket(fileno=other.fd())
    assert correlations(client.frames()) == [1, 2]
    assert taken.recv(1000) == frames[2], "no process has taken it"
    taken.close()


def test_connection_that_is_not_taken_is_served_on(bench: Bench, client: Client, taker: Any) -> None:
    client.send(VERSIONS[:9])
    bench.turn(5)
    other = taker()
    number = takeover_messages.number_of(other.await_message(takeover_messages.GIVE))
    os.close(other.fd())
    other.link.send(takeover_messages.numbered(takeover_messages.NOT_TAKEN, number))
    other.await_message(takeover_messages.END)
    client.send(VERSIONS[9:])
    assert correlations(client.answers()) == [7]
    assert other.said == [takeover_messages.DONE] and bench.worker._stopping


def test_given_connection_ends_and_others_go_on_when_the_taker_dies(bench: Bench, client: Client, taker: Any) -> None:
    other = taker()
    other.await_message(takeover_messages.GIVE)
    late = bench.connect()
    os.close(other.fd())
    other.link.close()
    assert client.gone()
    late.send(VERSIONS)
    assert correlations(late.answers()) == [7]
    bench.turn(5)
    assert other.said == [takeover_messages.FAILED + b"the new worker has ended"]
    assert not bench.worker._stopping


def test_taken_connection_is_the_takers_alone(bench: Bench, client: Client, taker: Any) -> None:
    other = taker()
    number = takeover_messages.number_of(other.await_message(takeover_messages.GIVE))
    taken = socket.socket(fileno=other.fd())
    other.link.send(takeover_messages.numbered(takeover_messages.TOOK, number))
    other.await_message(takeover_messages.END)
    client.send(VERSIONS)
    bench.turn(5)
    assert taken.recv(100) == VERSIONS
    taken.close()
    assert client.gone()


def test_throttle_time_goes_along(bench: Bench, client: Client, taker: Any) -> None:
    connection = bench.connection(client)
    bench.worker.muting.mute(connection, 60_000)
    client.send(VERSIONS)
    bench.turn(5)
    other = taker()
    kept = takeover_messages.kept(other.await_message(takeover_messages.GIVE))
    os.close(other.fd())
    assert 30_000 < kept.muted_until_ms - time.monotonic() * 1000 <= 60_000
    assert kept.received == b"", "it waits in the socket"


# -- the taker


def test_taker_continues_in_the_middle_of_a_frame(bench: Bench, giver: Other) -> None:
    client = give(giver, 0, KEPT._replace(principal=("User", "alice"), received=VERSIONS + VERSIONS[:9]))
    giver.await_message(takeover_messages.TOOK)
    client.send(VERSIONS[9:])
    assert correlations(client.answers(2)) == [7, 7]
    (connection,) = bench.worker.loop.connections.values()
    assert (connection.client_id, connection.principal) == ("harness", ALICE)


def test_taker_takes_no_request_of_a_throttled_client_before_its_time(bench: Bench, giver: Other) -> None:
    until = int(time.monotonic() * 1000) + 60_000
    client = give(giver, 0, KEPT._replace(muted_until_ms=until, received=VERSIONS))
    giver.await_message(takeover_messages.TOOK)
    bench.turn(10)
    assert client.frames() == []
    (connection,) = bench.worker.loop.connections.values()
    connection.mute.expire()
    assert correlations(client.answers()) == [7]


@pytest.mark.parametrize("change", [{"listener": "GONE"}, {"session": {"mechanism": "PLAIN"}}, {"principal": ("a",)}])
def test_connection_that_cannot_be_served_is_refused_unread(bench: Bench, giver: Other, change: dict[str, Any]) -> None:
    ours, theirs = socket.socketpair()
    ours.send(VERSIONS)
    giver.link.send(takeover_messages.give(0, KEPT._replace(**change)), [theirs.fileno()])
    assert takeover_messages.number_of(giver.await_message(takeover_messages.NOT_TAKEN)) == 0
    assert theirs.recv(100) == VERSIONS
    for sock in (ours, theirs):
        sock.close()
    again = give(giver, 1, KEPT)
    giver.await_message(takeover_messages.TOOK)
    again.send(VERSIONS)
    assert correlations(again.answers()) == [7]


def test_taker_keeps_its_connections_when_the_giver_dies(bench: Bench, giver: Other) -> None:
    client = give(giver, 0, KEPT)
    giver.await_message(takeover_messages.TOOK)
    giver.link.close()
    bench.turn(5)
    client.send(VERSIONS)
    assert correlations(client.answers()) == [7]


# -- sessions


def test_session_goes_along_and_may_be_renewed() -> None:
    listener = SaslListener({}, lambda *_: b"", {})
    exchange = Exchange.resumed(listener, Session(ALICE, "PLAIN", True, 5000, 9000, True), 700)
    again = kept_sessions.exchange_of(listener, kept_sessions.fields(exchange) or {}, ALICE, True)
    assert (again.state, again.session, again.reauthenticated_ms) == (State.COMPLETE, exchange.session, 700)
    assert again.may_reauthenticate(Now(0, 5000)) and not again.may_reauthenticate(Now(0, 1000))
    assert kept_sessions.fields(None) is None


def test_frame_of_the_test_is_whole() -> None:
    assert len(VERSIONS) == 4 + struct.unpack_from(">i", VERSIONS)[0]
