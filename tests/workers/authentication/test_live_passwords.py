"""Passwords and inline keys changed by AlterConfigs apply to new connections, and are encoded in the tree."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from odradek.broker.commands.tls import authority
from odradek.cluster.tree import embedded
from odradek.protocol import interbroker
from odradek.protocol.errors import INVALID_REQUEST
from odradek.security.password_encoder import PasswordEncoder

from ...clients.admin import alter_named
from ...security.sasl.frames import authenticate, authenticate_answer, handshake, sized
from .secured_broker import PASSWORD, USER, SecuredBroker
from .test_reload_live import serial, serial_in

pytestmark = [pytest.mark.live, pytest.mark.slow]

SECRET, NEW_SECRET = "encoder-secret", "another-secret"
JAAS = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
NEW_PASSWORD = "new-password-4c1d"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SecuredBroker]:
    made = SecuredBroker(tmp_path, password_encoder_secret=SECRET)
    try:
        yield made.start()  # type: ignore[misc]
    finally:
        made.close()


def alter(broker: SecuredBroker, name: str, value: str | None, whose: str = "0") -> tuple[int, str]:
    with broker.wire() as wire:
        code, message = alter_named(wire, whose, {name: value})
    return code, message or ""


def jaas(password: str) -> str:
    return f'{MODULE} user_{USER}="{password}";'


def knows(broker: SecuredBroker, password: str) -> bool:
    """Whether alice can authenticate with this password, in all workers alike."""
    answers = {_knows(broker, password) for _ in range(4)}
    assert len(answers) == 1, "workers differ after the answer of AlterConfigs"
    return answers.pop()


def _knows(broker: SecuredBroker, password: str) -> bool:
    with broker.connect("SASL_PLAINTEXT") as wire:
        wire.send_raw(sized(handshake("PLAIN")) + sized(authenticate(f"\0{USER}\0{password}".encode())))
        wire.read_frame()
        return bool(authenticate_answer(sized(wire.read_frame())).error_code == 0)


def described(broker: SecuredBroker, name: str) -> str | None:
    request = interbroker.message_class("DescribeConfigsRequest")
    resource = request.DescribeConfigsResource(resource_type=4, resource_name="0", configuration_keys=[name])
    with broker.wire() as wire:
        answer = wire.call(request[1](resources=[resource], include_synonyms=True)).results[0]
    assert all(synonym.value is None for synonym in answer.configs[0].synonyms)
    assert answer.configs[0].is_sensitive and not answer.configs[0].read_only
    return answer.configs[0].value


def stored(broker: SecuredBroker) -> dict[str, str]:
    """The configs in the broker's node; the broker must not run."""
    data = embedded.peek(broker.data_dir / embedded.FILE_NAME, "/config/brokers/0")
    return dict(json.loads(data or b"{}")["config"])


def test_changed_plain_password_applies_and_survives_restarts(broker: SecuredBroker) -> None:
    old = broker.authenticated("SASL_PLAINTEXT")
    assert alter(broker, JAAS, jaas(NEW_PASSWORD)) == (0, "")
    assert knows(broker, NEW_PASSWORD) and not knows(broker, PASSWORD)
    assert described(broker, JAAS) is None
    assert old.api_versions(), "the old connection stays open"
    code, message = alter(broker, JAAS, "no login module")
    assert code == INVALID_REQUEST and "no login module" not in message
    code, message = alter(broker, JAAS, jaas(NEW_PASSWORD).replace("PlainLogin", "ScramLogin"))
    assert code == INVALID_REQUEST and "the login module must be" in message and NEW_PASSWORD not in message
    assert knows(broker, NEW_PASSWORD)
    for number in range(2):
        broker.await_respawn("worker", broker.kill_role("worker", number))
    broker.await_respawn("controller", broker.kill_role("controller"))
    assert knows(broker, NEW_PASSWORD) and not knows(broker, PASSWORD)
    broker.restart(kill=True)
    assert knows(broker, NEW_PASSWORD) and not knows(broker, PASSWORD)
    check_secrets(broker)
    assert alter(broker, JAAS, None) == (0, "")
    assert knows(broker, PASSWORD) and not knows(broker, NEW_PASSWORD)


