"""Sessions that expire, and re-authentication (KIP-368): sequences of raw frames compared with a model."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.protocol import errors
from odradek.workers.net import framing

from ...clients.raw import batches, calls
from ...security.sasl.frames import api_versions, authenticate, handshake, metadata, sized
from ..inprocess import Bench, Client
from .conftest import ALICE, BOB, LIFETIME_MS, TIMEOUT_S, WRONG, Connect

Later = Callable[[float], None]
PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
EXPIRY_S = LIFETIME_MS / 1000 + 0.1
FRAMES = {
    "metadata": metadata(),
    "versions": api_versions(0),
    "handshake": handshake("PLAIN"),
    "other mechanism": handshake("SCRAM-SHA-256"),
    "alice": authenticate(ALICE),
    "bob": authenticate(BOB),
    "wrong": authenticate(WRONG),
}
PASSES = {"second": 1.1, "expiry": EXPIRY_S}  # s
CLOSED = "closed"


class Model:
    """The answers to one connection after its authentication: error codes, and whether it closes."""

    def __init__(self) -> None:
        self.now, self.ends, self.renewed = 0.0, LIFETIME_MS / 1000, -10.0
        self.exchange = False  # SaslHandshake was answered
        self.closed = False

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def frame(self, name: str) -> list[Any]:
        """The answers to a frame."""
        found = self._in_exchange(name) if self.exchange else self._known(name)
        self.closed = CLOSED in found
        return found

    def _known(self, name: str) -> list[Any]:
        if name == "handshake" and self.now - self.renewed >= 1:
            self.exchange, self.renewed = True, self.now
            return [errors.NONE]
        if name == "other mechanism" and self.now - self.renewed >= 1:
            return [errors.UNSUPPORTED_SASL_MECHANISM, CLOSED]
        if self.now > self.ends:
            return [CLOSED]
        if name in ("metadata", "versions"):
            return [errors.NONE]
        return [errors.ILLEGAL_SASL_STATE]

    def _in_exchange(self, name: str) -> list[Any]:
        if self.now - self.renewed > TIMEOUT_S:
            return [CLOSED]
        if name == "alice":
            self.exchange, self.ends = False, self.now + LIFETIME_MS / 1000
            return [errors.NONE]
        if name == "metadata":
            return [CLOSED]
        told = errors.SASL_AUTHENTICATION_FAILED if name in ("bob", "wrong") else errors.ILLEGAL_SASL_STATE
        return [told, CLOSED]


def error_of(name: str, answer: bytes) -> int:
    """The error code of an answer."""
    at = {"metadata": None, "alice": 5, "bob": 5, "wrong": 5}.get(name, 4)
    return 0 if at is None else int(struct.unpack_from(">h", answer, at)[0])


def ask(bench: Bench, client: Client, name: str) -> list[Any]:
    """Send a frame; return the error codes of its answers, and whether the connection is closed."""
    try:
        client.send(sized(FRAMES[name]))
    except ConnectionError:
        return [CLOSED]
    found = [error_of(name, answer) for answer in client.answers(1)]
    return [*found, CLOSED] if client.closed or client_is_closed(bench, client) else found


def client_is_closed(bench: Bench, client: Client) -> bool:
    bench.turn(4)
    client.read()
    return client.closed


@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(steps=st.lists(st.sampled_from([*FRAMES, *PASSES, "handshake", "alice", "metadata"]), max_size=9))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_any_sequence_of_frames_follows_the_model(
    bench: Bench, known: Connect, later: Later, protocol: str, steps: list[str]
) -> None:
    client, model = known(protocol), Model()
    for step in steps:
        if step in PASSES:
            later(PASSES[step])
            model.wait(PASSES[step])
        else:
            assert ask(bench, client, step) == model.frame(step), (step, steps)
            if model.closed:
                return
    client.sock.close()
    bench.turn()


def test_re_authentication_is_allowed_once_a_second(bench: Bench, known: Connect) -> None:
    """A client may re-authenticate at once after its first exchange, but not twice within a second."""
    client = known()
    assert ask(bench, client, "handshake") == [errors.NONE]
    assert ask(bench, client, "alice") == [errors.NONE]
    assert ask(bench, client, "handshake") == [errors.ILLEGAL_SASL_STATE]
    assert ask(bench, client, "metadata") == [errors.NONE]


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_exchange_on_a_listener_without_sasl_is_refused(bench: Bench, connect: Connect, protocol: str) -> None:
    client = connect(protocol)
    assert ask(bench, client, "handshake") == [errors.ILLEGAL_SASL_STATE]
    assert ask(bench, client, "alice") == [errors.ILLEGAL_SASL_STATE]
    assert ask(bench, client, "metadata") == [errors.NONE]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_delayed_fetch_is_answered_after_the_session_expires(
    bench: Bench, known: Connect, later: Later, protocol: str
) -> None:
    """After this answer, the client must re-authenticate."""
    client = known(protocol)
    client.send(client.frame(calls.fetch_request("t", 0, wait_ms=60_000)))
    bench.turn(5)
    later(EXPIRY_S)
    assert client.frames() == []
    produce(bench)
    (answer,) = client.answers(1)
    later(0.2)
    assert len(answer) > 100
    assert ask(bench, client, "handshake") == [errors.NONE]
    assert ask(bench, client, "alice") == [errors.NONE]
    assert ask(bench, client, "metadata") == [errors.NONE]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("room", [40, 1 << 20])
def test_exchange_sent_before_the_expiry_is_answered_after_a_delayed_fetch(
    bench: Bench, known: Connect, later: Later, protocol: str, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the session expires, the exchange is already in the worker's memory or in OpenSSL's."""
    monkeypatch.setattr(framing, "MOST_RECEIVED", room)
    client = known(protocol)
    exchange = sized(handshake("PLAIN")) + sized(authenticate(ALICE)) + sized(metadata())
    client.send(client.frame(calls.fetch_request("t", 0, wait_ms=60_000)) + exchange)
    bench.turn(5)
    later(EXPIRY_S)
    produce(bench)
    client.answers(1)
    later(0.2)
    assert len(client.answers(3)) == 3


