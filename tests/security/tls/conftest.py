"""A CA and certificates that it signed, made once, and settings that use them."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.commands.tls import certificates
from odradek.broker.commands.tls.certificates import Pair
from odradek.security.tls.settings import TlsSettings, listener_settings

NOW = datetime.datetime(2026, 11, 27, tzinfo=datetime.UTC)
NOW_S = NOW.timestamp()
HOSTS = ["broker1", "10.0.0.1"]

Given = Callable[..., TlsSettings]


@pytest.fixture(scope="session")
def ca() -> Pair:
    return certificates.new_ca(NOW)


@pytest.fixture(scope="session")
def server(ca: Pair) -> Pair:
    return certificates.issue(ca, "broker1", HOSTS, NOW, 90)


@pytest.fixture(scope="session")
def alice(ca: Pair) -> Pair:
    return certificates.issue(ca, "alice", [], NOW, 90)


def inline(pair: Pair, ca: Pair) -> dict[str, Any]:
    """Settings with the key, the chain and the trusted certificate as values."""
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": pair.key_pem.decode(),
        "ssl.keystore.certificate.chain": pair.certificate_pem.decode(),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": ca.certificate_pem.decode(),
    }


def private(path: Path, content: bytes) -> str:
    """Replace a file atomically by one that only its owner can read; returns its path."""
    new = path.with_name(f"{path.name}.new")
    new.touch(0o600)
    new.write_bytes(content)
    new.rename(path)
    return str(path)


def certificates_in(folder: Path) -> tuple[str, str]:
    """Paths of a key store and a trust store of a broker, with certificates that are valid now."""
    now = datetime.datetime.now(datetime.UTC)
    made = certificates.new_ca(now)
    broker = certificates.issue(made, "localhost", ["localhost", "127.0.0.1"], now, 90)
    server = private(folder / "server.pem", broker.key_pem + broker.certificate_pem)
    return server, private(folder / "ca.pem", made.certificate_pem)


@pytest.fixture
def given(server: Pair, ca: Pair) -> Given:
    """Valid settings of a listener, with changes; None removes a setting."""

    def settings(**changes: Any) -> TlsSettings:
        texts = inline(server, ca) | {f"ssl.{name.replace('_', '.')}": value for name, value in changes.items()}
        return listener_settings({name: value for name, value in texts.items() if value is not None})

    return settings


@pytest.fixture
def in_files(server: Pair, ca: Pair, tmp_path: Path) -> dict[str, Any]:
    """Settings with a key store and a trust store in files."""
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": private(tmp_path / "server.pem", server.key_pem + server.certificate_pem),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": private(tmp_path / "ca.pem", ca.certificate_pem),
    }
