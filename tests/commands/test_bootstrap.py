"""A wrong --bootstrap-server is one line that says what to change; of several addresses one that works is enough.

The peers are sockets of this process, the client is the one that all commands have; no test waits longer than the
client's patience (`_shared.bootstrap_attempts`).
"""

from __future__ import annotations

import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.net.connection import KafkaConnection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

from odradek.broker.commands._shared import bootstrap, refused_connections
from odradek.broker.commands._shared.client import Cluster
from odradek.broker.commands._shared.consumer import open_consumer
from odradek.broker.commands._shared.properties import client_config
from odradek.broker.commands.tls import authority
from odradek.broker.errors import OdradekError
from tests.commands.conftest import command_line
from tests.harness.process import free_port

QUICK = {"request.timeout.ms": "400"}
PATCHED = (
    (KafkaConnectionManager, "_do_bootstrap"),
    (KafkaConnectionManager, "_connect"),
    (KafkaConnectionManager, "_build_transport"),
    (KafkaConnection, "connection_lost"),
    (KafkaTCPTransport, "_sock_recv"),
    (KafkaSSLTransport, "_sock_recv"),
)

Serve = Callable[[socket.socket, Path], None]


def close(_peer: socket.socket, _tls: Path) -> None:
    """As soon as it is accepted."""


def close_when_asked(peer: socket.socket, _tls: Path) -> None:
    peer.recv(4096)


def reset(peer: socket.socket, _tls: Path) -> None:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def stay_silent(peer: socket.socket, _tls: Path) -> None:
    while peer.recv(4096):
        pass


def speak_http(peer: socket.socket, _tls: Path) -> None:
    peer.recv(4096)
    peer.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")


def speak_smtp(peer: socket.socket, _tls: Path) -> None:
    peer.sendall(b"220 mail.example.com ready\r\n")
    peer.recv(4096)


def echo(peer: socket.socket, _tls: Path) -> None:
    while data := peer.recv(4096):
        peer.sendall(data)


def speak_tls(peer: socket.socket, tls: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls / "server.pem")
    with context.wrap_socket(peer, server_side=True) as wrapped:
        wrapped.recv(4096)


class Peer:
    """A listening socket whose connections `serve` gets, one by one; they are closed behind it."""

    def __init__(self, serve: Serve, tls: Path) -> None:
        self._serve, self._tls = serve, tls
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError:
                return
            with peer:
                try:
                    self._serve(peer, self._tls)
                except OSError:
                    continue

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(10)


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls") / "made"
    authority.init(folder, ["127.0.0.1"], ["alice"], 90)
    return folder


@pytest.fixture(autouse=True, scope="module")
def patches() -> Iterator[None]:
    """Other tests of this process have kafka-python as it is."""
    before = [(owner, name, getattr(owner, name)) for owner, name in PATCHED]
    yield
    for owner, name, found in before:
        setattr(owner, name, found)
    bootstrap.install.cache_clear()
    refused_connections.install.cache_clear()


@pytest.fixture
def listening(tls: Path) -> Iterator[Callable[[Serve], str]]:
    with ExitStack() as stack:

        def made(serve: Serve) -> str:
            peer = Peer(serve, tls)
            stack.callback(peer.close)
            return peer.address

        yield made


def error_of(servers: str, properties: Mapping[str, str]) -> str:
    with pytest.raises(OdradekError) as caught:
        Cluster(servers, properties)
    text = str(caught.value)
    assert text.startswith(f"cannot reach a broker at {servers}: ") and "\n" not in text
    return text


CASES: dict[str, tuple[Serve, str, str]] = {  # the peer, the client's security.protocol, text in the line
    "closes": (close, "PLAINTEXT", "closes connections: its listener may not have security.protocol=PLAINTEXT"),
    "closes when asked": (close_when_asked, "PLAINTEXT", "may not have security.protocol=PLAINTEXT"),
    "closes a TLS client": (close, "SSL", "may not have security.protocol=SSL"),
    "closes a TLS client when asked": (close_when_asked, "SSL", "may not have security.protocol=SSL"),
    "resets": (reset, "PLAINTEXT", "may not have security.protocol=PLAINTEXT"),
    "resets a TLS client": (reset, "SSL", "may not have security.protocol=SSL"),
    "silent": (stay_silent, "PLAINTEXT", "no answer within 0.4 s (request.timeout.ms)"),
    "silent to a TLS client": (stay_silent, "SSL", "no answer within 0.4 s (request.timeout.ms)"),
    "HTTP": (speak_http, "PLAINTEXT", "the peer speaks HTTP"),
    "HTTP to a TLS client": (speak_http, "SSL", "(security.protocol)"),
    "SMTP": (speak_smtp, "PLAINTEXT", "does not speak Kafka's protocol"),
    "echo": (echo, "PLAINTEXT", "does not speak Kafka's protocol"),
    "TLS": (speak_tls, "PLAINTEXT", "security.protocol"),
}


@pytest.mark.parametrize("case", CASES)
def test_wrong_peer_is_named(listening: Callable[[Serve], str], tls: Path, case: str) -> None:
    serve, protocol, text = CASES[case]
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(tls / "ca.pem")} if protocol == "SSL" else {}
    assert text in error_of(listening(serve), QUICK | {"security.protocol": protocol} | trust)


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("127.0.0.1:{port}", "Connection refused: start the broker, or correct --bootstrap-server"),
        ("no-such-host.invalid:9092", "the host name has no address: correct --bootstrap-server"),
        ("a..b:9092", "(--bootstrap-server)"),
    ],
)
def test_absent_broker_is_named(address: str, text: str) -> None:
    assert text in error_of(address.format(port=free_port()), {})


def test_each_of_several_addresses_is_named(listening: Callable[[Serve], str]) -> None:
    gone, http = f"127.0.0.1:{free_port()}", listening(speak_http)
    text = error_of(f"{gone},{http}", {})
    assert f"{gone}: Connection refused" in text and f"{http}: the peer speaks HTTP" in text


def test_producer_and_consumer_name_it_too() -> None:
    gone = f"127.0.0.1:{free_port()}"
    with pytest.raises(OdradekError, match="Connection refused"):
        open_consumer(gone, client_config({}, KafkaConsumer.DEFAULT_CONFIG))
    with pytest.raises(refused_connections.Refused, match="Connection refused"):
        KafkaProducer(bootstrap_servers=[gone], **client_config({}, KafkaProducer.DEFAULT_CONFIG))


@pytest.mark.live
def test_other_addresses_are_tried(broker: Any, listening: Callable[[Serve], str]) -> None:
    """A silent one and a wrong one do not hold up the one that works; a command prints one line without it."""
    wrong = [listening(one) for one in (stay_silent, close, speak_http)] + [f"127.0.0.1:{free_port()}"]
    for servers, code in ((wrong[1:], 1), ([*wrong, broker.bootstrap], 0)):
        words = command_line("topics", "--list", "--bootstrap-server", ",".join(servers))
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr.count("\n")) == (code, code), done
