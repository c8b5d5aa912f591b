"""The TLS context of connections to ZooKeeper, loaded again once its files have changed.

Each new connection asks for it; connections keep the context that they began with. A file that changed less than
SETTLED_S ago may still be written: until then the former content is in force. So it is, with one line in the log, when
the new content cannot be used.
"""

from __future__ import annotations

import logging
import ssl
import time

from odradek.ipc.notices import SAME_S, IsFirst
from odradek.security.tls import listener
from odradek.security.tls.reload import Stat, stats_of
from odradek.security.tls.settings import TlsError, TlsSettings

log = logging.getLogger(__name__)

SETTLED_S = 1.0


class TlsClient:
    """The context of one set of settings; its files are read by the first call of `context`."""

    def __init__(self, settings: TlsSettings, is_first: IsFirst = lambda *_: True) -> None:
        """`is_first`: lines that all processes of a broker have are logged by the first of them (ipc.notices)."""
        self._settings, self._is_first = settings, is_first
        self._context: ssl.SSLContext | None = None
        self._loaded: dict[str, Stat | None] = {}

    def context(self) -> ssl.SSLContext:
        """The context in force. Raises TlsError when none could be loaded yet."""
        stats = stats_of(self._settings)
        if self._context is None:
            self._context, self._loaded = listener.load_client(self._settings, time.time()), stats
        elif stats != self._loaded and all(map(_is_settled, stats.values())):
            self._reload(stats)
        return self._context

    def _reload(self, stats: dict[str, Stat | None]) -> None:
        self._loaded = stats
        try:
            self._context = listener.load_client(self._settings, time.time())
        except TlsError as error:
            self._log(logging.WARNING, f"{error}; the former content stays in force", stats)
        else:
            self._log(logging.INFO, f"loaded {', '.join(stats)}", stats)

    def _log(self, level: int, line: str, stats: dict[str, Stat | None]) -> None:
        if self._is_first(f"{line} {stats}", time.time(), SAME_S):
            log.log(level, "%s", line)


def _is_settled(stat: Stat | None) -> bool:
    """Whether the last change is over; a time in the future says nothing."""
    age = 0.0 if stat is None else time.time() - stat.changed_ns / 1e9
    return stat is None or not 0 <= age < SETTLED_S
