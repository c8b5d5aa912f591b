"""Compares our exchange with Apache Kafka: the same frames get the same answers and close the same connections."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from odradek.security.sasl.exchange import Authenticated, Exchange, Fail, Now, SaslListener
from odradek.security.sasl.exchange_states import State
from odradek.security.sasl.jaas import login_module
from odradek.security.sasl.plain import LOGIN_MODULE, PlainServer, users
from odradek.security.sasl.scram_keys import ScramMechanism
from odradek.security.sasl.scram_server import ScramServer, ScramStore
from tests.harness.apache import Apache
from tests.harness.process import free_port

from .frames import (
    api_versions,
    authenticate,
    authenticate_answer,
    handshake,
    handshake_answer,
    head,
    metadata,
    sized,
)  # fmt: skip

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1")]
JAAS = f'{LOGIN_MODULE} required username="x" password="y" user_alice="secret" user_bob="secret";'
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
ALICE, BOB, WRONG = b"\0alice\0secret", b"\0bob\0secret", b"\0alice\0wrong"
LIFETIME = 60_000

LISTENER = SaslListener(
    {
        "PLAIN": lambda: PlainServer(users(login_module(JAAS))),
        "SCRAM-SHA-256": lambda: ScramServer(ScramStore(ScramMechanism.SCRAM_SHA_256, lambda user: None)),
    },
    lambda version, error: struct.pack(">h", error),
    {"PLAIN": LIFETIME, "SCRAM-SHA-256": 0},
)


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a SASL listener of Apache Kafka."""
    with apache(tmp_path_factory.mktemp("sasl")) as found:
        yield found


@contextmanager
def apache(folder: Path, lifetime_ms: int = LIFETIME) -> Iterator[int]:
    """The port of a SASL listener; `lifetime_ms` is connections.max.reauth.ms of PLAIN."""
    mine = free_port()
    broker = Apache(
        "3.9.1",
        folder,
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT",
        sasl_enabled_mechanisms="PLAIN,SCRAM-SHA-256",
        listener_name_sasl_plain_sasl_jaas_config=JAAS,
        listener_name_sasl_plain_connections_max_reauth_ms=lifetime_ms,
    )
    more = f"listener.name.sasl.scram-sha-256.sasl.jaas.config={MODULE}\n"
    more += "inter.broker.listener.name=PLAINTEXT\n"
    text = broker.properties.read_text().replace("CONTROLLER://", f"SASL://127.0.0.1:{mine},CONTROLLER://", 1)
    text = text.replace("\nadvertised.listeners=", f"\nadvertised.listeners=SASL://127.0.0.1:{mine},")
    broker.properties.write_text(text + more)
    broker.start()
    try:
        yield mine
    finally:
        broker.stop()


SCRIPTS = {
    "plain": [handshake("PLAIN"), authenticate(ALICE)],
    "plain after versions": [api_versions(3), handshake("PLAIN"), authenticate(ALICE, 1)],
    "plain without lifetimes": [api_versions(0), handshake("PLAIN"), authenticate(ALICE, 0)],
    "bare tokens": [handshake("PLAIN", 0), ALICE],
    "bare wrong token": [handshake("PLAIN", 0), WRONG],
    "wrong": [handshake("PLAIN"), authenticate(WRONG)],
    "malformed token": [handshake("PLAIN"), authenticate(b"x")],
    "malformed scram": [handshake("SCRAM-SHA-256"), authenticate(b"x")],
    "unknown mechanism": [handshake("GSSAPI")],
    "unknown mechanism, version 0": [handshake("X", 0)],
    "two versions": [api_versions(3), api_versions(3)],
    "unsupported versions": [api_versions(9), api_versions(3), handshake("PLAIN"), authenticate(ALICE)],
    "bad software": [api_versions(3, "!"), handshake("PLAIN"), authenticate(ALICE)],
    "metadata first": [metadata()],
    "metadata after versions": [api_versions(3), metadata()],
    "tokens first": [authenticate(ALICE)],
    "handshake twice": [handshake("PLAIN"), handshake("PLAIN")],
    "versions among tokens": [handshake("PLAIN"), api_versions(2)],
    "gssapi token": [b"\x60\x82\x01\x00\x06\x09\x2a"],
    "nothing": [b""],
    "newer handshake": [head(17, 5) + b"\0\5PLAIN"],
    "cut handshake": [handshake("PLAIN")[:-2]],
    "newer token": [handshake("PLAIN"), head(36, 9) + b"\0\1\1\0"],
    "again": [handshake("PLAIN"), authenticate(ALICE), handshake("PLAIN"), authenticate(ALICE)],
    "again as another": [handshake("PLAIN"), authenticate(ALICE), handshake("PLAIN"), authenticate(BOB)],
    "again wrong": [handshake("PLAIN"), authenticate(ALICE), handshake("PLAIN"), authenticate(WRONG)],
    "again, another mechanism": [
        handshake("PLAIN"), authenticate(ALICE), handshake("SCRAM-SHA-256"), authenticate(ALICE),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", SCRIPTS)
def test_answers_equal_kafkas(port: int, name: str) -> None:
    script = SCRIPTS[name]
    assert kafka_answers(port, script) == our_answers(script)


def test_unknown_mechanism_in_re_authentication_is_answered(port: int) -> None:
    """Kafka closes the connection without an answer, so its client cannot see the reason."""
    script = [handshake("PLAIN"), authenticate(ALICE), handshake("GSSAPI")]
    ours = our_answers(script)
    assert ours.pop(2) == ("handshake", 33, ["PLAIN", "SCRAM-SHA-256"])
    assert kafka_answers(port, script) == ours


def kafka_answers(port: int, script: Sequence[bytes | float]) -> list[Any]:
    """The answers of a broker to frames; a number is a pause in seconds."""
    found: list[Any] = []
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        for request in script:
            if isinstance(request, float):
                time.sleep(request)
                continue
            try:
                connection.sendall(sized(request))
                size = _read(connection, 4)
                answer = size + _read(connection, struct.unpack(">i", size)[0])
            except (EOFError, ConnectionError):
                return [*found, "closed"]
            found.append(_seen(request, answer))
        connection.settimeout(0.5)
        try:
            return found if connection.recv(1) else [*found, "closed"]
        except TimeoutError:
            return found


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def our_answers(script: list[bytes]) -> list[Any]:
    found: list[Any] = []
    made, now = Exchange(LISTENER), Now(int(time.time() * 1000), 0)
    for request in script:
        again = made.state is State.COMPLETE
        effects = made.reauthenticate(request, now) if again else made.on_frame(request, now)
        for effect in effects or []:
            if isinstance(effect, Fail):
                return [*found, *([_seen(request, effect.response)] if effect.response else []), "closed"]
            if not isinstance(effect, Authenticated):
                found.append(_seen(request, effect.data))
    return found


def _seen(request: bytes, answer: bytes) -> tuple[Any, ...]:
    """The comparable part of an answer, without error messages."""
    key, version = struct.unpack_from(">hh", request) if len(request) > 3 and not request[0] else (None, None)
    if key == 17:
        found = handshake_answer(answer)
        return "handshake", found.error_code, sorted(found.mechanisms)
    if key == 36:
        found = authenticate_answer(answer, version)
        lifetime = found.session_lifetime_ms if version else 0
        return "token", found.error_code, found.auth_bytes, lifetime, found.error_message is None
    if key == 18:
        return "versions", struct.unpack_from(">h", answer, 8)[0]
    return "bare", answer
