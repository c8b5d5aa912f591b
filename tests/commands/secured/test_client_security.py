"""`--command-config`: our commands connect to Apache Kafka over TLS and SASL with Kafka's client settings."""

from __future__ import annotations

import click
import pytest

from odradek.broker.commands._shared.client_security import security_config
from odradek.security.sasl.scram_client import ScramClient
from tests.cluster.users.scram_requests import SECRET

from .conftest import OAUTH, PLAIN, SCRAM, Secured

WRONG = SCRAM.replace(SECRET, "hunter2")


@pytest.mark.live
@pytest.mark.needs("java-3.9.1")
@pytest.mark.parametrize(
    ("listener", "properties"),
    [
        ("SASL", {"sasl_mechanism": "PLAIN", "sasl_jaas_config": PLAIN}),
        ("SASL", {"sasl_mechanism": "SCRAM-SHA-256", "sasl_jaas_config": SCRAM}),
        ("SASL", {"sasl_mechanism": "PLAIN", "sasl_username": "alice", "sasl_password": SECRET}),
        ("BOTH", {"sasl_mechanism": "SCRAM-SHA-512", "sasl_jaas_config": SCRAM}),
        ("SSL", {}),
    ],
)
def test_command_connects_by_each_protocol(secured: Secured, listener: str, properties: dict[str, str]) -> None:
    trust = {} if listener == "SASL" else secured.trust
    identity = secured.identity if listener == "SSL" else {}
    done = secured.topics(listener, **properties, **trust, **identity)
    assert done.returncode == 0, done.stderr
    assert b"WARN" not in done.stderr


@pytest.mark.live
@pytest.mark.needs("java-3.9.1")
def test_command_authenticates_with_a_bearer_token_from_a_file(secured: Secured) -> None:
    url = (secured.folder / "token").as_uri()
    more = {"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": OAUTH, "sasl.oauthbearer.token.endpoint.url": url}
    done = secured.topics("OAUTH", **more)
    assert done.returncode == 0, done.stderr


@pytest.mark.live
@pytest.mark.needs("java-3.9.1")
def test_refusals_are_one_line_without_a_secret(secured: Secured) -> None:
    done = secured.topics("SASL", sasl_mechanism="SCRAM-SHA-256", sasl_jaas_config=WRONG)
    assert done.returncode == 1 and b"hunter2" not in done.stderr and b"Traceback" not in done.stderr, done.stderr
    assert b"sasl.jaas.config" in done.stderr, done.stderr
    done = secured.topics("SSL", **secured.trust)
    assert done.returncode == 1 and b"Traceback" not in done.stderr, done.stderr
    assert b"ssl.keystore" in done.stderr and done.stderr.count(b"\n") == 1, done.stderr
    done = secured.topics("SSL", security_protocol="PLAINTEXT")
    assert done.returncode == 1 and b"security.protocol" in done.stderr, done.stderr
    assert done.stderr.count(b"\n") == 1 and b"Traceback" not in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"security.protocol": "TLS"}, "security.protocol must be one of"),
        ({"security.protocol": "SASL_SSL", "ssl.truststore.location": "/none"}, "ssl.truststore.location"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "sasl.mechanism must be one of"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "sasl.jaas.config must be set"),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": SCRAM},
            "sasl.jaas.config: the login module must be",
        ),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": PLAIN[:-1]},
            "sasl.jaas.config: ",
        ),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": OAUTH},
            "sasl.oauthbearer.token.endpoint.url: must be",
        ),
    ],
)
def test_invalid_setting_is_one_line(properties: dict[str, str], text: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        security_config(properties)
    message = caught.value.message
    assert text in message and "\n" not in message and SECRET not in message and "listener.name" not in message


def test_jaas_entry_may_hold_a_delegation_token() -> None:
    jaas = SCRAM.replace(";", ' tokenauth="true";')
    config = security_config(
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": jaas}
    )
    made = config["sasl_oauth_token_provider"]()
    assert isinstance(made, ScramClient) and made.token
    assert SECRET not in repr(config)
