"""Real clients produce and consume over each security protocol, with each mechanism that they support.

A quick run has one way for each client, which cover all protocols and mechanisms; the others are long. Spark's
connectors are in tests/pipeline/test_secured_broker.py, locust's users in tests/loadtest/test_swarm_secured.py.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ...clients.admin import create_topic
from .client_settings import Way, librdkafka
from .round_trips import CLIENTS, SECONDS, VALUES
from .secured_broker import MECHANISMS, OTHER_PASSWORD, PASSWORD, PROTOCOLS, USER, SecuredBroker

pytestmark = pytest.mark.live

USUAL = {
    "confluent-kafka": Way("SASL_SSL", "OAUTHBEARER"),
    "kafka-python": Way("SASL_SSL", "SCRAM-SHA-256"),
    "aiokafka": Way("SASL_PLAINTEXT", "SCRAM-SHA-512"),
    "kcat": Way("SSL", certificate=True),
    "java-3.9.1": Way("SASL_SSL", "SCRAM-SHA-512", token=True),
    "java-4.1.0": Way("SASL_PLAINTEXT", "PLAIN"),
}
SASL = [Way(protocol, mechanism) for protocol in ("SASL_SSL", "SASL_PLAINTEXT") for mechanism in MECHANISMS]
TOKENS = [way._replace(token=True) for way in SASL if way.mechanism.startswith("SCRAM")]
WAYS = [Way("SSL"), Way("SSL", certificate=True), *SASL]


def ways(client: str) -> list[Way]:
    """Debian's kcat has no OAUTHBEARER; only Java's clients can mark a user as a delegation token."""
    if client == "kcat":
        return [way for way in WAYS if way.mechanism != "OAUTHBEARER"]
    return [*WAYS, *TOKENS] if client.startswith("java") else WAYS


def cases() -> Iterator[Any]:
    """Each client with each of its ways."""
    for client in CLIENTS:
        tool = [pytest.mark.needs(client)] if client.startswith(("java", "kcat")) else []
        for way in ways(client):
            marks = tool if way == USUAL[client] else [*tool, pytest.mark.long]
            yield pytest.param(client, way, marks=marks, id=f"{client}-{way}")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    made = SecuredBroker.of_every_mechanism(tmp_path_factory.mktemp("secured"))
    try:
        yield made.start()  # type: ignore[misc]
    finally:
        made.close()
        for secret in (PASSWORD, OTHER_PASSWORD):
            assert secret not in made.log


@pytest.mark.parametrize(("client", "way"), [*cases()])
def test_client_reads_back_its_records(broker: SecuredBroker, client: str, way: Way) -> None:
    topic = create_topic(broker, "t")
    assert broker.delegation_token
    since = len(broker.log)
    assert CLIENTS[client](broker, way, topic) == VALUES
    found = [line for line in broker.log[since:].splitlines() if ": authenticated as " in line]
    assert found
    assert all(line.endswith(f"{way.protocol}): authenticated as {way.principal}") for line in found), found
    if way.token:
        assert broker.delegation_token[1] not in broker.log


def test_usual_ways_cover_every_protocol_and_mechanism() -> None:
    assert {way.protocol for way in USUAL.values()} == set(PROTOCOLS)
    assert {way.mechanism for way in USUAL.values()} == {"", *MECHANISMS}
    assert any(way.token for way in USUAL.values())


@pytest.mark.needs("kcat")
def test_kcat_reports_a_wrong_password(broker: SecuredBroker) -> None:
    settings = librdkafka(broker, Way("SASL_SSL", "PLAIN")) | {"sasl.password": "no-such-word"}
    words = [word for key, value in settings.items() for word in ("-X", f"{key}={value}")]
    done = subprocess.run(["kcat", "-L", "-m", "3", *words], capture_output=True, timeout=SECONDS, check=False)
    assert done.returncode != 0
    assert b"wrong user or password" in done.stderr
    assert "no-such-word" not in broker.log


@pytest.mark.smoke
def test_password_over_tls_is_not_in_status_commands_or_log(tmp_path: Path) -> None:
    """A producer authenticates; this is the only quick test of this file."""
    from confluent_kafka import Producer

    made = SecuredBroker(tmp_path, odradek_workers=1)
    try:
        made.start()
        producer = Producer(librdkafka(made, Way("SASL_SSL", "PLAIN")))
        producer.produce("t", b"value")
        assert producer.flush(SECONDS) == 0
        status = made.command("status", str(made.properties_file)).stdout
        seen = status + str(made.commands()) + made.log
        assert USER not in status
        assert PASSWORD not in seen
    finally:
        made.close()
