"""One connection on its way in: what has come of its TLS handshake and its SASL exchange so far.

Owner: workers.authentication.unauthenticated. A crash leaves nothing: the socket dies with the process.
"""

from __future__ import annotations

import select

from odradek.security.sasl.exchange import Exchange, Fail
from odradek.security.tls.handshake import Handshake
from odradek.workers.authentication.listener_security import ListenerSecurity
from odradek.workers.net.connection import Connection

IN = int(select.EPOLLIN | select.EPOLLRDHUP)


class Peer:
    """One connection on its way in."""

    __slots__ = (
        "connection", "deadline", "early", "exchange", "fails_at", "failure", "handshake", "held", "mask", "out",
        "security",
    )  # fmt: skip

    def __init__(self, connection: Connection, security: ListenerSecurity, deadline: float) -> None:
        self.connection = connection
        self.security = security
        self.deadline = deadline
        self.handshake: Handshake | None = None
        self.exchange: Exchange | None = None
        self.early = b""  # received before it came here, to be taken first
        self.out = b""
        self.held = 0  # bytes of its incomplete frame, and of answers that it does not read
        self.mask = IN
        self.failure: Fail | None = None
        self.fails_at = 0.0
