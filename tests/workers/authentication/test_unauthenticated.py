"""Unauthenticated peers of one worker: bounds, faults, and isolation from other connections."""

from __future__ import annotations

import gc
import logging
import os
import socket
import struct
from collections.abc import Callable
from typing import Any

import pytest

from odradek.protocol import errors
from odradek.security.sasl.exchange import Exchange, Fail
from odradek.security.tls.principal_mapping import PrincipalMapper
from odradek.workers.authentication import unauthenticated
from odradek.workers.authentication.peer import IN
from odradek.workers.net import tls_socket

from ...harness.wire import header
from ...security.sasl.frames import api_versions, authenticate, handshake, metadata, sized
from ..inprocess import Bench, Client
from .conftest import ALICE, WRONG, Connect, encrypt
from .test_sessions import ask

Later = Callable[[float], None]


def waiting(bench: Bench) -> Any:
    """The unauthenticated peers."""
    assert bench.worker.authentication is not None
    return bench.worker.authentication.unauthenticated


def is_open(client: Client, bench: Bench) -> bool:
    bench.turn(3)
    client.read()
    return not client.closed


# -- bounds


def test_oldest_peer_is_closed_for_a_new_one(bench: Bench, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unauthenticated, "MOST", 3)
    clients = [connect() for _ in range(5)]
    assert [is_open(client, bench) for client in clients] == [False, False, True, True, True]
    for client in clients[2:]:
        assert ask(bench, client, "handshake") == [errors.NONE]
        assert ask(bench, client, "alice") == [errors.NONE]
    assert not waiting(bench).peers


