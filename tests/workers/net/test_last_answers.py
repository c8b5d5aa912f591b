"""A draining worker closes connections that nobody can take over with their last answer."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from odradek.workers.net.connection import Connection
from odradek.workers.net.connection_state import CLOSED
from odradek.workers.net.last_answers import PATIENCE_S, RECORD_S, LastAnswers

from ...harness.process import readable

NOW = 100.0


class Pair(NamedTuple):
    """A connection, and the client's end of it."""

    connection: Connection
    client: socket.socket

    def request(self) -> None:
        """A request comes, and is taken."""
        self.client.sendall(b"request")
        assert readable(self.connection.sock, 10)
        assert self.connection.sock.recv_into(memoryview(bytearray(100)))
        self.connection.active = True

    def answer(self) -> None:
        self.connection.sock.send(b"answer", 0)


@pytest.fixture
def pair() -> Iterator[Pair]:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        accepted, _ = server.accept()
        with accepted:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield Pair(Connection(accepted, "PLAINTEXT", "127.0.0.1", 1), client)


class Closed(list[Connection]):
    """What was closed."""

    def close(self, connection: Connection, why: str) -> None:
        assert why == "closed: the worker is stopping"
        connection.sock.close()
        self.append(connection)


@pytest.fixture
def closed() -> Closed:
    return Closed()


@pytest.fixture
def last_answers(closed: Closed) -> LastAnswers:
    return LastAnswers(closed.close)


def test_silent_connection_is_closed_at_once(pair: Pair, last_answers: LastAnswers, closed: Closed) -> None:
    pair.connection.active = False
    last_answers.add(pair.connection, NOW)
    assert last_answers.turn(NOW)
    assert closed == [pair.connection]
    assert not last_answers.turn(NOW)


def test_active_connection_is_closed_with_the_answer_to_its_next_request(
    pair: Pair, last_answers: LastAnswers, closed: Closed
) -> None:
    """The client does not see the answer before the end, which come together."""
    last_answers.add(pair.connection, NOW)
    assert not last_answers.turn(NOW), "it has asked a moment ago"
    pair.request()
    pair.answer()
    assert not readable(pair.client, 0.05)
    last_answers.add(pair.connection, NOW)
    assert last_answers.turn(NOW)
    assert closed == [pair.connection]
    assert (pair.client.recv(100), pair.client.recv(100)) == (b"answer", b"")


def test_request_that_has_come_is_served_first(pair: Pair, last_answers: LastAnswers, closed: Closed) -> None:
    """The worker has not read it yet, and the client gets the answer to the one before."""
    last_answers.add(pair.connection, NOW)
    pair.request()
    pair.answer()
    pair.client.sendall(b"request")
    assert readable(pair.connection.sock, 10)
    assert not last_answers.turn(NOW + 2 * PATIENCE_S)
    assert pair.client.recv(100) == b"answer"
    assert pair.connection.sock.recv_into(memoryview(bytearray(100)))
    pair.answer()
    assert last_answers.turn(NOW)
    assert closed == [pair.connection]


def test_part_of_a_record_is_no_request(pair: Pair, last_answers: LastAnswers, closed: Closed) -> None:
    """Bytes have come that OpenSSL keeps, and no answer was sent. Without more of them the client is silent."""
    last_answers.add(pair.connection, NOW)
    pair.request()
    assert not last_answers.turn(NOW + PATIENCE_S)
    assert not last_answers.turn(NOW + PATIENCE_S + RECORD_S / 2)
    assert last_answers.turn(NOW + PATIENCE_S + RECORD_S)


def test_rest_of_a_request_may_still_come(pair: Pair, last_answers: LastAnswers, closed: Closed) -> None:
    """Also if it comes slowly: the time of its last bytes is kept for the limit of unfinished requests."""
    pair.connection.active = False
    pair.connection.partial = b"the start"
    last_answers.add(pair.connection, NOW)
    pair.connection.active = True
    assert not last_answers.turn(NOW + 7)
    assert pair.connection.last_active == NOW + 7
    assert closed == []


def test_open_request_is_answered_first(pair: Pair, last_answers: LastAnswers, closed: Closed) -> None:
    """It waits for replicas, for example."""
    last_answers.add(pair.connection, NOW)
    pair.request()
    pair.connection.in_flight.append(object())
    assert not last_answers.turn(NOW + 2 * PATIENCE_S)
    assert not last_answers.turn(NOW + 2 * PATIENCE_S)
    pair.connection.in_flight.clear()
    pair.answer()
    assert last_answers.turn(NOW)
    assert closed == [pair.connection]
    assert pair.client.recv(100) == b"answer"


def test_client_that_sends_nothing_more_is_closed_in_the_end(
    pair: Pair, last_answers: LastAnswers, closed: Closed
) -> None:
    last_answers.add(pair.connection, NOW)
    assert not last_answers.turn(NOW + PATIENCE_S / 2)
    assert last_answers.turn(NOW + PATIENCE_S)
    assert closed == [pair.connection]


def test_connection_that_has_ended_meanwhile_is_forgotten(
    pair: Pair, last_answers: LastAnswers, closed: Closed
) -> None:
    last_answers.add(pair.connection, NOW)
    pair.connection.state = CLOSED
    assert last_answers.turn(NOW)
    assert closed == []


def test_connection_that_authenticates_again_gets_its_answers_at_once(
    pair: Pair, last_answers: LastAnswers, closed: Closed
) -> None:
    last_answers.add(pair.connection, NOW)
    pair.request()
    pair.answer()
    last_answers.forget(pair.connection)
    with socket.fromfd(pair.connection.fd, socket.AF_INET, socket.SOCK_STREAM) as same:
        assert not same.getsockopt(socket.IPPROTO_TCP, socket.TCP_CORK)
    assert pair.client.recv(100) == b"answer"
    assert not last_answers.turn(NOW + 2 * PATIENCE_S)
    assert closed == []
    last_answers.forget(pair.connection)
