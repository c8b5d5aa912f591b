"""Connections that exceed the connection creation quota of their address: kept unread for a while, then closed.

There are at most MOST of them: above that the oldest is closed early, so that addresses cannot use up all descriptors.
"""

from __future__ import annotations

import heapq
import itertools
import math
import socket
from collections.abc import Iterator

from odradek.ipc.handoff import Client

MOST = 1024


class ThrottledConnections:
    """Connections by the time at which they are closed (monotonic seconds)."""

    def __init__(self) -> None:
        self._waiting: list[tuple[float, int, socket.socket, Client]] = []
        self._numbers = itertools.count()

    def add(self, connection: socket.socket, client: Client, until: float) -> None:
        """Keep a connection until then."""
        heapq.heappush(self._waiting, (until, next(self._numbers), connection, client))

    def due(self) -> float:
        """When the next one is to be closed."""
        if len(self._waiting) > MOST:
            return -math.inf
        return self._waiting[0][0] if self._waiting else math.inf

    def close_due(self, now: float) -> Iterator[Client]:
        """Close those that are due; yields whose they were."""
        while self.due() <= now:
            _, _, connection, client = heapq.heappop(self._waiting)
            connection.close()
            yield client

    def close(self) -> None:
        """Close all, due or not."""
        for _, _, connection, _ in self._waiting:
            connection.close()
        self._waiting.clear()
