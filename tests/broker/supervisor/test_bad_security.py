"""Each invalid setting of TLS, SASL or listeners is one line with the key, before any listener opens."""

from __future__ import annotations

import datetime
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.broker import config
from odradek.broker.commands.tls import certificates
from odradek.broker.errors import BootError
from odradek.broker.supervisor import boot
from odradek.cluster.tree import znodes
from tests.harness.broker import Broker
from tests.harness.process import free_port
from tests.security.tls.conftest import certificates_in, private

JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"
USERS = f'{JAAS} user_alice="secret-of-alice";'


def settings(folder: Path, protocol: str = "SASL_SSL") -> dict[str, str]:
    """A broker with a valid client listener."""
    server, ca = certificates_in(folder)
    return {
        "listeners": "PLAINTEXT://127.0.0.1:19092,CLIENTS://127.0.0.1:19093",
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CLIENTS:{protocol}",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(folder / "data"),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": server,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": ca,
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": USERS,
    }


def faults(texts: dict[str, str]) -> list[str]:
    """The error lines of a start."""
    try:
        boot._check_security(config.resolve(texts))
    except (config.InvalidConfig, BootError) as error:
        return str(error).splitlines()
    return []


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_valid_settings(tmp_path: Path, protocol: str) -> None:
    assert faults(settings(tmp_path, protocol)) == []


