"""Brokers with an exporter, and slots without a broker."""

from __future__ import annotations

import datetime
import secrets
import ssl
from collections.abc import Callable, Iterator

import pytest

from odradek.broker.commands.tls import certificates
from odradek.ipc import region
from odradek.ipc.shm import Shared
from odradek.security.tls.contexts import memory_file

from ...harness.broker import Broker
from ...harness.process import free_port, wait_until
from .scraping import get

Metered = Callable[..., tuple[Broker, str]]


@pytest.fixture
def shared() -> Iterator[Shared]:
    """The fixed regions of a broker that is not running."""
    prefix = f"/odradek-test{secrets.token_hex(4)}-"
    yield Shared.create(prefix, 7, 16)
    region.unlink_all(prefix)


@pytest.fixture
def metered(fresh_broker: Callable[..., Broker]) -> Metered:
    """Starts a broker with an exporter; returns both when the exporter answers."""

    def start(**overrides: object) -> tuple[Broker, str]:
        address = f"127.0.0.1:{free_port()}"
        broker = fresh_broker(odradek_metrics_listener=address, **overrides)
        await_exporter(address)
        return broker, address

    return start


def await_exporter(address: str) -> None:
    """Wait until the exporter answers."""

    def answers() -> bool:
        try:
            return get(address, "/healthz") == b"healthy\n"
        except OSError:
            return False

    wait_until(answers, 30, "the exporter answers")


@pytest.fixture(scope="module")
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a server and of a client that trusts it."""
    now = datetime.datetime.now(datetime.UTC)
    ca = certificates.new_ca(now)
    pair = certificates.issue(ca, "localhost", ["localhost"], now, 9)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with memory_file(pair.key_pem + pair.certificate_pem) as path:
        server.load_cert_chain(path)
    return server, ssl.create_default_context(cadata=ca.certificate_pem.decode())
