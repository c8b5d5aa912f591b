"""The bound on connections: silent peers go, and the others are served."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

import pytest
from aiohttp import web

from odradek.broker.exporter import http_server
from odradek.broker.exporter.http_server import Connections

MOST = 4
Contexts = tuple[ssl.SSLContext, ssl.SSLContext]


async def _answer(_: web.BaseRequest) -> web.Response:
    return web.Response(text="served")


@asynccontextmanager
async def served(server: ssl.SSLContext) -> AsyncIterator[tuple[str, int]]:
    """The address of a server with TLS."""
    pages = Connections(_answer)
    listening = await http_server.listen(pages, "127.0.0.1:0", lambda: server)
    try:
        yield listening.sockets[0].getsockname()[:2]
    finally:
        listening.close()
        await pages.shutdown(0)


def shake_hands(address: tuple[str, int], client: ssl.SSLContext) -> ssl.SSLSocket:
    """A peer that says nothing once it has TLS. It does not even take leave: it reads nothing."""
    return client.wrap_socket(socket.create_connection(address, 30), server_hostname="localhost")


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
