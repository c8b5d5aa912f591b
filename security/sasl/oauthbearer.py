"""OAUTHBEARER (RFC 7628): the client sends a bearer token; a refused one is answered with JSON before the failure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from odradek.security.sasl.bearer_tokens import TokenRefused, TokenValidator
from odradek.security.sasl.mechanism import Identity, MechanismFailure, Step, refused
from odradek.security.sasl.password import Password

NAME = "OAUTHBEARER"
MOST = 1 << 19  # bytes of a token; sasl.server.max.receive.size may be less
_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_KEY = r"[A-Za-z]+"
_VALUE = r"[\x21-\x7e \t\r\n]+"
_FIRST = re.compile(rf"n,(?:a=(?P<authzid>{_NAME}))?,\x01(?P<pairs>(?:{_KEY}={_VALUE}\x01)*)\x01")
_AUTH = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)")
_EXTENSION = re.compile(rf"(?P<key>{_KEY})=(?P<value>{_VALUE})")


class OAuthBearerServer:
    """One authentication: one token, and the client's answer when it is refused."""

    most = MOST

    def __init__(self, validator: TokenValidator) -> None:
        self._validator = validator
        self._refused: MechanismFailure | None = None

    def evaluate(self, token: bytes, now_ms: int) -> Step:
        """Validate the bearer token; extensions are ignored."""
        if self._refused is not None:
            raise self._refused
        authzid, bearer = _first(token)
        try:
            valid = self._validator.validate(bearer, now_ms)
        except TokenRefused as error:
            return self._refuse(error)
        if authzid not in ("", valid.name):
            raise refused("an authorization id other than the token's principal is not allowed")
        return Step(b"", Identity(valid.name, valid.expires_ms))

    def _refuse(self, error: TokenRefused) -> Step:
        told = {"status": error.status} | ({} if error.scope is None else {"scope": error.scope})
        text = json.dumps(told)
        self._refused = MechanismFailure(error.reason, text)
        return Step(text.encode())


def _first(message: bytes) -> tuple[str, str]:
    """The authorization id and the bearer token."""
    match = _FIRST.fullmatch(message.decode("utf-8", "replace"))
    if match is None:
        raise MechanismFailure("the client's first message is malformed")
    pairs = dict(pair.partition("=")[::2] for pair in match["pairs"].split("\x01") if pair)
    auth = _AUTH.fullmatch(pairs.get("auth", ""))
    if auth is None or auth["scheme"].lower() != "bearer":
        raise MechanismFailure("the client's first message has no bearer token")
    return (match["authzid"] or "").replace("=2C", ",").replace("=3D", "="), auth["token"]


@dataclass
class OAuthBearerClient:
    """The client's side; the caller gets the token."""

    token: Password
    extensions: Mapping[str, str] = field(default_factory=dict)

    def first(self) -> bytes:
        """The first message; ValueError for an extension that may not be sent."""
        pairs = [f"{key}={value}" for key, value in self.extensions.items()]
        for pair in pairs:
            match = _EXTENSION.fullmatch(pair)
            if match is None or match["key"] == "auth":
                raise ValueError("an extension must have a name of letters, not auth, and a printable value")
        return "\x01".join(["n,,", f"auth=Bearer {self.token.value}", *pairs, "", ""]).encode()

    def respond(self, challenge: bytes) -> bytes | None:
        """None when the token is accepted; otherwise the message after which the server ends the exchange."""
        return b"\x01" if challenge else None
