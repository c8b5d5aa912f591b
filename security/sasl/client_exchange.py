"""The authentication of a connection on the client's side: between brokers, and in tools. No sockets.

    SaslHandshake v1, SaslAuthenticate v2 …, as brokers since 2.5 know them.

`start` gives the first request; each response frame, without its length, goes to `receive`, which gives the next
request, or None when the connection is authenticated.
"""

from __future__ import annotations

import struct
from typing import Any, Protocol

from odradek.protocol.library import message_class
from odradek.protocol.requests import decode
from odradek.protocol.responses import encoded
from odradek.protocol.wire import MALFORMED, next_correlation, pack_string, skip_tags
from odradek.security.sasl.mechanism import MechanismFailure
from odradek.security.sasl.sasl_requests import SASL_AUTHENTICATE, SASL_HANDSHAKE, sized

HANDSHAKE_VERSION = 1
AUTHENTICATE_VERSION = 2


class ClientMechanism(Protocol):
    """A mechanism on the client's side."""

    def first(self) -> bytes:
        """The first token."""

    def respond(self, challenge: bytes) -> bytes | None:
        """The next token, or None when none is due; raises MechanismFailure."""


class AuthenticationError(Exception):
    """The server refuses the client, or cannot be trusted; the text names no secret."""


class ClientExchange:
    """One authentication, or re-authentication, of a connection."""

    def __init__(self, name: str, mechanism: ClientMechanism, client_id: str = "") -> None:
        self._name = name
        self._mechanism = mechanism
        self._client_id = client_id.encode()
        self._correlation = -1
        self._handshaken = False
        self.complete = False
        self.lifetime_ms = 0
        """The client must re-authenticate within this time; 0: never."""

    def start(self) -> bytes:
        """The frame with SaslHandshake."""
        request = message_class("SaslHandshakeRequest")(mechanism=self._name)
        return self._request(SASL_HANDSHAKE, HANDSHAKE_VERSION, encoded(request, HANDSHAKE_VERSION))

    def receive(self, data: bytes) -> bytes | None:
        """The next request frame, None at the end; raises AuthenticationError."""
        try:
            return self._receive(memoryview(data))
        except MechanismFailure as failure:
            raise AuthenticationError(f"{self._name}: {failure.reason}") from None
        except MALFORMED as error:
            raise AuthenticationError(f"malformed response: {error}") from None

    def _receive(self, data: memoryview) -> bytes | None:
        if struct.unpack_from(">i", data)[0] != self._correlation:
            raise AuthenticationError("a response to another request")
        if not self._handshaken:
            return self._on_handshake(decode(message_class("SaslHandshakeResponse"), HANDSHAKE_VERSION, data[4:]))
        body = data[skip_tags(data, 4, len(data)) :]
        return self._on_token(decode(message_class("SaslAuthenticateResponse"), AUTHENTICATE_VERSION, body))

    def _on_handshake(self, response: Any) -> bytes:
        if response.error_code:
            enabled = ", ".join(response.mechanisms)
            raise AuthenticationError(f"error {response.error_code}: {self._name} is not enabled, but {enabled}"[:500])
        self._handshaken = True
        return self._authenticate(self._mechanism.first())

    def _on_token(self, response: Any) -> bytes | None:
        if response.error_code:
            raise AuthenticationError(f"error {response.error_code}: {response.error_message}"[:500])
        token = self._mechanism.respond(response.auth_bytes)
        if token is not None:
            return self._authenticate(token)
        self.complete, self.lifetime_ms = True, response.session_lifetime_ms
        return None

    def _authenticate(self, token: bytes) -> bytes:
        request = message_class("SaslAuthenticateRequest")(auth_bytes=token)
        return self._request(SASL_AUTHENTICATE, AUTHENTICATE_VERSION, encoded(request, AUTHENTICATE_VERSION), b"\x00")

    def _request(self, key: int, version: int, body: bytes, tags: bytes = b"") -> bytes:
        self._correlation = next_correlation(self._correlation)
        head = struct.pack(">hhi", key, version, self._correlation) + pack_string(self._client_id, False)
        return sized(head + tags + body)
