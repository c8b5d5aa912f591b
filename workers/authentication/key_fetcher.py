"""Fetches the keys that sign bearer tokens, from sasl.oauthbearer.jwks.endpoint.url, for one listener of one process.

A file is read at once, and again when it changes. For another URL each fetch has a thread of its own, since it waits
for the network; its outcome is taken over by the next `poll`. While a fetch fails, the former keys stay in force.
"""

from __future__ import annotations

import logging
import os
import urllib.parse
import urllib.request
from functools import partial

from odradek.security.sasl.jwks import Jwks
from odradek.security.sasl.sasl_settings import SaslSettingError
from odradek.workers.net.background_fetch import BackgroundFetch, Outcome
from odradek.workers.net.bounded_http import MOST, fetch

log = logging.getLogger(__name__)

KEY = "sasl.oauthbearer.jwks.endpoint.url"

Stat = tuple[int, int, int]


class KeyFetcher:
    """Keeps one set of keys up to date."""

    def __init__(self, jwks: Jwks, url: str) -> None:
        self._jwks = jwks
        parts = urllib.parse.urlsplit(url)
        self._path = urllib.request.url2pathname(parts.path) if parts.scheme == "file" else ""
        self._seen: Stat | None = None  # what the file looked like when it was read
        self._fetch = BackgroundFetch("jwks", lambda: fetch(url))

    def read_file(self) -> None:
        """Read the keys, if they are a file. Raises SaslSettingError."""
        if not self._path:
            return
        self._seen = self._stat()
        try:
            self._jwks.store(self._read(), 0)
        except OSError as error:
            raise SaslSettingError(KEY, f"cannot read {self._path}: {error.strerror}") from None
        except ValueError as error:
            raise SaslSettingError(KEY, f"{self._path}: {error}") from None

    def poll(self, now_ms: int) -> None:
        """Do what is due; `now_ms`: the time of day."""
        if self._path:
            self._poll_file(now_ms)
        elif (outcome := self._fetch.outcome()) is not None:
            self._jwks.refresh(partial(_content, outcome), now_ms)
        elif not self._fetch.under_way and self._jwks.due(now_ms):
            self._fetch.start()

    def _poll_file(self, now_ms: int) -> None:
        found = self._stat()
        if found is not None and found != self._seen:
            self._seen = found
            self._jwks.refresh(self._read, now_ms)

    def _stat(self) -> Stat | None:
        try:
            found = os.stat(self._path)
        except (OSError, ValueError):  # a path with a NUL
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    def _read(self) -> bytes:
        with open(self._path, "rb") as file:
            return file.read(MOST)


def _content(outcome: Outcome) -> bytes:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
