"""Connections whose sessions have ended while their clients had nothing to ask for.

As in Kafka the end of a session is noticed by the next request: until then such a connection stays open, for as long as
`connections.max.idle.ms` allows, and only an exchange can follow. It costs no more than an idle one.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator

from odradek.workers.authentication.peer import IN
from odradek.workers.authentication.unauthenticated import Loop
from odradek.workers.net.connection import Connection

log = logging.getLogger(__name__)


class ExpiredConnections:
    """All of one worker; iterates over them."""

    def __init__(
        self, loop: Loop, idle_ms: int, begin: Callable[[Connection], None], closed: Callable[[Connection], None]
    ) -> None:
        """`begin` takes one that receives something; `closed` is called for each that is closed here."""
        self._loop = loop
        self._idle_s = idle_ms / 1000 if idle_ms >= 0 else math.inf
        self._begin = begin
        self._closed = closed
        self._since: dict[Connection, float] = {}  # s, the oldest first

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._since)

    def add(self, connection: Connection) -> None:
        """Wait for its next bytes. Raises OSError, of epoll."""
        self._loop.watch(connection.fd, lambda _: self._received(connection), IN)
        self._since[connection] = time.monotonic()

    def _received(self, connection: Connection) -> None:
        self._forget(connection)
        self._begin(connection)

    def _forget(self, connection: Connection) -> None:
        del self._since[connection]
        self._loop.unwatch(connection.fd)

    def tick(self, time_s: float) -> None:
        """Close those that are idle for too long; `time_s`: monotonic."""
        idle = [one for one, since in self._since.items() if since + self._idle_s < time_s]
        self.close(idle, "idle for more than connections.max.idle.ms")

    def close(self, some: list[Connection], why: str) -> None:
        """Close these."""
        for connection in some:
            log.debug("%r: closed: %s", connection, why)
            self._forget(connection)
            self._loop.close(connection)
            self._closed(connection)
