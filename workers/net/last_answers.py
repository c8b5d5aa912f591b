"""How a draining worker closes connections that no other process can take: with the answer to their last request.

TLS has no message for "send no more requests" (close_notify ends the sender's own direction alone), and neither has
Kafka's protocol. A client that has sent a request and finds the connection closed cannot know whether it was executed:
without retries that is an error. So the answer and the end of the connection leave in one TCP segment (TCP_CORK): a
client that waits for an answer before it sends again finds both, and nothing of it is in flight. A silent client is
closed between two requests, once no bytes of it have come that were not read. One that has several requests in flight
at any time may still have sent one; nothing on the server's side can prevent that.

    at the beginning             a silent connection   closed
                                 an active one         corked; waits for the next answer, for at most PATIENCE_S
    after each turn of the loop  bytes have come       stays: they are a request
                                 a request is open     stays; what is corked is sent
                                 its answer was sent   closed, which sends the answer, close_notify and FIN

Owner: the worker, from the begin of a drain until its end.
"""

from __future__ import annotations

import array
import fcntl
import socket
import termios
from collections.abc import Callable
from contextlib import suppress

from odradek.workers.net.connection import Connection

PATIENCE_S = 0.5  # for the next answer of a client that sends now and then; then it is taken for silent
_CLOSED = "closed: the worker is stopping"


class LastAnswers:
    """The connections that wait for their last answer. `close(connection, why)` closes at the end of the round."""

    def __init__(self, close: Callable[[Connection, str], None]) -> None:
        self._close = close
        self._until: dict[Connection, float] = {}  # monotonic seconds: when each is taken for silent
        self._open: set[Connection] = set()  # had a request without an answer after the last turn

    def add(self, connection: Connection, now: float) -> None:
        """Close this one as soon as it can be; it may have been added before."""
        if connection not in self._until:
            self._until[connection] = now + PATIENCE_S if connection.active else now
            connection.active = False
            _cork(connection.fd, True)

    def turn(self, now: float) -> bool:
        """After each turn of the loop; whether some were closed."""
        over = [connection for connection, until in self._until.items() if self._is_over(connection, now >= until)]
        for connection in over:
            del self._until[connection]
            self._open.discard(connection)
            if not connection.closed:
                self._close(connection, _CLOSED)
        return bool(over)

    def _is_over(self, connection: Connection, late: bool) -> bool:
        if connection.closed:
            return True
        served, connection.active = connection.active or connection in self._open, False
        if connection.idle and not _unread(connection.fd):
            self._open.discard(connection)
            return served or late
        self._open.add(connection)
        if served:  # perhaps one of several answers
            _cork(connection.fd, False)
            _cork(connection.fd, True)
        return False


def _unread(fd: int) -> int:
    """Bytes that have come and were not read."""
    count = array.array("i", [0])
    fcntl.ioctl(fd, termios.FIONREAD, count)
    return count[0]


def _cork(fd: int, on: bool) -> None:
    """Whether the kernel keeps what does not fill a segment; it does for 200 ms at most."""
    borrowed = socket.socket(socket.AF_INET, socket.SOCK_STREAM, fileno=fd)
    try:
        with suppress(OSError):  # the client has reset the connection
            borrowed.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, on)
    finally:
        borrowed.detach()