def produce(bench: Bench) -> None:
    other = bench.connect()
    other.call(calls.produce_request("t", batches.batch([b"x" * 100])))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_exchange_among_pipelined_requests_is_answered_in_order(
    bench: Bench, known: Connect, later: Later, protocol: str
) -> None:
    """Each record is appended once."""
    client = known(protocol)
    sent = [client.frame(calls.produce_request("t", batches.batch([b"%d" % n]))) for n in range(6)]
    exchange = sized(handshake("PLAIN")) + sized(authenticate(ALICE))
    client.send(b"".join(sent[:3]) + exchange + b"".join(sent[3:]))
    answers = client.answers(8)
    assert len(answers) == 8
    correlations = [struct.unpack_from(">i", answer)[0] for answer in answers]
    assert correlations == [1, 2, 3, 7, 7, 4, 5, 6]
    offsets = [struct.unpack_from(">q", answer, len(answer) - 28)[0] for answer in answers if len(answer) > 40]
    assert offsets == list(range(6))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("held", [True, False])
def test_pipelined_requests_before_the_expiry_are_answered(
    bench: Bench, known: Connect, later: Later, protocol: str, held: bool
) -> None:
    """A request after the expiry closes the connection."""
    client = known(protocol)
    with bench.held("t"):
        client.send(b"".join(client.frame(calls.produce_request("t", batches.batch([b"x"]))) for _ in range(5)))
        bench.turn(5)
        if held:
            later(EXPIRY_S)
            client.send(client.frame(calls.produce_request("t", batches.batch([b"late"]))))
            bench.turn(5)
    assert len(client.answers(5)) == 5
    later(EXPIRY_S)
    if not held:
        client.send(client.frame(calls.produce_request("t", batches.batch([b"late"]))))
    assert client.gone()
    assert client.frames() == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_end_of_the_session_does_not_end_a_throttle_time(
    bench: Bench, known: Connect, later: Later, protocol: str
) -> None:
    """As in Kafka, an exchange that a throttled client sends is read when it may send requests again."""
    bench.limit("users/alice", producer_byte_rate=1)
    client = known(protocol)
    client.send(client.frame(calls.produce_request("t", batches.batch([b"x" * 1000]))))
    client.answers(1)
    connection = bench.connection(client)
    assert connection.throttled
    later(EXPIRY_S)
    client.send(sized(handshake("PLAIN")) + sized(authenticate(ALICE)) + sized(metadata()))
    bench.turn(5)
    later(0.2)
    assert client.frames() == [] and connection.throttled
    bench.worker.purgatory.expire(float("inf"))
    later(0.2)
    assert len(client.answers(3)) == 3


