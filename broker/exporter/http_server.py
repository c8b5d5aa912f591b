"""Listens for HTTP on one address, with or without TLS, with a bound on connections.

MOST connections are served at a time. The oldest goes for a new one, so that no number of silent peers keeps a scrape
out. Each connection's buffers are bounded by the library. A malformed request is answered and not logged: any peer can
send them without end.
"""

from __future__ import annotations

import asyncio
import logging
import socket

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from odradek.broker.exporter.access import tls_server
from odradek.broker.exporter.access.tls_server import Context, TlsServer
from odradek.broker.listeners import bracket

MOST = 64  # connections


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether a fault that the library logs is one of this program, and not of a peer's request."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


logging.getLogger("aiohttp.server").addFilter(_is_ours)


Server = asyncio.Server | TlsServer


async def listen(serving: web.Server, address: str, context: Context | None = None) -> Server:
    """Bind `host:port` and serve; with TLS if there is a `context`, the one of a new connection. Raises OSError."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if context is not None:
        return TlsServer(tls_server.bind(host, int(port)), serving, context, lambda: _make_room(serving, MOST))
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: _accept(serving), host, int(port), reuse_address=True)


def _accept(serving: web.Server) -> web.RequestHandler:
    _make_room(serving, MOST - 1)
    return serving()


def _make_room(serving: web.Server, most: int) -> None:
    connections = serving.connections
    if len(connections) > most:
        connections[0].force_close()


def bound(server: Server) -> str:
    """The first address that it listens at, as host:port."""
    sock: socket.socket = server.sockets[0]
    host, port = sock.getsockname()[:2]
    return f"{bracket(host)}:{port}"
