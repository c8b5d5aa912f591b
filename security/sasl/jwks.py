"""The keys that sign bearer tokens (JWKS, RFC 7517), from sasl.oauthbearer.jwks.endpoint.url.

A state machine with a clock: `due` says when to fetch; a thread that may block fetches and calls `store` or `failed`.
While a fetch fails, the former keys stay in force. A token with an unknown key id makes a fetch due, at most once a
minute for an id, of which 16 are remembered: as in Kafka.

Keys for symmetric algorithms are left out: every reader of the set could sign with them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)

LONGEST_KEY_ID = 1000
MOST_MISSING = 16
MISSING_AGAIN_MS = 60_000
_KINDS = ("RSA", "EC", "OKP")


class Jwks:
    """The keys in force."""

    def __init__(self, refresh_ms: int = 3600000, backoff_ms: int = 100, backoff_max_ms: int = 10000) -> None:
        """`refresh_ms`: sasl.oauthbearer.jwks.endpoint.refresh.ms, 0 for a file; the others, ….retry.backoff….ms."""
        self._refresh_ms = refresh_ms
        self._backoff_ms = backoff_ms
        self._backoff_max_ms = backoff_max_ms
        self._failures = 0
        self._due_ms: int | None = 0
        self._missing: dict[str, int] = {}
        self._keys: list[Any] = []

    def due(self, now_ms: int) -> bool:
        """Whether the keys are to be fetched."""
        return self._due_ms is not None and now_ms >= self._due_ms

    def refresh(self, fetch: Callable[[], bytes], now_ms: int) -> None:
        """Fetch, for a caller that may block; the reason of a failure is logged."""
        try:
            self.store(fetch(), now_ms)
        except (OSError, ValueError) as error:
            log.warning("sasl.oauthbearer.jwks.endpoint.url: %s; the former keys stay in force", error)
            self.failed(now_ms)

    def store(self, data: bytes, now_ms: int) -> None:
        """Put the keys of a JWKS into force; ValueError for other data."""
        self._keys = parse(data)
        self._failures = 0
        self._due_ms = now_ms + self._refresh_ms if self._refresh_ms else None
        for key in self._keys:
            self._missing.pop(key.kid or "", None)

    def failed(self, now_ms: int) -> None:
        """Try again later, each time twice as late."""
        wait = min(self._backoff_ms << min(self._failures, 30), self._backoff_max_ms)
        self._failures += 1
        self._due_ms = now_ms + wait

    def candidates(self, key_id: str | None, now_ms: int) -> list[Any]:
        """The keys that may have signed a token: the one with its key id, all if it has none."""
        found = [key for key in self._keys if key_id is None or key.kid == key_id]
        if not found and key_id is not None:
            self._miss(key_id, now_ms)
        return found

    def _miss(self, key_id: str, now_ms: int) -> None:
        if not self._refresh_ms or len(key_id) > LONGEST_KEY_ID or self._missing.get(key_id, 0) > now_ms:
            return
        self._missing.pop(key_id, None)
        self._missing[key_id] = now_ms + MISSING_AGAIN_MS
        if len(self._missing) > MOST_MISSING:
            del self._missing[next(iter(self._missing))]
        self._due_ms = min(self._due_ms or 0, now_ms)


def parse(data: bytes) -> list[Any]:
    """The keys of a set that can verify a signature; those of unknown kinds are left out, as RFC 7517 has it."""
    try:
        listed = json.loads(data)["keys"]
        keys = [_import(key) for key in listed]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError('a JWKS must be JSON of the form {"keys": […]}') from None
    return [key for key in keys if key is not None]


def _import(fields: Any) -> Any:
    from joserfc import jwk

    if not isinstance(fields, dict) or fields.get("kty") not in _KINDS or fields.get("use", "sig") != "sig":
        return None
    try:
        return jwk.import_key({name: value for name, value in fields.items() if name not in ("key_ops", "use")})
    except Exception as error:  # of the library and those below it, for one bad key among good ones
        log.warning("a key in the JWKS is left out: %s", type(error).__name__)
        return None
