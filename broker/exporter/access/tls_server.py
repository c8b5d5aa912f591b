"""Accepts connections with TLS, with a bound on handshakes.

asyncio's own server leaves peers that send nothing as they are for a minute, any number of them. Here a handshake has
HANDSHAKE_S, and HANDSHAKES are under way at most: the oldest of the sender that has most goes for a new one. Each
connection has the context that is in force when it comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable

from odradek.broker.exporter.access.networks import network, next_to_go

HANDSHAKES, HANDSHAKE_S = 64, 5.0
_CLOSE_S = 1.0  # for a peer's close_notify
_AT_ONCE = HANDSHAKES // 4  # so that the oldest has begun when it must go
_BACKLOG = 128
_AGAIN_S = 1.0  # where the process has no descriptor left

Context = Callable[[], ssl.SSLContext | None]


class TlsServer:
    """Listens at sockets. A connection has a `protocol` once its handshake has succeeded."""

    def __init__(
        self, sockets: list[socket.socket], protocol: Callable[[], asyncio.Protocol], context: Context
    ) -> None:
        self.sockets = sockets
        self._protocol, self._context = protocol, context
        self._handshakes: dict[asyncio.Task[None], str] = {}  # their senders; the oldest first
        self._loop = asyncio.get_running_loop()
        for sock in sockets:
            sock.setblocking(False)
            self._watch(sock)

    def _watch(self, sock: socket.socket) -> None:
        if sock in self.sockets:
            self._loop.add_reader(sock, self._accept, sock)

    def _accept(self, sock: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, address = sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                return
            except OSError:
                self._loop.remove_reader(sock)
                self._loop.call_later(_AGAIN_S, self._watch, sock)
                return
            self._begin(connection, network(str(address[0])))

    def _begin(self, connection: socket.socket, sender: str) -> None:
        context = self._context()
        if context is None:
            connection.close()
            return
        if len(self._handshakes) >= HANDSHAKES:
            oldest = next_to_go(self._handshakes)
            del self._handshakes[oldest]
            oldest.cancel()
        task = self._loop.create_task(self._handshake(connection, context))
        self._handshakes[task] = sender
        task.add_done_callback(lambda done: self._handshakes.pop(done, None))

    async def _handshake(self, connection: socket.socket, context: ssl.SSLContext) -> None:
        connection.setblocking(False)
        with contextlib.suppress(OSError):  # a peer that speaks no TLS, or goes; TimeoutError and SSLError are some
            await self._loop.connect_accepted_socket(
                self._protocol, connection, ssl=context, ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=_CLOSE_S,
            )  # fmt: skip

    def close(self) -> None:
        """Take no more."""
        for sock in self.sockets:
            self._loop.remove_reader(sock)
            sock.close()
        self.sockets = []
        for task in list(self._handshakes):
            task.cancel()


async def bind(host: str, port: int) -> list[socket.socket]:
    """Listening sockets at the addresses at which asyncio's own server would listen. Raises OSError."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(asyncio.Protocol, host, port, reuse_address=True, start_serving=False)
    sockets = [sock.dup() for sock in server.sockets]
    server.close()
    try:
        for sock in sockets:
            sock.listen(_BACKLOG)
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    return sockets
