"""Handshakes in memory: versions, suites, client certificates, host names, and peers that are slow or speak no TLS."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import Any, cast

import pytest

from odradek.broker.commands.tls import certificates
from odradek.broker.commands.tls.certificates import Pair
from odradek.security.principal import ANONYMOUS
from odradek.security.tls import contexts, ktls, listener
from odradek.security.tls.handshake import Handshake, Progress, rehearse
from odradek.security.tls.settings import TlsSettings, listener_settings

from .conftest import NOW, NOW_S, Given, inline

ECDHE = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"


class Wire:
    """A TLS client and a TLS server connected in memory."""

    def __init__(self, client: ssl.SSLContext, server: ssl.SSLContext, name: str | None = None) -> None:
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = client.wrap_bio(to_client, to_server, server_hostname=name)
        self.server = server.wrap_bio(to_server, to_client, server_side=True)
        self.sides = [Handshake(self.client, 1), Handshake(self.server, 1)]

    def run(self) -> list[str]:
        """The failure of each side; empty for a success."""
        for _ in range(10):
            for side in self.sides:
                side.step(0)
        return [side.failure for side in self.sides]


def client(ca: Pair, pair: Pair | None = None, **changes: Any) -> ssl.SSLContext:
    texts = inline(pair, ca) if pair else inline(ca, ca)
    if pair is None:
        del texts["ssl.keystore.key"], texts["ssl.keystore.certificate.chain"]
    settings = listener_settings(texts | {f"ssl.{name.replace('_', '.')}": value for name, value in changes.items()})
    return listener.load_client(settings, NOW_S)


def load(settings: TlsSettings) -> listener.TlsListener:
    return listener.load(settings, NOW_S)


@pytest.mark.parametrize(
    ("changes", "version", "suite"),
    [
        ({}, "TLSv1.3", None),
        ({"enabled_protocols": "TLSv1.2"}, "TLSv1.2", None),
        ({"cipher_suites": ECDHE}, "TLSv1.2", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        ({"cipher_suites": "TLS_AES_128_GCM_SHA256"}, "TLSv1.3", "TLS_AES_128_GCM_SHA256"),
        ({"cipher_suites": f"{ECDHE},TLS_CHACHA20_POLY1305_SHA256"}, "TLSv1.3", "TLS_CHACHA20_POLY1305_SHA256"),
    ],
)
def test_settings_select_version_and_suite(
    given: Given, ca: Pair, changes: dict[str, Any], version: str, suite: str | None
) -> None:
    wire = Wire(client(ca), load(given(**changes)).server, "broker1")
    assert wire.run() == ["", ""]
    assert wire.server.version() == version
    cipher = wire.server.cipher()
    assert cipher and suite in (None, cipher[0])


def test_a_client_uses_no_version_above_the_protocol(given: Given, ca: Pair) -> None:
    wire = Wire(client(ca, protocol="TLSv1.2"), load(given()).server, "broker1")
    assert wire.run() == ["", ""] and wire.server.version() == "TLSv1.2"


def test_handshake_without_a_common_version_fails(given: Given, ca: Pair) -> None:
    theirs = client(ca, enabled_protocols="TLSv1.2")
    ours = load(given(enabled_protocols="TLSv1.3")).server
    assert Wire(theirs, ours, "broker1").run()[1] == "the peer's versions of TLS are not in ssl.enabled.protocols"


@pytest.mark.parametrize(("name", "works"), [("broker1", True), ("10.0.0.1", True), ("broker2", False)])
def test_client_verifies_the_server_name(given: Given, ca: Pair, name: str, works: bool) -> None:
    assert (Wire(client(ca), load(given()).server, name).run()[0] == "") == works
    assert Wire(client(ca, endpoint_identification_algorithm=""), load(given()).server, name).run()[0] == ""


def test_ssl_client_auth_decides_the_principal(given: Given, ca: Pair, alice: Pair) -> None:
    required, requested, none = (load(given(client_auth=auth)) for auth in ("required", "requested", "none"))
    assert Wire(client(ca), required.server, "broker1").run()[1] == (
        "the peer sent no certificate, but ssl.client.auth=required"
    )
    for server, pair, name in (
        (required, alice, "User:CN=alice"),
        (requested, alice, "User:CN=alice"),
        (requested, None, str(ANONYMOUS)),
        (none, alice, str(ANONYMOUS)),
    ):
        wire = Wire(client(ca, pair), server.server, "broker1")
        assert wire.run() == ["", ""]
        assert str(server.mapper.principal(wire.server.getpeercert(True))) == name


def test_client_certificate_of_another_ca_is_refused(given: Given, ca: Pair) -> None:
    other = certificates.new_ca(NOW, "Another CA")
    mallory = certificates.issue(other, "alice", [], NOW, 9)
    for auth in ("required", "requested"):
        failure = Wire(client(ca, mallory), load(given(client_auth=auth)).server, "broker1").run()[1]
        assert failure.startswith("the peer's certificate is refused: ")


def test_clients_of_every_trusted_ca_are_accepted(given: Given, ca: Pair, alice: Pair) -> None:
    other = certificates.new_ca(NOW, "Another CA")
    bob = certificates.issue(other, "bob", [], NOW, 9)
    both = (ca.certificate_pem + other.certificate_pem).decode()
    server = load(given(client_auth="required", truststore_certificates=both)).server
    assert all(rehearse(client(ca, pair, endpoint_identification_algorithm=""), server) == "" for pair in (alice, bob))


def test_a_certificate_in_the_trust_store_needs_no_root(given: Given, ca: Pair, alice: Pair) -> None:
    server = load(given(client_auth="required", truststore_certificates=alice.certificate_pem.decode())).server
    assert Wire(client(ca, alice), server, "broker1").run() == ["", ""]


def test_slow_peer_fails_at_the_deadline(given: Given) -> None:
    handshake = Handshake(load(given()).server.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_side=True), 5.0)
    assert handshake.step(4.9) is Progress.WANTS_READ
    assert handshake.step(5.0) is Progress.FAILED and handshake.failure == "the peer was too slow"
    assert handshake.step(6.0) is Progress.FAILED


@pytest.mark.parametrize(
    ("sent", "failure"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "the peer speaks HTTP"),
        (b"\0\0\0\x14\0\x12\0\3\0\0\0\1\0\4test\1\1\1", "the peer speaks no TLS"),
        (b"", "the peer closed the connection"),
        (b"\x16\3\1\0\5\1\0\0\1\0", None),
    ],
)
def test_peer_that_speaks_no_tls_is_named(given: Given, sent: bytes, failure: str | None) -> None:
    incoming = ssl.MemoryBIO()
    incoming.write(sent)
    incoming.write_eof()
    handshake = Handshake(load(given()).server.wrap_bio(incoming, ssl.MemoryBIO(), server_side=True), 1)
    assert handshake.step(0) is Progress.FAILED
    assert handshake.failure and "\n" not in handshake.failure
    assert failure in (None, handshake.failure)


def test_large_write_is_read_into_a_buffer(given: Given, ca: Pair) -> None:
    wire = Wire(client(ca), load(given()).server, "broker1")
    wire.run()
    sent = memoryview(os.urandom(1 << 20))
    assert wire.server.write(sent) == len(sent)
    received = memoryview(bytearray(1 << 20))
    at = 0
    while at < len(sent):
        at += cast(int, wire.client.read(len(received) - at, received[at:]))
    assert received == sent


def test_key_is_written_to_no_file(given: Given, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The key is in a private memory file, and only while it is loaded."""
    monkeypatch.chdir(tmp_path)
    before = set(os.listdir("/proc/self/fd"))
    with contexts.memory_file(b"key") as path:
        assert Path(path).read_bytes() == b"key"
        assert os.stat(path).st_mode & 0o077 == 0 and os.readlink(path).startswith("/memfd:")
    load(given())
    assert set(os.listdir("/proc/self/fd")) == before and os.listdir(tmp_path) == []


def test_ktls_is_detected() -> None:
    assert ktls.support("espintcp mptcp tls\n", (3, 0)).available
    assert not ktls.support("mptcp\n", (3, 0)).available
    assert not ktls.support("tls", (1, 1)).available