# Changed settings, None removes one; the key in the line, and a word of the valid values.
WRONG: dict[str, tuple[dict[str, str | None], str, str]] = {
    "no certificate": ({"ssl.keystore.location": None}, "ssl.keystore.location", "must be set"),
    "no such file": ({"ssl.keystore.location": "/no/such/file"}, "ssl.keystore.location", "/no/such/file"),
    "a directory": ({"ssl.keystore.location": "/tmp"}, "ssl.keystore.location", "/tmp"),
    "a certificate of one listener": (
        {"listener.name.clients.ssl.keystore.location": "/no/such"}, "listener.name.clients.ssl.keystore.location", "",
    ),
    "the default type": ({"ssl.keystore.type": None}, "ssl.keystore.type", "PEM"),
    "an unknown type": ({"ssl.keystore.type": "DOC"}, "ssl.keystore.type", "PEM"),
    "a trust store that is not there": ({"ssl.truststore.location": "/no/ca"}, "ssl.truststore.location", "/no/ca"),
    "no trust store": (
        {"ssl.truststore.location": None, "ssl.client.auth": "required"}, "ssl.truststore.location", "must be set",
    ),
    "client auth": ({"ssl.client.auth": "perhaps"}, "ssl.client.auth", "required"),
    "client auth of one listener": (
        {"listener.name.clients.ssl.client.auth": "perhaps"}, "listener.name.clients.ssl.client.auth", "required",
    ),
    "old TLS": ({"ssl.enabled.protocols": "TLSv1.1"}, "ssl.enabled.protocols", "TLSv1.2"),
    "protocol": ({"ssl.protocol": "SSLv3"}, "ssl.protocol", "TLSv1.3"),
    "ciphers": ({"ssl.cipher.suites": "TLS_NO_SUCH"}, "ssl.cipher.suites", "TLS_NO_SUCH"),
    "names": ({"ssl.endpoint.identification.algorithm": "ldap"}, "ssl.endpoint.identification.algorithm", "https"),
    "principals": ({"ssl.principal.mapping.rules": "RULE:("}, "ssl.principal.mapping.rules", "RULE:"),
    "GSSAPI": ({"sasl.enabled.mechanisms": "GSSAPI"}, "sasl.enabled.mechanisms", "GSSAPI"),
    "the default mechanism": (
        {"sasl.enabled.mechanisms": None}, "sasl.enabled.mechanisms", "is the default; must be of PLAIN",
    ),
    "unknown mechanism": ({"sasl.enabled.mechanisms": "PLAIN,MD5"}, "sasl.enabled.mechanisms", "MD5"),
    "no users": (
        {"listener.name.clients.plain.sasl.jaas.config": None}, "listener.name.clients.plain.sasl.jaas.config", "",
    ),
    "JAAS": (
        {"listener.name.clients.plain.sasl.jaas.config": JAAS}, "listener.name.clients.plain.sasl.jaas.config", "",
    ),
    "another module": (
        {"listener.name.clients.plain.sasl.jaas.config": "com.example.Other required;"},
        "listener.name.clients.plain.sasl.jaas.config", "PlainLoginModule",
    ),
    "no keys": ({"sasl.enabled.mechanisms": "OAUTHBEARER"}, "sasl.oauthbearer.jwks.endpoint.url", "must be set"),
    "keys by gopher": (
        {"sasl.enabled.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.jwks.endpoint.url": "gopher://x"},
        "sasl.oauthbearer.jwks.endpoint.url", "file:",
    ),
    "no such file of keys": (
        {"sasl.enabled.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.jwks.endpoint.url": "file:///no/such/keys"},
        "sasl.oauthbearer.jwks.endpoint.url", "/no/such/keys",
    ),
    "a file without keys": (
        {"sasl.enabled.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.jwks.endpoint.url": "file:///etc/hostname"},
        "sasl.oauthbearer.jwks.endpoint.url", "JWKS",
    ),
    "unsigned tokens by another class": (
        {
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.clients.oauthbearer.sasl.server.callback.handler.class": "com.example.Any",
        },
        "sasl.server.callback.handler.class", "",
    ),
    "delay": ({"connection.failed.authentication.delay.ms": "-1"}, "connection.failed.authentication.delay.ms", "0"),
    "sessions": ({"connections.max.reauth.ms": "soon"}, "connections.max.reauth.ms", ""),
    "sessions of a mechanism": (
        {"listener.name.clients.plain.connections.max.reauth.ms": "soon"}, "connections.max.reauth.ms", "number",
    ),
    "frames": ({"sasl.server.max.receive.size": "much"}, "sasl.server.max.receive.size", ""),
    "timeout": ({"odradek.authentication.timeout.ms": "0"}, "odradek.authentication.timeout.ms", ""),
    "no protocol": ({"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"}, "listener.security.protocol.map", ""),
    "unknown protocol": (
        {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:TLS"}, "listener.security.protocol.map", "TLS",
    ),
    "between brokers": ({"inter.broker.listener.name": "NONE"}, "inter.broker.listener.name", ""),
    "both between brokers": (
        {"security.inter.broker.protocol": "SSL"}, "security.inter.broker.protocol", "inter.broker.listener.name",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_one_line_that_names_the_key(tmp_path: Path, name: str) -> None:
    changes, key, word = WRONG[name]
    texts = {key: value for key, value in {**settings(tmp_path), **changes}.items() if value is not None}
    (line,) = faults(texts)
    assert key in line
    assert word in line
    assert "secret-of-alice" not in line


def _world_readable(folder: Path) -> None:
    (folder / "server.pem").chmod(0o644)


def _expired(folder: Path) -> None:
    then = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=100)
    ca = certificates.new_ca(then)
    pair = certificates.issue(ca, "localhost", ["localhost"], then, 10)
    private(folder / "server.pem", pair.key_pem + pair.certificate_pem)


def _mismatched(folder: Path) -> None:
    now = datetime.datetime.now(datetime.UTC)
    ca = certificates.new_ca(now)
    one, other = (certificates.issue(ca, "localhost", ["localhost"], now, 10) for _ in range(2))
    private(folder / "server.pem", one.key_pem + other.certificate_pem)


def _cut(folder: Path) -> None:
    path = folder / "server.pem"
    private(path, path.read_bytes()[:-100])


@pytest.mark.parametrize("spoil", [_world_readable, _expired, _mismatched, _cut], ids=lambda one: one.__name__[1:])
def test_a_bad_file_is_one_line(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    texts = settings(tmp_path)
    spoil(tmp_path)
    (line,) = faults(texts)
    assert "ssl.keystore.location" in line
    assert "listener CLIENTS" in line


def test_each_listener_has_its_line(tmp_path: Path) -> None:
    texts = settings(tmp_path) | {
        "listeners": "PLAINTEXT://127.0.0.1:19092,CLIENTS://127.0.0.1:19093,OTHERS://127.0.0.1:19094",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:SASL_SSL,OTHERS:SSL",
        "ssl.keystore.location": "/no/such/file",
    }
    lines = faults(texts)
    assert [line.split(":")[0] for line in lines] == ["listener CLIENTS", "listener OTHERS"]


def test_the_dynamic_settings_are_what_must_work(tmp_path: Path) -> None:
    """Dynamic settings of listeners and client connections replace those of server.properties, whose file is gone."""
    texts = settings(tmp_path, "SSL") | {"inter.broker.listener.name": "CLIENTS", "zookeeper.connect": "127.0.0.1:1"}
    dynamic = {"ssl.keystore.location": texts["ssl.keystore.location"]}
    made = config.resolve(texts | {"ssl.keystore.location": "/no/such/file"})
    boot._check_security(made, znodes.encode_config(dynamic))
    for wrong in ({}, {"ssl.keystore.location": "/not/there"}):
        with pytest.raises(BootError, match=r"ssl\.keystore\.location"):
            boot._check_security(made, znodes.encode_config(wrong))


@pytest.mark.live
@pytest.mark.parametrize("name", ["no such file", "the default mechanism", "client auth"])
def test_nothing_listens_after_a_bad_setting(tmp_path: Path, name: str) -> None:
    """Neither the plain listener nor, above all, the secured one without its security."""
    changes, wrong, _ = WRONG[name]
    broker, port = Broker(tmp_path / "broker"), free_port()
    texts = {
        **settings(tmp_path),
        **changes,
        "listeners": f"PLAINTEXT://127.0.0.1:{broker.port},CLIENTS://127.0.0.1:{port}",
    }
    broker.properties |= {key: value for key, value in texts.items() if value is not None and key != "log.dirs"}
    with pytest.raises(AssertionError, match="ended with"):
        broker.start()
    assert wrong in broker.log
    assert "Traceback" not in broker.log
    assert len(broker.log.strip().splitlines()) <= 2, broker.log
    for each in (broker.port, port):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", each))
    broker.close()
