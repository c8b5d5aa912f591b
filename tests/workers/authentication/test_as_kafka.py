"""Apache Kafka and a whole broker give the same frames the same answers, and close the same connections.

Beyond tests/security/sasl/test_exchange_as_kafka, this includes the broker around the exchange, and expired sessions.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from ...security.sasl.frames import authenticate, handshake, metadata
from ...security.sasl.test_exchange_as_kafka import ALICE, BOB, JAAS, SCRIPTS, WRONG, apache, kafka_answers
from .secured_broker import SecuredBroker

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.needs("java-3.9.1")]

LIFETIME_MS = 3000
EXPIRY = 3.5  # s: after this time, a session has expired
Ports = tuple[int, int]
Answers = list[Any]


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    """The ports of Apache Kafka's listener and of ours."""
    ours = SecuredBroker(tmp_path_factory.mktemp("ours"), sasl_enabled_mechanisms="PLAIN,SCRAM-SHA-256")
    ours.properties["listener.name.sasl_plaintext.plain.sasl.jaas.config"] = JAAS
    ours.properties["listener.name.sasl_plaintext.plain.connections.max.reauth.ms"] = LIFETIME_MS
    try:
        ours.start()
        with apache(tmp_path_factory.mktemp("apache"), LIFETIME_MS) as port:
            yield port, ours.ports["SASL_PLAINTEXT"]
    finally:
        ours.close()


KNOWN: list[bytes | float] = [handshake("PLAIN"), authenticate(ALICE, 1)]
AGAIN: list[bytes | float] = [handshake("PLAIN"), authenticate(ALICE, 1)]
SESSIONS: dict[str, list[bytes | float]] = {
    "a request of an authenticated client": [*KNOWN, metadata()],
    "a request after the expiry": [*KNOWN, EXPIRY, metadata()],
    "a token after the expiry": [*KNOWN, EXPIRY, authenticate(ALICE, 1)],
    "another exchange after the expiry": [*KNOWN, EXPIRY, *AGAIN, metadata()],
    "another exchange before the expiry": [*KNOWN, *AGAIN, metadata()],
    "two exchanges within a second": [*KNOWN, *AGAIN, *AGAIN, metadata()],
    "two exchanges with a second between": [*KNOWN, *AGAIN, 1.2, *AGAIN, metadata()],
    "a token without a handshake": [*KNOWN, authenticate(ALICE, 1), metadata()],
    "another user after the expiry": [*KNOWN, EXPIRY, handshake("PLAIN"), authenticate(BOB, 1)],
    "a wrong password after the expiry": [*KNOWN, EXPIRY, handshake("PLAIN"), authenticate(WRONG, 1)],
    "the expiry during another exchange": [*KNOWN, handshake("PLAIN"), EXPIRY, authenticate(ALICE, 1), metadata()],
    "the second expiry": [*KNOWN, EXPIRY, *AGAIN, EXPIRY, metadata()],
}


BEFORE = {name: script for name, script in SCRIPTS.items() if name not in ("cut handshake", "unsupported versions")}
AMID = "a request during another exchange"
ALL: dict[str, Any] = {**BEFORE, **SESSIONS, AMID: [*KNOWN, handshake("PLAIN"), metadata()]}
AT_ONCE = 8


@pytest.fixture(scope="module")
def answers(ports: Ports) -> dict[str, tuple[Future[Answers], ...]]:
    """The answers of Apache Kafka and ours to each script; several run at once, since they mostly wait."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return {name: tuple(pool.submit(kafka_answers, port, ALL[name]) for port in ports) for name in ALL}


@pytest.mark.parametrize("name", [*BEFORE, *SESSIONS])
def test_answers_equal_kafkas(answers: dict[str, tuple[Future[Answers], ...]], name: str) -> None:
    theirs, ours = (seen(future.result()) for future in answers[name])
    assert ours == theirs


def seen(found: Answers) -> Answers:
    """The answers without the ports in Metadata."""
    return ["metadata" if answer[0] == "bare" and b"127.0.0.1" in answer[1] else answer for answer in found]


def test_request_during_another_exchange_closes_the_connection(answers: dict[str, tuple[Future[Answers], ...]]) -> None:
    """Kafka answers Metadata with an error before it closes; we only close."""
    theirs, ours = (future.result() for future in answers[AMID])
    assert theirs.pop(3)[0] == "bare"
    assert ours == theirs
