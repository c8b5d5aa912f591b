"""The bound on connections: silent peers go, and the others are served."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from weakref import WeakSet

import pytest
from aiohttp import web

from odradek.broker.exporter import http_server
from odradek.broker.exporter.http_server import Connections

MOST = 4
Contexts = tuple[ssl.SSLContext, ssl.SSLContext]


@asynccontextmanager
async def served(server: ssl.SSLContext) -> AsyncIterator[tuple[str, int]]:
    """The address of a server with TLS. A request of /login makes its connection one of a reader."""
    readers = WeakSet[asyncio.Transport]()

    async def answer(request: web.BaseRequest) -> web.Response:
        if request.path == "/login" and request.transport is not None:
            readers.add(request.transport)
        return web.Response(text="served")

    pages = Connections(answer, readers.__contains__)
    listening = await http_server.listen(pages, "127.0.0.1:0", lambda: server)
    try:
        yield listening.sockets[0].getsockname()[:2]
    finally:
        listening.close()
        await pages.shutdown(0)


def shake_hands(address: tuple[str, int], client: ssl.SSLContext, source: str = "127.0.0.1") -> ssl.SSLSocket:
    """A peer that says nothing once it has TLS. It does not even take leave: it reads nothing."""
    return client.wrap_socket(socket.create_connection(address, 30, (source, 0)), server_hostname="localhost")


def log_in(address: tuple[str, int], client: ssl.SSLContext) -> ssl.SSLSocket:
    """A reader's browser, between two requests."""
    peer = shake_hands(address, client)
    peer.sendall(b"GET /login HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert peer.recv(10_000).endswith(b"served")
    return peer


async def get(address: tuple[str, int], client: ssl.SSLContext) -> bytes:
    """A request on a connection of its own."""
    reader, writer = await asyncio.open_connection(*address, ssl=client, server_hostname="localhost")
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    found = await reader.read()
    writer.close()
    return found


def is_closed(peer: ssl.SSLSocket) -> bool:
    peer.setblocking(False)
    try:
        return peer.recv(1) == b""
    except ssl.SSLWantReadError:
        return False
    except OSError:
        return True


def test_peers_that_are_silent_after_the_handshake_are_bounded(
    contexts: Contexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "MOST", MOST)

    async def test() -> None:
        async with served(contexts[0]) as address:
            with ExitStack() as stack:
                peers = [
                    stack.enter_context(await asyncio.to_thread(shake_hands, address, contexts[1]))
                    for _ in range(MOST + 3)
                ]
                while sum(map(is_closed, peers)) < 3:
                    await asyncio.sleep(0.01)
                assert [is_closed(one) for one in peers] == [True] * 3 + [False] * MOST
                assert b"served" in await get(address, contexts[1])

    asyncio.run(asyncio.wait_for(test(), 20))


def test_a_peer_without_a_request_has_its_time(contexts: Contexts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "IDLE_S", 0.1)

    async def test() -> None:
        async with served(contexts[0]) as address:
            with await asyncio.to_thread(shake_hands, address, contexts[1]) as peer:
                while not is_closed(peer):
                    await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(test(), 20))


def test_those_of_a_flood_go_first(contexts: Contexts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not who has logged in, though at the same address, nor who is alone at another."""
    monkeypatch.setattr(http_server, "MOST", MOST)

    async def test() -> None:
        async with served(contexts[0]) as address:
            with ExitStack() as stack:
                reader = stack.enter_context(await asyncio.to_thread(log_in, address, contexts[1]))
                alone = stack.enter_context(await asyncio.to_thread(shake_hands, address, contexts[1], "127.0.0.2"))
                flood = [
                    stack.enter_context(await asyncio.to_thread(shake_hands, address, contexts[1]))
                    for _ in range(2 * MOST)
                ]
                left = MOST - 2
                while sum(map(is_closed, flood)) < len(flood) - left:
                    await asyncio.sleep(0.01)
                assert [is_closed(one) for one in (reader, alone, *flood[-left:])] == [False] * MOST

    asyncio.run(asyncio.wait_for(test(), 20))
