"""A client's own bearer token: the one in force, and when the next is due, as sasl.login.refresh.* say.

A state machine with a clock: `due` says when to fetch; a thread that may block fetches and calls `store` or `failed`.
While fetches fail, the former token stays in force until it expires.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from odradek.security.sasl.bearer_tokens import TokenRefused
from odradek.security.sasl.password import Password
from odradek.security.sasl.token_endpoint import LoginToken


@dataclass(frozen=True, slots=True)
class RefreshWindow:
    """sasl.login.refresh.*; `part` gives a number from 0 to 1."""

    factor: float = 0.8
    jitter: float = 0.05
    min_period_ms: int = 60_000
    buffer_ms: int = 300_000
    part: Callable[[], float] = field(default=random.random, compare=False)

    def due_ms(self, token: LoginToken, now_ms: int) -> int:
        """When the successor of a token that came at `now_ms` is to be fetched.

        The pauses at both ends do not count for a token that lives no longer than these.
        """
        share, left_ms = self.factor + self.jitter * self.part(), token.expires_ms - now_ms
        if left_ms < self.min_period_ms + self.buffer_ms:
            return now_ms + int(left_ms * share)
        begins_ms = now_ms if token.issued_ms is None else token.issued_ms
        wanted_ms = begins_ms + int((token.expires_ms - begins_ms) * share)
        return max(now_ms + self.min_period_ms, min(wanted_ms, token.expires_ms - self.buffer_ms))


class TokenLogin:
    """The token of one client."""

    def __init__(self, window: RefreshWindow, backoff_ms: int = 100, backoff_max_ms: int = 10_000) -> None:
        """`backoff_ms`, `backoff_max_ms`: sasl.login.retry.backoff(.max).ms."""
        self._window = window
        self._backoff_ms, self._backoff_max_ms = backoff_ms, backoff_max_ms
        self._failures = 0
        self._due_ms = 0
        self._token: LoginToken | None = None

    def due(self, now_ms: int) -> bool:
        """Whether a token is to be fetched."""
        return now_ms >= self._due_ms

    def token(self, now_ms: int) -> Password | None:
        """The token in force; None when there is none or it has expired."""
        found = self._token
        return found.text if found is not None and now_ms < found.expires_ms else None

    def store(self, token: LoginToken, now_ms: int) -> None:
        """Put a token in force. Raises TokenRefused for one that has expired."""
        if now_ms >= token.expires_ms:
            raise TokenRefused("the token has expired")
        self._token, self._failures = token, 0
        self._due_ms = self._window.due_ms(token, now_ms)

    def failed(self, now_ms: int, lasting: bool) -> None:
        """Try again later, each time twice as late; after the longest pause where the cause is `lasting`."""
        wait_ms = min(self._backoff_ms << min(self._failures, 30), self._backoff_max_ms)
        self._failures += 1
        self._due_ms = now_ms + (self._backoff_max_ms if lasting else wait_ms)