def check_secrets(broker: SecuredBroker) -> None:
    """Check that no file and no log line of the broker has a secret in plain text."""
    files = [path for path in broker.data_dir.rglob("*") if path.is_file()]
    for secret in (NEW_PASSWORD, SECRET):
        assert secret not in broker.log
        assert [path for path in files if secret.encode() in path.read_bytes()] == []


def test_librdkafka_changes_a_plain_password(broker: SecuredBroker) -> None:
    """DescribeConfigs returns no value for a password."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for operation, value, known in (
        (AlterConfigOpType.SET, jaas(NEW_PASSWORD), NEW_PASSWORD), (AlterConfigOpType.DELETE, "", PASSWORD),
    ):  # fmt: skip
        entry = ConfigEntry(JAAS, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.BROKER, "0", incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(30)
        assert knows(broker, known)
        asked = ConfigResource(ResourceType.BROKER, "0")
        found = admin.describe_configs([asked])[asked].result(30)[JAAS]
        assert found.value is None and found.is_sensitive


def test_passwords_are_encoded_again_with_a_new_encoder_secret(broker: SecuredBroker) -> None:
    alter(broker, JAAS, jaas(NEW_PASSWORD))
    broker.stop()
    assert PasswordEncoder(SECRET).decode(stored(broker)[JAAS]) == jaas(NEW_PASSWORD)
    assert NEW_PASSWORD.encode() not in (broker.data_dir / embedded.FILE_NAME).read_bytes()
    broker.restart(password_encoder_secret=NEW_SECRET, password_encoder_old_secret=SECRET)
    assert knows(broker, NEW_PASSWORD)
    broker.stop()
    assert PasswordEncoder(NEW_SECRET).decode(stored(broker)[JAAS]) == jaas(NEW_PASSWORD)
    broker.start()
    assert knows(broker, NEW_PASSWORD), "the second start with both secrets works"
    broker.restart(password_encoder_secret="a third one", password_encoder_old_secret=None)
    assert knows(broker, PASSWORD), "a password that cannot be decoded is ignored"
    assert f"ignoring {JAAS}: not encoded with password.encoder.secret" in broker.log
    assert alter(broker, "listener.name.ssl.ssl.client.auth", "none") == (0, "")
    broker.stop()
    assert PasswordEncoder(NEW_SECRET).decode(stored(broker)[JAAS]) == jaas(NEW_PASSWORD), (
        "a change of another config keeps it"
    )


def test_changed_inline_key_is_served(broker: SecuredBroker) -> None:
    path, prefix = broker.tls / "server.pem", "listener.name.ssl.ssl.keystore."

    def inline() -> dict[str, str]:
        pem = path.read_text()
        at = pem.index("-----BEGIN CERTIFICATE")
        return {prefix + "key": pem[:at], prefix + "certificate.chain": pem[at:]}

    broker.stop()
    broker.set(ssl_keystore_location=None)
    broker.properties["listener.name.sasl_ssl.ssl.keystore.location"] = path
    broker.properties |= inline()
    broker.start()
    authority.renew(broker.tls, 90)
    with broker.wire() as wire:
        assert alter_named(wire, "0", inline()) == (0, None)
        wanted = serial_in(path)
        assert [serial(broker) for _ in range(4)] == [wanted] * 4
        code, message = alter_named(wire, "0", {prefix + "key": "-----BEGIN PRIVATE KEY-----\nno key"})
        assert code == INVALID_REQUEST and "no key" not in (message or "")
    assert [serial(broker) for _ in range(4)] == [wanted] * 4


def test_password_is_refused_without_an_encoder_secret(tmp_path: Path) -> None:
    broker = SecuredBroker(tmp_path)
    try:
        broker.start()
        code, message = alter(broker, JAAS, jaas(NEW_PASSWORD))
        assert code == INVALID_REQUEST
        assert f"password.encoder.secret is not set, so {JAAS} cannot be stored" in message
        assert NEW_PASSWORD not in message and NEW_PASSWORD not in broker.log
        assert knows(broker, PASSWORD)
    finally:
        broker.close()


def test_password_is_refused_as_a_cluster_default(broker: SecuredBroker) -> None:
    code, message = alter(broker, JAAS, jaas(NEW_PASSWORD), whose="")
    assert code == INVALID_REQUEST and "default cluster level" in message
    assert NEW_PASSWORD not in message and knows(broker, PASSWORD)
