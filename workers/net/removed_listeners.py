"""The connections of listeners that are removed while the broker runs: closed soon, once they have their answers.

Among them may be the client that has removed its listener and waits for the answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from odradek.workers.net.connection import Connection

PATIENCE_S = 1.0
_WHY = "closed: its listener was removed"

Drop = Callable[[Connection, str], None]


class RemovedListeners:
    """The security protocols of the listeners there are, and connections of those that were removed."""

    def __init__(self, protocols: Mapping[str, str]) -> None:
        self.protocols = protocols
        self._ending: set[Connection] = set()
        self._until = math.inf

    def follow(self, protocols: Mapping[str, str], connections: Iterable[Connection], now: float) -> bool:
        """Take over the listeners; whether they differ. A listener with another protocol is another one."""
        if protocols == self.protocols:
            return False
        kept = {name for name, protocol in protocols.items() if self.protocols.get(name) == protocol}
        self._ending |= {connection for connection in connections if connection.listener not in kept}
        self.protocols, self._until = protocols, now + PATIENCE_S
        return True

    def tick(self, now: float, drop: Drop) -> None:
        """Close what is to be closed."""
        for connection in list(self._ending):
            if connection.closed:
                self._ending.discard(connection)
            elif connection.idle or now >= self._until:
                self._ending.discard(connection)
                drop(connection, _WHY)
