"""Fetches this process's own bearer token for connections to other brokers (sasl.oauthbearer.token.endpoint.url).

Each fetch has a thread of its own, since it waits for the network; its outcome is taken by the next `poll`. A fetch
that fails is one line for the broker, not one for each process or try; no line has the secret or a token. A crash
leaves nothing: the next process fetches a token of its own.
"""

from __future__ import annotations

import logging
import ssl
import time

from odradek.ipc.notices import IsFirst
from odradek.security.sasl import token_endpoint
from odradek.security.sasl.bearer_tokens import TokenRefused
from odradek.security.sasl.login_settings import LoginSettings
from odradek.security.sasl.password import Password
from odradek.security.sasl.token_login import TokenLogin
from odradek.security.tls import listener
from odradek.security.tls.settings import TlsError, listener_settings
from odradek.workers.net import bounded_http
from odradek.workers.net.background_fetch import BackgroundFetch, Outcome

log = logging.getLogger(__name__)

_SAME_S = 3600
# As in Kafka: these answers of a server are the same the next time.
_LASTING = {400, 401, 402, 403, 404, 405, 406, 407, 409, 410, 411, 412, 413, 414, 415, 501, 505}


class TokenFetcher:
    """Keeps one token up to date."""

    def __init__(self, settings: LoginSettings, is_first: IsFirst = lambda *_: True) -> None:
        self.settings = settings
        self._login = TokenLogin(settings.window, settings.backoff_ms, settings.backoff_max_ms)
        self._fetch = BackgroundFetch("bearer-token", lambda: fetch(settings))
        self._is_first = is_first
        self._fault = ""

    def token(self) -> Password | None:
        """The token in force; None when there is none."""
        return self._login.token(_now_ms())

    def poll(self) -> None:
        """Take the outcome of a fetch, begin the next when it is due."""
        outcome, now_ms = self._fetch.outcome(), _now_ms()
        if outcome is not None:
            self._take(outcome, now_ms)
        if not self._fetch.under_way and self._login.due(now_ms):
            self._fetch.start()

    def _take(self, outcome: Outcome, now_ms: int) -> None:
        try:
            if isinstance(outcome, Exception):
                raise outcome
            token = self.settings.endpoint.login_token(outcome)
            self._login.store(token, now_ms)
        except (OSError, ValueError, TokenRefused) as error:
            self._failed(error, now_ms)
        else:
            log.log(logging.INFO if self._fault else logging.DEBUG, "got a bearer token of %s", token.name)
            self._fault = ""

    def _failed(self, error: Exception, now_ms: int) -> None:
        self._login.failed(now_ms, isinstance(error, bounded_http.HttpStatus) and error.status in _LASTING)
        why = _line(self.settings, error)
        if why != self._fault and self._is_first(why, now_ms / 1000, _SAME_S):
            log.warning("connections to other brokers: %s", why)
        self._fault = why


def check(settings: LoginSettings) -> None:
    """Whether a fetch can begin; a file is read. Raises ValueError, in one line that names the key."""
    tls_context(settings)
    if settings.endpoint.scheme != "file":
        return
    try:
        settings.endpoint.login_token(fetch(settings))
    except (OSError, TokenRefused) as error:
        raise ValueError(_line(settings, error)) from None


def fetch(settings: LoginSettings) -> bytes:
    """The answer of the token's server. Raises OSError, and TlsError for the options of the JAAS entry."""
    endpoint, context = settings.endpoint, tls_context(settings)
    connect_s, read_s = (
        bounded_http.SILENCE_S if ms is None else ms / 1000 for ms in (settings.connect_ms, settings.read_ms)
    )
    return bounded_http.fetch(
        endpoint.url, context=context, data=endpoint.body, headers=endpoint.headers, connect_s=connect_s, read_s=read_s
    )


def tls_context(settings: LoginSettings) -> ssl.SSLContext | None:
    """By the options ssl.… of the JAAS entry alone, as in Kafka: the system's CAs without any. Raises TlsError."""
    if settings.endpoint.scheme != "https":
        return None
    try:
        return listener.load_client(listener_settings(settings.tls), time.time())
    except TlsError as error:
        raise TlsError(f"{settings.jaas_key}: {error}") from None


def _line(settings: LoginSettings, error: Exception) -> str:
    """In one printable line: parts of it may be the server's."""
    code = token_endpoint.refusal(error.body) if isinstance(error, bounded_http.HttpStatus) else ""
    text = str(error) + (f" ({code})" if code else "")
    text = text if isinstance(error, TlsError) else f"{token_endpoint.URL}: {text}"
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
