"""Listens for HTTP on one address, with or without TLS, with a bound on connections.

MOST connections are served at a time. The oldest of the sender that has most goes for a new one, and one of a reader
who has logged in only if there are no others: so no number of silent peers keeps a scrape out, or ends what a reader
asks. It is aborted, because the end of TLS waits for the peer. A connection without a request goes after IDLE_S. Each
connection's buffers are bounded by the library. A malformed request is answered and not logged: any peer can send them
without end.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from odradek.broker.exporter.access import tls_server
from odradek.broker.exporter.access.networks import network, next_to_go
from odradek.broker.exporter.access.tls_server import Context, TlsServer
from odradek.broker.listeners import bracket

MOST = 64  # connections
IDLE_S = 75.0  # longer than Prometheus' usual scrape_interval of a minute


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether a fault that the library logs is one of this program, and not of a peer's request."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


logging.getLogger("aiohttp.server").addFilter(_is_ours)


Server = asyncio.Server | TlsServer
Handle = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
IsReader = Callable[[asyncio.Transport], bool]


class Connections(web.Server):
    """The connections at one address, each with the bound on all of them."""

    def __init__(self, handle: Handle, is_reader: IsReader | None = None) -> None:
        """`handle` answers each request; nothing is logged of it. `is_reader`: whether a connection has logged in."""
        super().__init__(handle, access_log=None, keepalive_timeout=IDLE_S)
        self._is_reader = is_reader or (lambda _: False)
        self._open: dict[web.RequestHandler, asyncio.Transport] = {}  # the oldest first

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Called after the handshake, where there is TLS."""
        super().connection_made(handler, transport)
        if len(self._open) >= MOST:
            self._open.pop(self._next_to_go()).abort()
        self._open[handler] = transport

    def _next_to_go(self) -> web.RequestHandler:
        strangers = [one for one, transport in self._open.items() if not self._is_reader(transport)]
        return next_to_go({one: _sender(self._open[one]) for one in strangers or self._open})

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        """Called once it has ended."""
        self._open.pop(handler, None)
        super().connection_lost(handler, exc)


def _sender(transport: asyncio.Transport) -> str:
    peer = transport.get_extra_info("peername")
    return network(str(peer[0])) if peer else ""


async def listen(serving: Connections, address: str, context: Context | None = None) -> Server:
    """Bind `host:port` and serve; with TLS if there is a `context`, the one of a new connection. Raises OSError."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if context is not None:
        return TlsServer(await tls_server.bind(host, int(port)), serving, context)
    loop = asyncio.get_running_loop()
    return await loop.create_server(serving, host, int(port), reuse_address=True)


def bound(server: Server) -> str:
    """The first address that it listens at, as host:port."""
    sock: socket.socket = server.sockets[0]
    host, port = sock.getsockname()[:2]
    return f"{bracket(host)}:{port}"