def test_descriptor_is_not_reused_within_a_round(
    bench: Bench, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later events of the round belong to the connection that had the descriptor."""
    monkeypatch.setattr(unauthenticated, "MOST", 1)
    first = connect()
    (descriptor,) = waiting(bench).peers
    connect()
    os.fstat(descriptor)
    assert descriptor not in waiting(bench).peers
    assert not is_open(first, bench)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_peer_with_most_bytes_is_closed_above_the_limit(
    bench: Bench, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unauthenticated, "MOST_HELD", 3000)
    clients = [connect() for _ in range(4)]
    for client, size in zip(clients, (900, 1000, 800, 700), strict=True):
        client.send(struct.pack(">i", 60_000) + bytes(size))
        bench.turn(3)
    assert [is_open(client, bench) for client in clients] == [True, False, True, True]
    assert waiting(bench)._held == 900 + 800 + 700 + 3 * 4
    for client in clients:
        client.sock.close()
    bench.turn(5)
    assert waiting(bench)._held == 0


def test_unread_answers_count_towards_the_limit(
    bench: Bench, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer may repeat requests of an unsupported version; the answers fill the socket, then the memory."""
    monkeypatch.setattr(unauthenticated, "MOST_HELD", 10_000)
    client = connect()
    asks = sized(api_versions(9)) * 1000
    with pytest.raises(ConnectionError):
        for _ in range(1000):
            try:
                client.sock.send(asks)
            except BlockingIOError:
                bench.turn()
    assert not waiting(bench).peers


@pytest.mark.parametrize("size", [-1, -(1 << 31), 65_537, 524_288, 524_289, 1 << 30, (1 << 31) - 1])
def test_first_frame_of_an_invalid_size_closes_the_connection(bench: Bench, connect: Connect, size: int) -> None:
    client = connect()
    client.send(struct.pack(">i", size))
    assert client.gone()
    assert client.frames() == []


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_requests_before_authentication_close_the_connection(bench: Bench, connect: Connect, protocol: str) -> None:
    """No API is answered."""
    for key in range(120):
        if key not in (17, 18):
            client = connect(protocol)
            client.send(sized(header(key, 0, 1) + bytes(20)))
            assert client.gone(), key
            assert client.frames() == [], key
    assert not waiting(bench).peers


def test_slow_peers_are_closed_after_the_authentication_timeout(
    bench: Bench, connect: Connect, later: Later, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    clients = [bench.connect(listener=name) for name in ("SSL", "SASL_SSL", "SASL_PLAINTEXT")]
    slow = connect()
    for byte in sized(handshake("PLAIN"))[:9]:
        slow.send(bytes([byte]))
        later(1.12)
    assert not any(is_open(client, bench) for client in [*clients, slow])
    assert caplog.text.count("odradek.authentication.timeout.ms") == 4
    assert not waiting(bench).peers


def test_authenticated_client_is_not_closed_by_the_timeout(bench: Bench, known: Connect, later: Later) -> None:
    client = known()
    later(4)
    assert ask(bench, client, "metadata") == [errors.NONE]


# -- steps


def test_one_time_slice_a_turn_serves_all_ready_peers(bench: Bench, connect: Connect) -> None:
    """Bytes buffered in OpenSSL make a peer ready again during its step."""
    clients = [connect("SASL_SSL") for _ in range(5)]
    for client in clients:
        client.send(sized(api_versions(9)) * 4000)
    for _ in range(30):
        bench.worker.loop.turn(0)
        runs = [work for work, _ in bench.worker.deferred.waiting if work == waiting(bench)._run]
        assert len(runs) <= 1
        bench.worker._after_events()


def test_exception_in_one_exchange_closes_only_its_connection(
    bench: Bench, connect: Connect, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    receive = Exchange.receive

    def fails(self: Exchange, data: bytes, now: Any) -> Any:
        if b"boom" in data:
            raise RuntimeError("a bug")
        return receive(self, data, now)

    monkeypatch.setattr(Exchange, "receive", fails)
    bad, good = connect(), connect()
    bad.send(b"boom")
    good.send(sized(handshake("PLAIN")))
    assert bad.gone()
    assert len(good.answers(1)) == 1
    assert "authentication failed" in caplog.text
    assert ask(bench, good, "alice") == [errors.NONE]


def test_unreadable_certificate_closes_the_connection(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, certificates: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    def fails(*_: object) -> None:
        raise ValueError("error parsing asn1 value: ParseError { kind: InvalidValue }")

    monkeypatch.setattr(PrincipalMapper, "principal", fails)
    client = bench.connect(listener="SSL")
    encrypt(bench, client, certificates[1])
    assert client.gone()
    assert "the certificate cannot be read" in caplog.text


def test_bytes_after_the_token_are_requests(bench: Bench, connect: Connect) -> None:
    for protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
        client = connect(protocol)
        client.send(sized(handshake("PLAIN")) + sized(authenticate(ALICE)) + sized(metadata()) * 50)
        assert len(client.answers(52)) == 52


def test_bytes_buffered_in_openssl_are_read(bench: Bench, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes are one TLS record, and each read takes a part of it."""
    monkeypatch.setattr(tls_socket, "MOST", 9)
    client = connect("SASL_SSL")
    client.send(sized(api_versions(3)) + sized(handshake("PLAIN")) + sized(authenticate(ALICE)) + sized(metadata()) * 3)
    assert len(client.answers(6)) == 6


def test_bytes_buffered_in_openssl_are_read_after_unsent_answers(
    bench: Bench, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_socket, "MOST", 900)
    client = connect("SASL_SSL")
    asks = sized(api_versions(9)) * 30_000
    client.send(asks + sized(handshake("PLAIN")) + sized(authenticate(ALICE)) + sized(metadata()))
    assert len(client.answers(30_003)) == 30_003


# -- ends


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL", "SASL_PLAINTEXT"])
@pytest.mark.parametrize("reset", [False, True])
def test_client_that_disconnects_in_any_state_leaves_nothing(bench: Bench, protocol: str, reset: bool) -> None:
    """The connection is TCP, so that it can be reset."""
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for sent in (
        b"",
        b"\x16\x03\x01",
        b"GET / HTTP/1.1\r\n\r\n",
        sized(handshake("PLAIN")),
        sized(handshake("PLAIN", 0)),
    ):
        client, server = tcp_pair()
        if reset:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        bench.worker.accept(server, protocol, "h", 1)
        client.send(sent)
        bench.turn(2)
        client.close()
        bench.turn(6)
        assert not waiting(bench).peers, sent
    assert len(os.listdir("/proc/self/fd")) == before


def test_connection_reset_before_it_is_accepted_leaves_nothing(bench: Bench) -> None:
    """The acceptor hands over the connection nevertheless."""
    for protocol in ("SSL", "SASL_SSL", "SASL_PLAINTEXT"):
        client, server = tcp_pair()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.send(b"x")
        client.close()
        try:
            bench.worker.accept(server, protocol, "h", 1)
        except OSError:
            server.close()
        bench.turn(5)
        assert not waiting(bench).peers


def test_half_closed_client_gets_its_answer(bench: Bench) -> None:
    client, server = tcp_pair()
    bench.worker.accept(server, "SASL_PLAINTEXT", "h", 1)
    client.send(sized(handshake("PLAIN")) + sized(authenticate(WRONG)))
    client.shutdown(socket.SHUT_WR)
    bench.turn(10)
    client.settimeout(10)
    received = b""
    while data := client.recv(1000):
        received += data
    assert b"wrong user or password" in received
    client.close()


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        return client, server.accept()[0]


def test_late_event_does_not_close_a_failing_peer(bench: Bench, connect: Connect, later: Later) -> None:
    """The peer waits for its delayed error answer."""
    peers = waiting(bench)
    client = connect()
    (peer,) = peers.peers.values()
    peers._fail(peer, Fail("a test", b"answer", 500))
    peers._event(peer, IN)
    bench.turn(3)
    assert is_open(client, bench)
    later(0.6)
    client.read()
    assert client._bytes == b"answer"
    assert client.closed


def test_expired_session_of_a_disconnected_client_is_closed(bench: Bench, known: Connect, later: Later) -> None:
    """The socket's error must not harm the worker."""
    client = known()
    client.send(sized(handshake("PLAIN"))[:7])
    bench.turn(3)
    (connection,) = bench.worker.loop.connections.values()
    later(4.9)
    client.send(sized(handshake("PLAIN"))[7:])
    client.sock.shutdown(socket.SHUT_RD)
    later(0.3)
    bench.turn(5)
    assert connection.closed


def test_held_bytes_are_released_when_a_client_is_closed(bench: Bench, connect: Connect) -> None:
    for _ in range(3):
        client = connect()
        client.send(sized(handshake("PLAIN")) + sized(authenticate(ALICE)) + struct.pack(">i", -5) + bytes(30))
        assert client.gone()
    assert waiting(bench)._held == 0
    assert not waiting(bench).peers


def test_draining_worker_closes_peers_after_a_second(bench: Bench, connect: Connect, later: Later) -> None:
    silent, quick, late = connect(), connect(), connect()
    bench.worker._begin_drain()
    assert ask(bench, quick, "handshake") == [errors.NONE]
    assert ask(bench, quick, "alice") == [errors.NONE]
    assert is_open(silent, bench)
    after = connect()
    later(1.1)
    assert not any(is_open(client, bench) for client in (silent, late, after))
    assert not waiting(bench).peers


# -- the log


def test_failures_do_not_fill_the_log(
    bench: Bench, connect: Connect, later: Later, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(100):
        client = connect()
        client.send(b"GET / HTTP/1.1\r\n\r\n")
        assert client.gone()
    later(1.1)
    lines = [line for line in caplog.messages if "authentication failed" in line]
    counts = [int(line.split()[0]) for line in caplog.messages if "more failed authentications" in line]
    assert len(lines) + sum(counts) == 100 == waiting(bench).failures
    assert len(lines) <= unauthenticated.MOST_LINES * (len(counts) + 2)


def test_passwords_are_not_logged(bench: Bench, connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for token in (
        ALICE,
        WRONG,
        b"\0alice\0",
        b"secret-of-alice",
        b"\0\0secret-of-alice",
        b"alice\0alice\0wrong-password",
    ):
        client = connect()
        client.send(sized(handshake("PLAIN")) + sized(authenticate(token)))
        client.answers(2)
    assert "authenticated as User:alice" in caplog.text
    assert "secret-of" not in caplog.text
    assert "wrong-password" not in caplog.text


def test_line_breaks_of_a_peer_forge_no_log_line(
    bench: Bench, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has the mechanism, with the line break escaped, and not the user name."""
    caplog.set_level(logging.DEBUG)
    client = connect()
    client.send(sized(handshake("PLAIN\nERROR forged")))
    client.answers(1)
    client = connect()
    client.send(sized(handshake("PLAIN")) + sized(authenticate(b"\0bob\nERROR forged\0x")))
    client.answers(2)
    mechanism, user = [message for message in caplog.messages if "authentication failed" in message]
    assert "the mechanism 'PLAIN\\nERROR forged' is not" in mechanism
    assert "forged" not in user
    assert not any("\n" in message for message in caplog.messages)
