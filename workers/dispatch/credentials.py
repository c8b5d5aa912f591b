"""What SASL authenticates clients by, as the newest security metadata of a worker has it.

    live = LiveCredentials(catalog, user_store.token_settings(config))
    configure(settings, listener, live.credentials, …)          # security.sasl.sasl_settings

Each look-up compares the version of the catalog's metadata; nothing is parsed before it is asked for, and nothing that
a client sends is kept.
"""

from __future__ import annotations

import base64
import binascii
from typing import Protocol

from odradek.cluster import user_store
from odradek.cluster.metadata.security_metadata import SecurityMetadata
from odradek.cluster.tree import znodes
from odradek.security.sanitizer import sanitize
from odradek.security.sasl.delegation_tokens import TOKENS_PATH, DelegationTokens, TokenSettings
from odradek.security.sasl.sasl_settings import Credentials
from odradek.security.sasl.scram_keys import ScramCredential, ScramMechanism
from odradek.security.sasl.scram_server import TokenCredential, random_key


class Published(Protocol):
    """Who has the security metadata in force: a Catalog."""

    security: SecurityMetadata


class LiveCredentials:
    """The credentials of users and tokens of one worker."""

    def __init__(self, published: Published, settings: TokenSettings) -> None:
        self._published = published
        self._version = -1
        self._users: dict[str, dict[ScramMechanism, ScramCredential | None]] = {}
        self._tokens = DelegationTokens(settings)
        self._own_key = random_key()  # until the first metadata

    @property
    def credentials(self) -> Credentials:
        """For `sasl_settings.configure`."""
        return Credentials(self.scram, self, self.decoy_key)

    def scram(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        """The credential of a user; None if there is none."""
        metadata = self._follow()
        name = sanitize(user)
        if name not in self._users:
            text = metadata.nodes.get(f"{znodes.USER_CONFIGS}/{name}")
            if text is None:
                return None
            self._users[name] = user_store.credentials_in(name, text)
        return self._users[name].get(mechanism)

    def credential(self, mechanism: ScramMechanism, token_id: str, now_ms: int) -> TokenCredential | None:
        """What a delegation token authenticates as; None when there is none that has not expired."""
        self._follow()
        return self._tokens.credential(mechanism, token_id, now_ms)

    def decoy_key(self) -> bytes:
        """The cluster's key for challenges of users that do not exist (cluster.user_store)."""
        try:
            key = base64.b64decode(self._published.security.nodes.get(znodes.DECOY_KEY, ""), validate=True)
        except binascii.Error:
            key = b""
        return key or self._own_key()

    def _follow(self) -> SecurityMetadata:
        metadata = self._published.security
        if metadata.version != self._version:
            self._version = metadata.version
            self._users.clear()
            self._tokens.follow(metadata.below(TOKENS_PATH))
        return metadata
