"""How connections to other brokers are secured: by the protocol and the settings of the inter-broker listener.

PLAINTEXT costs nothing: `link_security` is None, and what TLS and SASL need is not imported. The certificate of another
broker must have the host name which that broker advertises.

State: the settings in force, and those wanted, which differ while the wanted ones cannot be used. Owner: the process
that connects; it calls `follow` with new metadata and `poll` a few times a second. Settings come into force as a whole,
for connections and authentications that begin then. What cannot be used is one line in the log; it is tried again once
its files change. A crash leaves nothing: a start takes what is wanted then.

A bearer token from elsewhere (sasl.oauthbearer.token.endpoint.url) is fetched in a thread; no connection is opened
while there is none (`is_ready`).
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from odradek.broker import listeners
from odradek.cluster.configs import configdef, dynamic_passwords
from odradek.ipc.notices import SAME_S, IsFirst, Notices

if TYPE_CHECKING:
    from odradek.broker.interbroker.authentication import Authentication
    from odradek.broker.interbroker.link_tls import LinkTls
    from odradek.broker.interbroker.secure_socket import SecureSocket
    from odradek.broker.interbroker.token_fetcher import TokenFetcher
    from odradek.cluster.metadata.snapshot import Snapshot
    from odradek.security.password_encoder import PasswordEncoder
    from odradek.security.sasl.client_exchange import ClientExchange, ClientMechanism
    from odradek.security.sasl.login_settings import LoginSettings
    from odradek.security.sasl.password import Password
    from odradek.security.tls.reload import Stats
    from odradek.security.tls.settings import TlsSettings

log = logging.getLogger(__name__)

POLL_S = 0.4  # between two looks at the files; the second look that sees a change loads it
_MECHANISM = "sasl.mechanism.inter.broker.protocol"


class LinkSecurity:
    """The protocol of one listener, as a client. `settings`: the whole configuration as text."""

    def __init__(
        self, listener: str, protocol: str, settings: Mapping[str, str], client_id: str = "", broker: int = -1,
        encoder: PasswordEncoder | None = None, is_first: IsFirst = lambda *_: True,
    ) -> None:  # fmt: skip
        """`broker`: this broker's id; `encoder`: of its dynamic passwords (cluster.configs.dynamic_passwords).
        `is_first`: lines that all processes of the broker have are logged by the first of them (ipc.notices).

        Raises TlsError for settings that are wrong whatever the files have.
        """
        self._listener, self._client_id, self._broker, self._encoder = listener, client_id, broker, encoder
        self._originals = self._settings = self._wanted = settings
        self._refused: Stats = {}  # the files of the wanted settings when they were refused,
        self._seen: Stats = {}  # and at the last look
        self._next_poll = 0.0
        self._is_first = is_first
        self._tokens: TokenFetcher | None = None
        self._tokens_of: Mapping[str, str] | None = None  # the settings that say whether there is one
        self._tls = _link_tls(settings, listener, is_first) if protocol.endswith("SSL") else None
        self._has_sasl = protocol.startswith("SASL")
        self.tls_step = f"TLS handshake of listener {listener} (listener.security.protocol.map)"

    @property
    def sasl_step(self) -> str:
        """As `tls_step`: what an authentication that fails is called in the log."""
        return f"authentication by {_MECHANISM}={_mechanism(self._settings)}"

    def wrap(self, sock: socket.socket, host: str) -> SecureSocket | None:
        """`sock` with TLS; None when the protocol has none. Raises OSError, with the socket closed."""
        if self._tls is None:
            return None
        from odradek.broker.interbroker.secure_socket import SecureSocket

        try:
            context = self._tls.context()
        except ValueError as error:
            sock.close()
            raise ConnectionError(str(error)) from None
        return SecureSocket(sock, context, host)

    def authentication(self) -> Authentication | None:
        """The authentication of a new connection; None when the protocol has none.

        As brokers want it, the connection keeps its mechanism when it authenticates again.
        """
        if not self._has_sasl:
            return None
        from odradek.broker.interbroker.authentication import Authentication

        return Authentication(partial(self._exchange, _mechanism(self._settings)))

    def is_ready(self) -> bool:
        """Whether a new connection can authenticate: False while it has no bearer token yet."""
        tokens = self._token_fetcher()
        if tokens is None:
            return True
        tokens.poll()
        return tokens.token() is not None

    def check(self) -> None:
        """Read all files and settings that a connection needs. Raises ValueError, in one line that names the key."""
        if self._tls is not None:
            self._tls.context()
        if self._has_sasl:
            self._check_sasl(self._settings)

    def follow(self, snapshot: Snapshot) -> None:
        """Dynamic configs may have changed."""
        own, default = map(_securing, snapshot.dynamic_layers(self._broker))
        wanted = dynamic_passwords.settings(self._originals, own, default, self._encoder)
        if wanted != self._wanted:
            self._wanted = wanted
            self._take()

    def poll(self) -> None:
        """Look at the files and at the bearer token, at most every POLL_S."""
        if time.monotonic() < self._next_poll:
            return
        self._next_poll = time.monotonic() + POLL_S
        self.is_ready()
        if self._tls is not None:
            self._tls.poll()
        if self._wanted is not self._settings:
            self._try_again()

    def check_change(self, settings: Mapping[str, str]) -> None:
        """Whether `follow` would take them. Raises ValueError, in one line that names the key."""
        if self._has_sasl:
            self._check_sasl(settings)
        if self._tls is not None:
            self._tls.check(_tls_settings(settings, self._listener))

    def _take(self) -> None:
        """Put the wanted settings in force, or log why not."""
        self._refused = self._seen = self._stats()
        try:
            if self._has_sasl:
                self._check_sasl(self._wanted)
            if self._tls is not None:
                self._tls.change(_tls_settings(self._wanted, self._listener))
        except ValueError as error:
            line = f"connections to other brokers: {error}; the former settings stay in force"
            if self._is_first(f"{line} {self._refused}", time.time(), SAME_S):
                log.error(line)
        else:
            self._settings = self._wanted
            log.info("connections to other brokers: new ones use the new settings")

    def _try_again(self) -> None:
        """Once other files are there, and no longer being written."""
        stats, before = self._stats(), self._seen
        self._seen = stats
        if stats == before != self._refused:
            self._take()

    def _stats(self) -> Stats:
        """What the files of the wanted settings look like."""
        if self._tls is None:
            return {}
        from odradek.security.tls.reload import stats_of

        try:
            return stats_of(_tls_settings(self._wanted, self._listener))
        except ValueError:  # the settings are wrong, whatever the files are
            return {}

    def _exchange(self, mechanism: str) -> ClientExchange:
        from odradek.security.sasl.client_exchange import ClientExchange

        fetched = self._token if self._token_fetcher() is not None else None
        return ClientExchange(mechanism, self._client(self._settings, mechanism, fetched), self._client_id)

    def _client(
        self, settings: Mapping[str, str], mechanism: str, fetched: Callable[[], Password] | None
    ) -> ClientMechanism:  # fmt: skip
        from odradek.security.sasl.sasl_settings import client_mechanism

        return client_mechanism(settings, self._listener, mechanism, time.time_ns() // 1_000_000, fetched)

    def _check_sasl(self, settings: Mapping[str, str]) -> None:
        """Raises ValueError. It does not ask the server of tokens, which may be down for a while."""
        from odradek.security.sasl.password import Password
        from odradek.security.sasl.sasl_settings import check_enabled

        mechanism = _mechanism(settings)
        check_enabled(settings, self._listener, mechanism)
        login = self._login(settings)
        if login is not None:
            from odradek.broker.interbroker import token_fetcher

            token_fetcher.check(login)
        self._client(settings, mechanism, None if login is None else lambda: Password(""))

    # -- the bearer token

    def _login(self, settings: Mapping[str, str]) -> LoginSettings | None:
        """How a token is fetched; None when none is. Raises ValueError."""
        from odradek.security.sasl.login_settings import login_settings

        return login_settings(settings, self._listener, _mechanism(settings))

    def _token(self) -> Password:
        token = self._tokens.token() if self._tokens is not None else None
        if token is None:
            raise ValueError("sasl.oauthbearer.token.endpoint.url: there is no bearer token that has not expired")
        return token

    def _token_fetcher(self) -> TokenFetcher | None:
        """By the settings in force; None when no token is fetched."""
        if self._has_sasl and self._tokens_of is not self._settings:
            self._tokens_of, self._tokens = self._settings, self._changed_fetcher()
        return self._tokens

    def _changed_fetcher(self) -> TokenFetcher | None:
        """The former one goes on where the settings get the same token."""
        try:
            login = self._login(self._settings)
        except ValueError:  # each authentication says it
            return None
        if login is None:
            return None
        if self._tokens is not None and self._tokens.settings == login:
            return self._tokens
        from odradek.broker.interbroker.token_fetcher import TokenFetcher

        return TokenFetcher(login, self._is_first)


def link_security(config: Any, settings: Mapping[str, str] | None = None) -> LinkSecurity | None:
    """The security of connections between brokers by a broker's configuration; None for PLAINTEXT. Raises ValueError.

    `settings`: those to begin with in place of the file's.
    A listener that is not in listener.security.protocol.map has the protocol of its name. While the broker runs that
    of this listener does not change (broker.listeners.check_change).
    """
    listener, name = listeners.between_brokers(config), "listener.security.protocol.map"
    dynamic: Mapping[str, str] = getattr(config, "dynamic", {})
    protocols = listeners.parse_protocol_map(dynamic.get(name) or config.get(name) or "")
    protocol = protocols.get(listener, listener)
    if protocol == "PLAINTEXT":
        return None
    if protocol not in listeners.PROTOCOLS:
        raise listeners.ListenerError(f"listener.security.protocol.map has no entry for {listener}")
    broker, encoder = config["broker.id"], dynamic_passwords.encoder_of(config)
    is_first = Notices(config.run_dir).is_first
    return LinkSecurity(listener, protocol, settings or config.originals, f"broker-{broker}", broker, encoder, is_first)


def _mechanism(settings: Mapping[str, str]) -> str:
    return settings.get(_MECHANISM) or "GSSAPI"


def _securing(configs: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in configs.items() if configdef.secures(name)}


def _link_tls(settings: Mapping[str, str], listener: str, is_first: IsFirst) -> LinkTls:
    from odradek.broker.interbroker.link_tls import LinkTls

    return LinkTls(_tls_settings(settings, listener), is_first)


def _tls_settings(settings: Mapping[str, str], listener: str) -> TlsSettings:
    from odradek.security.tls.settings import listener_settings

    return listener_settings(settings, listener)
