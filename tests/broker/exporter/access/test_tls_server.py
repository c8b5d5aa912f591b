"""Connections with TLS: silent peers are bounded, the oldest goes first, and the others are served."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from odradek.broker.exporter.access import tls_server
from odradek.broker.exporter.access.tls_server import HANDSHAKES, TlsServer

from ....harness.process import free_port


class Echo(asyncio.Protocol):
    """Sends back what comes."""

    def __init__(self, made: Callable[[], None]) -> None:
        self._made = made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._made()

    def data_received(self, data: bytes) -> None:
        assert isinstance(self.transport, asyncio.Transport)
        self.transport.write(data)


class Served:
    """A server, and how many handshakes have succeeded."""

    def __init__(self, sockets: list[socket.socket], context: ssl.SSLContext | None) -> None:
        self.accepted = 0
        self.server = TlsServer(sockets, lambda: Echo(self._count), lambda: context)
        self.port: int = self.server.sockets[0].getsockname()[1]

    def _count(self) -> None:
        self.accepted += 1

    async def echoes(self, trust: ssl.SSLContext, host: str = "127.0.0.1") -> bool:
        """Whether a client with TLS is served."""
        reader, writer = await asyncio.open_connection(host, self.port, ssl=trust, server_hostname="localhost")
        writer.write(b"hello")
        found = await reader.readexactly(5)
        writer.close()
        return found == b"hello"


def run(context: ssl.SSLContext | None, test: Callable[[Served], Awaitable[None]]) -> None:
    """A test of a server, in a loop."""

    async def body() -> None:
        served = Served(await tls_server.bind("127.0.0.1", 0), context)
        try:
            await test(served)
        finally:
            served.server.close()

    asyncio.run(asyncio.wait_for(body(), 60))


@contextmanager
def silent_peers(port: int, number: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection(("127.0.0.1", port), 30)) for _ in range(number)]


def is_closed(peer: socket.socket) -> bool:
    peer.setblocking(False)
    try:
        return peer.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_of_silent_peers_the_oldest_go(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, client = contexts
    monkeypatch.setattr(tls_server, "HANDSHAKE_S", 600.0)

    async def test(served: Served) -> None:
        with silent_peers(served.port, HANDSHAKES + 30) as peers:
            while sum(map(is_closed, peers)) < 30:
                await asyncio.sleep(0.01)
            assert [is_closed(peer) for peer in peers] == [True] * 30 + [False] * HANDSHAKES
            assert await served.echoes(client) and served.accepted == 1

    run(server, test)


def test_a_peer_that_says_nothing_has_its_time(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_server, "HANDSHAKE_S", 0.1)

    async def test(served: Served) -> None:
        with silent_peers(served.port, 1) as (peer,):
            while not is_closed(peer):
                await asyncio.sleep(0.01)
        assert served.accepted == 0

    run(contexts[0], test)


def test_a_peer_without_tls_ends_alone(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], caplog: pytest.LogCaptureFixture
) -> None:
    server, client = contexts

    async def test(served: Served) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert b"HTTP" not in await reader.read()
        writer.close()
        assert await served.echoes(client)

    run(server, test)
    assert caplog.records == []


def test_without_a_certificate_connections_are_closed() -> None:
    async def test(served: Served) -> None:
        with silent_peers(served.port, 1) as (peer,):
            while not is_closed(peer):
                await asyncio.sleep(0.01)

    run(None, test)


def test_a_name_is_bound_at_each_of_its_addresses(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As asyncio's own server binds it, and each address is served."""
    hosts = ("127.0.0.1", "127.0.0.2")
    known, port = socket.getaddrinfo, free_port()

    def resolve(host: str, *words: Any, **options: Any) -> list[Any]:
        found = hosts if host == "console.example" else (host,)
        return [info for one in found for info in known(one, *words, **options)]

    async def body() -> None:
        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        served = Served(await tls_server.bind("console.example", port), contexts[0])
        assert sorted(sock.getsockname() for sock in served.server.sockets) == [(host, port) for host in hosts]
        assert [await served.echoes(contexts[1], host) for host in hosts] == [True, True]
        served.server.close()

    asyncio.run(asyncio.wait_for(body(), 60))


def test_an_address_that_is_taken_is_an_error() -> None:
    async def body() -> None:
        (taken,) = await tls_server.bind("127.0.0.1", 0)
        with taken, pytest.raises(OSError, match="in use"):
            await tls_server.bind(*taken.getsockname())

    asyncio.run(body())
