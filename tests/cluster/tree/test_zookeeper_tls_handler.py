"""kazoo's threads over TLS: bytes buffered in OpenSSL, and peers that fail."""

from __future__ import annotations

import datetime
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from odradek.broker.commands.tls import certificates
from odradek.cluster.tree.zookeeper import NoAnswer, ZooKeeperTree
from odradek.cluster.tree.zookeeper_security import TlsHandler
from odradek.security.tls import listener
from odradek.security.tls.settings import listener_settings

from ...harness.process import readable
from ...security.tls.conftest import inline

NOW = datetime.datetime.now(datetime.UTC)


class Server:
    """Sends `data` in one record after the handshake, or instead of it, and reads to the end; one peer at a time."""

    def __init__(self, data: bytes, tls: ssl.SSLContext | None) -> None:
        self.connections = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = self._listening.getsockname()
        self._thread = threading.Thread(target=self._serve, args=(data, tls), daemon=True)
        self._thread.start()

    def _serve(self, data: bytes, tls: ssl.SSLContext | None) -> None:
        with suppress(OSError):
            while True:
                sock = self._listening.accept()[0]
                self.connections += 1
                with suppress(OSError), sock:
                    self._talk(sock if tls is None else tls.wrap_socket(sock, server_side=True), data)

    def _talk(self, sock: socket.socket, data: bytes) -> None:
        with sock:
            sock.sendall(data)
            while data and sock.recv(1 << 16):
                pass

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(10)


@pytest.fixture(scope="module")
def loaded() -> listener.TlsListener:
    ca = certificates.new_ca(NOW)
    pair = certificates.issue(ca, "zookeeper", ["localhost"], NOW, 9)
    return listener.load(listener_settings(inline(pair, ca)), NOW.timestamp())


@pytest.fixture
def handler(loaded: listener.TlsListener) -> Iterator[TlsHandler]:
    made = TlsHandler(lambda: loaded.client)
    yield made
    made.stop()


def test_bytes_in_openssl_count_as_readable(handler: TlsHandler, loaded: listener.TlsListener) -> None:
    """kazoo reads a frame and polls: otherwise the next frame of the record would wait for the next heartbeat."""
    server = Server(b"abcd", loaded.server)
    ours, theirs = socket.socketpair()
    with ours, theirs, handler.create_connection(address=server.address, hostname="localhost", timeout=10) as sock:
        assert handler.select([sock, ours], [], [], 10)[0] == [sock]
        assert sock.recv(1) == b"a" and not readable(sock.fileno(), 0)
        assert handler.select([sock, ours], [], [], 10)[0] == [sock]
        theirs.send(b"x")
        assert handler.select([sock, ours], [], [], 10)[0] == [sock, ours]
        assert sock.recv(9) == b"bcd"
        assert handler.select([sock, ours], [], [], 10)[0] == [ours]
    server.close()


@pytest.mark.parametrize(("data", "why"), [(b"", "closed the connection"), (b"garbage" * 9, "speaks no TLS")])
def test_error_of_a_peer_without_tls_names_the_setting(handler: TlsHandler, data: bytes, why: str) -> None:
    server = Server(data, None)
    with pytest.raises(OSError, match=rf"TLS with localhost \(zookeeper.ssl.client.enable\): .*{why}"):
        handler.create_connection(address=server.address, hostname="localhost", timeout=10)
    server.close()


def test_silent_peer_times_out(handler: TlsHandler) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(OSError, match=r"TLS with localhost .* timed out"),
    ):
        handler.create_connection(address=silent.getsockname(), hostname="localhost", timeout=0.2)


# -- failures that a command does not retry


def refusal(server: Server, client: ssl.SSLContext) -> str:
    """The error of a tree that does not retry; a retrying one would wait for a minute."""
    with pytest.raises(NoAnswer) as caught:
        ZooKeeperTree(f"localhost:{server.address[1]}", 6000, 60_000, tls=lambda: client, patient=False)
    return str(caught.value)


def test_untrusted_certificate_fails_at_once(loaded: listener.TlsListener) -> None:
    ca = certificates.new_ca(NOW, "Other")
    other = listener.load(listener_settings(inline(certificates.issue(ca, "c", [], NOW, 9), ca)), NOW.timestamp())
    server = Server(b"", loaded.server)
    assert "TLS with localhost (zookeeper.ssl.client.enable): the peer's certificate is refused" in refusal(
        server, other.client
    )
    assert server.connections <= 2
    server.close()


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_missing_client_certificate_fails_at_once(version: str) -> None:
    """With TLS 1.3 the handshake succeeds, and the first read has the error."""
    ca = certificates.new_ca(NOW)
    given = inline(certificates.issue(ca, "zookeeper", ["localhost"], NOW, 9), ca)
    given |= {"ssl.client.auth": "required", "ssl.enabled.protocols": version}
    server = Server(b"x", listener.load(listener_settings(given), NOW.timestamp()).server)
    trust = {name: given[name] for name in ("ssl.truststore.type", "ssl.truststore.certificates")}
    client = listener.load_client(listener_settings(trust), NOW.timestamp())
    assert "TLS with localhost (zookeeper.ssl.client.enable): the peer " in refusal(server, client)
    assert server.connections <= 2
    server.close()


def test_certificate_error_of_one_of_two_servers_is_retried(handler: TlsHandler, loaded: listener.TlsListener) -> None:
    """The other server may have a valid certificate, so both are tried."""
    server = Server(b"garbage" * 9, None)
    with suppress(OSError):
        handler.create_connection(address=server.address, hostname="localhost", timeout=10)
    here = ("localhost", server.address[1])
    assert handler.refuse([here]) and not handler.refuse([here, ("localhost", 1)])
    server.close()


def test_closed_connection_is_retried(handler: TlsHandler) -> None:
    server = Server(b"", None)
    with suppress(OSError):
        handler.create_connection(address=server.address, hostname="localhost", timeout=10)
    assert handler.failure and not handler.refuse([("localhost", server.address[1])])
    server.close()
