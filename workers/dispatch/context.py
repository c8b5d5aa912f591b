"""The context of a request for its handler: the client, and the means to answer later."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

FEW = 128  # elements of an answer that are encoded in one go
PRINCIPAL = "User:ANONYMOUS"  # there is no authentication yet


def at_once(work: Iterator[object]) -> None:
    """Run all steps of `work`."""
    for _ in work:
        pass


class Context:
    """The context of one request; handlers that returned None may call `reply` once.

    `begin(work)` does the rest of a request in steps; if it raises, the request is answered as failed.
    """

    __slots__ = ("_reply", "api_key", "begin", "client_host", "client_id", "listener", "size", "version")

    def __init__(
        self,
        api_key: int,
        version: int,
        client_id: str | None,
        client_host: str,
        listener: str,
        reply: Callable[[Any], None],
        size: int = 0,
        begin: Callable[[Iterator[object]], None] = at_once,
    ) -> None:
        """`size`: bytes of the request's body."""
        self.api_key = api_key
        self.version = version
        self.client_id = client_id
        self.client_host = client_host
        self.listener = listener
        self.size = size
        self._reply = reply
        self.begin = begin

    @property
    def principal(self) -> str:
        return PRINCIPAL

    @property
    def now_ms(self) -> int:
        """The wall clock."""
        return time.time_ns() // 1_000_000

    def finish(self, work: Iterator[object], elements: int) -> None:
        """Do the rest of a request whose answer has so many elements: at once if they are few, else in steps."""
        (self.begin if elements > FEW else at_once)(work)

    def reply(self, response: Any) -> None:
        """Answer a request whose handler returned None."""
        self._reply(response)
