"""The TLS of a listener: its contexts and certificates, checked as a whole and put in force together."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import checks, contexts, stores
from .handshake import rehearse
from .principal_mapping import MappingError, PrincipalMapper
from .settings import TlsSettings
from .stores import KeyStore

if TYPE_CHECKING:
    from cryptography.x509 import Certificate


@dataclass(frozen=True, slots=True)
class TlsListener:
    """One version of a listener's TLS; connections keep the one that they began with."""

    settings: TlsSettings
    server: ssl.SSLContext
    client: ssl.SSLContext
    mapper: PrincipalMapper
    keys: KeyStore
    trusted: tuple[Certificate, ...] | None
    warnings: tuple[str, ...]

    def days_to_expiry(self, now: float) -> float:
        """Days until the first certificate of the chain expires; negative when it has."""
        return checks.days_to_expiry(self.keys.chain, now)

    @property
    def expires_s(self) -> float:
        """The second after which the first certificate of the chain is not valid."""
        return min(map(checks.expiry_s, self.keys.chain))

    def expiry_warning(self, now: float) -> str:
        """A line about a certificate that expires soon, or empty."""
        return checks.expiry_warning(self.settings, self.keys.chain, now)


def load(
    settings: TlsSettings,
    now: float,
    *,
    inter_broker: bool = False,
    ktls: bool = False,
    read: stores.Read = stores.read_file,
    stat_of: checks.Stat = os.stat,
) -> TlsListener:
    """Load and check all that a listener needs. Raises TlsError, one line that names the setting."""
    mapper = _mapper(settings)
    contexts.check(settings)
    checks.check_key_file(settings, stat_of)
    keys = stores.key_store(settings, read)
    if keys is None:
        raise settings.error("ssl.keystore.location", "must be set: a listener with TLS needs a certificate")
    checks.check_key_store(settings, keys, now)
    trusted = stores.trust_store(settings, read)
    if trusted is not None:
        checks.check_trust_store(settings, trusted, now)
    server = contexts.server_context(settings, keys, trusted, ktls)
    client = contexts.client_context(settings, keys, trusted)
    warnings = tuple(checks.warnings(settings, keys, trusted, now))
    listener = TlsListener(settings, server, client, mapper, keys, trusted, warnings)
    if inter_broker:
        check_connects(listener, listener)
    return listener


def load_client(settings: TlsSettings, now: float, *, read: stores.Read = stores.read_file) -> ssl.SSLContext:
    """The context of a client, whose key is optional. Raises TlsError."""
    contexts.check(settings)
    checks.check_key_file(settings)
    keys = stores.key_store(settings, read)
    if keys is not None:
        checks.check_key_store(settings, keys, now)
    trusted = stores.trust_store(settings, read)
    if trusted is not None:
        checks.check_trust_store(settings, trusted, now)
    return contexts.client_context(settings, keys, trusted)


def check_connects(one: TlsListener, other: TlsListener) -> None:
    """Check that brokers can connect to each other with these settings, in both directions. Raises TlsError."""
    for client, server in ((one, other), (other, one)):
        # Without the name: it is the peer's, which only a connection knows.
        nameless = contexts.client_context(client.settings, client.keys, client.trusted, check_hostname=False)
        failure = rehearse(nameless, server.server)
        if failure:
            name = checks.trust_name(other.settings)
            raise other.settings.error(name, f"brokers cannot connect to each other: {failure}; add the issuer to it")


def _mapper(settings: TlsSettings) -> PrincipalMapper:
    try:
        return PrincipalMapper(settings.principal_mapping_rules)
    except MappingError as error:
        raise settings.error("ssl.principal.mapping.rules", str(error)) from None
