"""How a draining worker closes connections that no other process can take: with the answer to their last request.

TLS has no message for "send no more requests" (close_notify ends the sender's own direction alone), and neither has
Kafka's protocol. A client that has sent a request and finds the connection closed cannot know whether it was executed:
without retries that is an error. So the answer and the end of the connection leave in one TCP segment (TCP_CORK): a
client that waits for an answer before it sends again finds both, and nothing of it is in flight. A silent client is
closed between two requests, once no bytes of it have come that were not read. One that has several requests in flight
at any time may still have sent one; nothing on the server's side can prevent that.

    at the beginning             corked. A silent connection may be closed at once, an active one has PATIENCE_S until
                                 its next answer, then it is taken for silent
    after each turn of the loop  bytes have come, or a request is open: it stays, and answers that are corked leave
                                 the last answer is corked: closed, which sends the answer, close_notify and FIN

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

PATIENCE_S = 2.0
RECORD_S = 0.2  # for the rest of a TLS record, of which OpenSSL has the first bytes
_UNREAD = termios.FIONREAD
_UNSENT = 0x894B  # SIOCOUTQNSD of linux/sockios.h: bytes that the kernel has not sent for the first time
_CLOSED = "closed: the worker is stopping"


class LastAnswers:
    """The connections that wait for their last answer. `close(connection, why)` closes at the end of the round."""

    def __init__(self, close: Callable[[Connection, str], None]) -> None:
        self._close = close
        self._until: dict[Connection, float] = {}  # monotonic seconds: when each is taken for silent

    def add(self, connection: Connection, now: float) -> None:
        """Close this one as soon as it can be; it may have been added before."""
        if connection not in self._until:
            self._until[connection] = now + PATIENCE_S if _was_active(connection, now) else now
            _cork(connection.fd, True)

    def forget(self, connection: Connection) -> None:
        """It leaves the loop to authenticate again, which takes several answers."""
        if self._until.pop(connection, None) is not None:
            _cork(connection.fd, False)

    def turn(self, now: float) -> bool:
        """After each turn of the loop; whether some were closed."""
        over = [connection for connection, until in self._until.items() if self._is_over(connection, now, until)]
        for connection in over:
            del self._until[connection]
            if not connection.closed:
                self._close(connection, _CLOSED)
        return bool(over)

    def _is_over(self, connection: Connection, now: float, until: float) -> bool:
        if connection.closed:
            return True
        active, answered = _was_active(connection, now), _count(connection.fd, _UNSENT)
        if active:
            self._until[connection] = max(until, now + RECORD_S)
        if connection.idle and not _count(connection.fd, _UNREAD):
            return bool(answered) or (now >= until and not active)
        if answered:
            _cork(connection.fd, False)
            _cork(connection.fd, True)
        return False


def _was_active(connection: Connection, now: float) -> bool:
    """Whether bytes have come since the last call; other checks find when."""
    active = connection.active
    if active:
        connection.active, connection.last_active = False, int(now)
    return active


def _count(fd: int, which: int) -> int:
    """Bytes in a queue of a socket; 0 where the kernel cannot tell."""
    count = array.array("i", [0])
    with suppress(OSError):
        fcntl.ioctl(fd, which, count)
    return count[0]


def _cork(fd: int, on: bool) -> None:
    """Whether the kernel keeps what does not fill a segment; it does for 200 ms at most."""
    borrowed = socket.socket(socket.AF_INET, socket.SOCK_STREAM, fileno=fd)
    try:
        with suppress(OSError):  # the client has reset the connection
            borrowed.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, on)
    finally:
        borrowed.detach()
