"""Listens for HTTP on one address, with a bound on connections.

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

from odradek.broker.listeners import bracket

MOST = 64  # connections


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether a fault that the library logs is one of this program, and not of a peer's request."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


logging.getLogger("aiohttp.server").addFilter(_is_ours)


async def listen(serving: web.Server, address: str) -> asyncio.Server:
    """Bind `host:port` and serve. Raises OSError."""
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: _accept(serving), host.strip("[]"), int(port), reuse_address=True)


def _accept(serving: web.Server) -> web.RequestHandler:
    connections = serving.connections
    if len(connections) >= MOST:
        connections[0].force_close()
    return serving()


def bound(server: asyncio.Server) -> str:
    """The first address that it listens at, as host:port."""
    sock: socket.socket = server.sockets[0]
    host, port = sock.getsockname()[:2]
    return f"{bracket(host)}:{port}"
