"""A TLS connection that this process opens, on a non-blocking socket; its user sees a plain socket.

`recv_into` and `send` raise BlockingIOError where OpenSSL cannot go on. Read until then: what OpenSSL has in its buffer
makes no descriptor readable. After a `send` that blocked, send the same bytes again: they have begun a record.
"""

from __future__ import annotations

import math
import select
import socket
import ssl

from odradek.security.tls.handshake import Handshake, Progress, reason

_EVENTS = {Progress.WANTS_READ: select.EPOLLIN, Progress.WANTS_WRITE: select.EPOLLOUT, Progress.DONE: 0}


class SecureSocket:
    """Takes over a connected socket. `host`: the name that the peer's certificate must have."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, host: str) -> None:
        """Raises OSError, with the socket closed."""
        try:
            self._tls = context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
        except (OSError, ValueError) as error:  # ValueError: not a name that TLS can send
            sock.close()
            raise ConnectionError(f"{host}: {reason(error)}") from None
        self._handshake = Handshake(self._tls, math.inf)

    def handshake(self) -> int:
        """Go on with the handshake; the epoll events to wait for, 0 when it is done. Raises ConnectionError."""
        progress = self._handshake.step(0)
        if progress is Progress.FAILED:
            raise ConnectionError(self._handshake.failure)
        return _EVENTS[progress]

    def recv_into(self, room: memoryview) -> int:
        """As of a socket."""
        try:
            return self._tls.recv_into(room)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None
        except ssl.SSLError as error:
            raise ConnectionError(reason(error)) from None

    def send(self, data: memoryview) -> int:
        """As of a socket."""
        try:
            return self._tls.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None
        except ssl.SSLError as error:
            raise ConnectionError(reason(error)) from None

    def fileno(self) -> int:
        """The descriptor to poll."""
        return self._tls.fileno()

    def close(self) -> None:
        """As of a socket."""
        self._tls.close()