def test_throttled_connection_that_closes_is_forgotten(bench: Bench, known: Connect, later: Later) -> None:
    bench.limit("users/alice", producer_byte_rate=1)
    client = known()
    client.send(client.frame(calls.produce_request("t", batches.batch([b"x" * 1000]))))
    client.answers(1)
    later(EXPIRY_S)
    client.sock.close()
    bench.turn(5)
    assert len(bench.worker.purgatory) == 0 and not bench.worker.served()


def test_expired_connection_that_epoll_refuses_is_closed(
    bench: Bench, known: Connect, later: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel limits the number of watched descriptors; this must not end the worker."""

    def fails(*_: object) -> None:
        raise OSError("no room")

    client = known()
    monkeypatch.setattr(bench.worker.loop, "watch", fails)
    later(EXPIRY_S)
    assert client.gone()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_idle_client_stays_connected_after_the_expiry(
    bench: Bench, known: Connect, later: Later, protocol: str
) -> None:
    """An idle client has not failed; the authentication timeout starts with its next exchange."""
    client, other = known(protocol), known(protocol)
    later(EXPIRY_S)
    later(10 * TIMEOUT_S)
    assert bench.worker.authentication is not None
    assert bench.worker.authentication.unauthenticated.failures == 0
    assert ask(bench, client, "handshake") == [errors.NONE]
    assert ask(bench, client, "alice") == [errors.NONE]
    other.send(sized(handshake("PLAIN"))[:5])
    bench.turn(3)
    later(TIMEOUT_S + 0.1)
    assert other.gone()
    assert bench.worker.authentication.unauthenticated.failures == 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("end", ["idle", "client", "drain", "close"])
def test_idle_client_with_an_expired_session_is_removed(
    bench: Bench, known: Connect, later: Later, protocol: str, end: str
) -> None:
    client = known(protocol)
    later(EXPIRY_S)
    authentication = bench.worker.authentication
    assert authentication is not None
    assert len(list(authentication.expired)) == len(list(authentication.connections)) == 1
    if end == "client":
        client.sock.close()
    elif end == "idle":
        later(bench.values["connections.max.idle.ms"] / 1000 + 1)
    else:
        getattr(authentication, end)()
    bench.turn(5)
    assert list(authentication.connections) == []
    if end != "client":
        assert client.gone()


def test_request_completed_after_the_expiry_closes_the_connection(bench: Bench, known: Connect, later: Later) -> None:
    """As in Kafka, a request counts once it is complete."""
    client = known()
    frame = client.frame(calls.produce_request("t", batches.batch([bytes(400_000)])))
    client.send(frame[:300_000])
    bench.turn(5)
    later(EXPIRY_S)
    assert client.gone()


def test_answers_of_an_exchange_follow_a_large_answer(bench: Bench, known: Connect, later: Later) -> None:
    """A slow reader gets its large answer whole."""
    client = known()
    bench.connect().call(calls.produce_request("t", batches.batch([bytes(700_000)])))
    client.send(client.frame(calls.fetch_request("t", 0)) + sized(handshake("PLAIN")) + sized(authenticate(WRONG)))
    bench.turn(20)
    later(1)
    answers = client.answers(3)
    assert [len(answer) > 700_000 for answer in answers] == [True, False, False]
    assert client.gone()


def test_delay_after_a_failure_affects_only_the_failing_client(
    bench: Bench, known: Connect, later: Later, originals: dict[str, str]
) -> None:
    failing, other = known(), known()
    originals_changed = {**originals, "connection.failed.authentication.delay.ms": "1000"}
    authentication = bench.worker.authentication
    assert authentication is not None
    for listener in authentication._listeners.values():
        listener.follow(originals_changed, 0, authentication._credentials, authentication._api_versions)
    late = bench.connect(listener="SASL_PLAINTEXT")
    assert ask(bench, late, "handshake") == [errors.NONE]
    late.send(sized(authenticate(WRONG)))
    bench.turn(10)
    assert late.frames() == []
    assert not late.closed
    assert ask(bench, other, "metadata") == [errors.NONE]
    assert ask(bench, failing, "metadata") == [errors.NONE]
    later(1.1)
    assert len(late.answers(1)) == 1
    assert late.gone()
