"""The TLS of the inter-broker listener as its client: the certificate and the trust of connections to other brokers.

The workers serve that listener with the same settings, so new settings and new files come into force here by the same
rules (security.tls.reload): what one side refuses, the other refuses too. A connection keeps what it began with. The
first version is loaded by the first connection, or by the first change before it: a process that starts after a change
need not get along with what was in force before.
"""

from __future__ import annotations

import logging
import ssl
import time
from functools import partial

from odradek.ipc.notices import SAME_S, IsFirst
from odradek.security.tls import listener
from odradek.security.tls.reload import Rejected, Reloader, stats_of
from odradek.security.tls.settings import TlsSettings

log = logging.getLogger(__name__)


class LinkTls:
    """The version in force, and its successors."""

    def __init__(self, settings: TlsSettings, is_first: IsFirst = lambda *_: True) -> None:
        """`is_first`: see LinkSecurity."""
        self._settings, self._is_first = settings, is_first
        self._reloader: Reloader | None = None

    def context(self) -> ssl.SSLContext:
        """The context of a new connection. Raises TlsError when none could be loaded yet."""
        return self._loaded().listener.client

    def check(self, settings: TlsSettings) -> None:
        """Whether `change` would take them. Raises TlsError."""
        self._loaded().check(settings, time.time())

    def change(self, settings: TlsSettings) -> None:
        """Put other settings in force. Raises TlsError; then the former stay in force."""
        if self._reloader is None:
            self._reloader = _load(settings)
        elif settings != self._reloader.listener.settings:
            self._reloader.take(settings, time.time(), stats_of(settings))

    def poll(self) -> None:
        """Look at the files; log what came of it, if they changed."""
        if self._reloader is None:
            return
        stats = stats_of(self._reloader.listener.settings)
        outcome = self._reloader.poll(time.time(), stats)
        if isinstance(outcome, Rejected):
            line = f"connections to other brokers: {outcome.line}"
            if self._is_first(f"{line} {stats}", time.time(), SAME_S):
                log.error(line)
        elif outcome is not None:
            log.info("connections to other brokers: new ones use the new certificate")

    def _loaded(self) -> Reloader:
        if self._reloader is None:
            self._reloader = _load(self._settings)
        return self._reloader


def _load(settings: TlsSettings) -> Reloader:
    """The first version: a start has checked that it connects to itself."""
    stats = stats_of(settings)
    load = partial(listener.load, inter_broker=True)
    return Reloader(listener.load(settings, time.time()), stats, load, inter_broker=True)
