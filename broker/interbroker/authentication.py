"""The authentication of one connection to another broker, and when it is due again (KIP-368). No sockets, no clock.

A broker with connections.max.reauth.ms ends a connection whose client does not authenticate again in time. As in Kafka
the client does so before its next request, once 85 to 95 % of that time have passed, so that many connections made at
once do not authenticate at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from odradek.security.sasl.client_exchange import AuthenticationError, ClientExchange


class NotAuthenticated(ConnectionError):
    """The authentication failed, in one printable line."""


class Authentication:
    """`begin` makes the exchange of each authentication; it raises ValueError for a wrong setting."""

    def __init__(
        self, begin: Callable[[], ClientExchange], part: Callable[[], float] = lambda: random.uniform(0.85, 0.95)
    ) -> None:
        self._begin = begin
        self._part = part
        self._exchange: ClientExchange | None = None
        self._due_ms: float | None = None

    @property
    def under_way(self) -> bool:
        """Whether the next response is for `receive`."""
        return self._exchange is not None

    def is_due(self, now_ms: int) -> bool:
        """Whether the connection must authenticate before its next request."""
        return self._due_ms is not None and now_ms >= self._due_ms

    def start(self) -> bytes:
        """The first request. Raises NotAuthenticated."""
        try:
            self._exchange = self._begin()
            return self._exchange.start()
        except (ValueError, AuthenticationError) as error:
            raise NotAuthenticated(_line(str(error))) from None

    def receive(self, frame: bytes, now_ms: int) -> bytes | None:
        """The next request after a response without its length; None: authenticated. Raises NotAuthenticated."""
        exchange = self._exchange
        assert exchange is not None
        try:
            request = exchange.receive(frame)
        except (ValueError, AuthenticationError) as error:
            raise NotAuthenticated(_line(str(error))) from None
        if request is None:
            self._exchange = None
            self._due_ms = now_ms + exchange.lifetime_ms * self._part() if exchange.lifetime_ms > 0 else None
        return request


def _line(text: str) -> str:
    """The text in one line: parts of it may be the other side's."""
    return text if text.isprintable() else text.encode("unicode_escape").decode()
