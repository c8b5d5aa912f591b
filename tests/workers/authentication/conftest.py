"""Workers with secured listeners in the test's process, and their clients."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.workers.authentication import unauthenticated
from odradek.workers.authentication.authentication import Authentication

from ...security.sasl.frames import authenticate, authenticate_answer, handshake, sized
from ...security.tls.conftest import certificates_in
from ..inprocess import Bench, Client
from ..inprocess import bench as make

LIFETIME_MS = 5000
TIMEOUT_S = 10
ALICE, BOB, WRONG = b"\0alice\0secret-of-alice", b"\0bob\0secret-of-bob", b"\0alice\0wrong-password"
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'user_alice="secret-of-alice" user_bob="secret-of-bob";'
)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The files of the broker's key and certificate, and of the CA."""
    return certificates_in(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def originals(certificates: tuple[str, str]) -> dict[str, str]:
    """Settings of listeners of all protocols."""
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": certificates[0],
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": certificates[1],
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
        "listener.name.sasl_ssl.plain.sasl.jaas.config": JAAS,
        "connections.max.reauth.ms": str(LIFETIME_MS),
        "connection.failed.authentication.delay.ms": "0",
    }


@pytest.fixture
def bench(tmp_path: Path, originals: dict[str, str]) -> Iterator[Bench]:
    """A worker with a listener of each protocol."""
    with make(tmp_path, originals=originals, odradek_authentication_timeout_ms=TIMEOUT_S * 1000) as made:
        yield made


@pytest.fixture
def later(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """`later(seconds)` advances the clock of authentication and runs its tick."""
    offset = [0.0]
    clock = SimpleNamespace(
        monotonic=lambda: time.monotonic() + offset[0],
        monotonic_ns=lambda: time.monotonic_ns() + int(offset[0] * 1e9),
        time_ns=lambda: time.time_ns() + int(offset[0] * 1e9),
    )
    monkeypatch.setattr(unauthenticated, "time", clock)
    tick = Authentication.tick
    monkeypatch.setattr(Authentication, "tick", lambda self, now: tick(self, now + offset[0]))

    def move(seconds: float) -> None:
        offset[0] += seconds
        authentication = bench.worker.authentication
        assert authentication is not None
        authentication.tick(time.monotonic())
        bench.turn(3)

    return move


class _Encrypted:
    """The client's side of TLS, with the calls and exceptions of a socket."""

    def __init__(self, wrapped: ssl.SSLSocket) -> None:
        self.wrapped = wrapped
        self.close = wrapped.close

    def send(self, data: Any) -> int:
        try:
            return self.wrapped.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None
        except ssl.SSLError as error:
            raise ConnectionError(str(error)) from None

    def recv(self, size: int) -> bytes:
        try:
            return self.wrapped.recv(size)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None
        except ssl.SSLError as error:
            raise ConnectionError(str(error)) from None


def encrypt(bench: Bench, client: Client, ca: str) -> None:
    """Wrap a client's socket in TLS, and do the handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(ca)
    context.check_hostname = False
    wrapped = context.wrap_socket(client.sock, do_handshake_on_connect=False)
    for _ in range(1000):
        try:
            wrapped.do_handshake()
            break
        except ssl.SSLWantReadError:
            bench.turn()
    client.sock = _Encrypted(wrapped)  # type: ignore[assignment]


Connect = Callable[..., Client]


@pytest.fixture
def connect(bench: Bench, certificates: tuple[str, str]) -> Connect:
    """`connect(protocol)`: a client after its TLS handshake, if the protocol has one."""

    def connected(protocol: str = "SASL_PLAINTEXT") -> Client:
        client = bench.connect(listener=protocol)
        if protocol.endswith("SSL"):
            encrypt(bench, client, certificates[1])
        return client

    return connected


@pytest.fixture
def known(connect: Connect) -> Connect:
    """`known(protocol)`: a client authenticated as alice."""

    def authenticated(protocol: str = "SASL_PLAINTEXT") -> Client:
        client = connect(protocol)
        client.send(sized(handshake("PLAIN")) + sized(authenticate(ALICE)))
        _, answer = client.answers(2)
        found = authenticate_answer(sized(answer))
        assert (found.error_code, found.session_lifetime_ms) == (0, LIFETIME_MS)
        return client

    return authenticated
