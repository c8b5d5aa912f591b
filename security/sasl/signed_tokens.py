"""Bearer tokens that are signed (JWT, RFC 7519), with the checks of Kafka's sasl.oauthbearer.* settings.

The signature is checked by joserfc, which is imported at the first token. The claims are checked here, by a clock that
is given and in Kafka's way: exp and iat must be there; a token for an audience is refused where none is expected.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

from odradek.security.sasl.bearer_tokens import BearerToken, TokenRefused, name_in, scopes_in, seconds
from odradek.security.sasl.jwks import Jwks

_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
ALGORITHMS = {"RSA": _RSA, "EC": ("ES256", "ES384", "ES512"), "OKP": ("EdDSA", "Ed25519", "Ed448")}
"""Algorithms by kind of key: never `none`, never one whose key is shared."""


@dataclass(frozen=True, slots=True)
class Expected:
    """The sasl.oauthbearer.* settings about claims."""

    audience: tuple[str, ...] = ()
    issuer: str | None = None
    skew_s: int = 30
    scope_claim: str = "scope"
    sub_claim: str = "sub"


class SignedTokens:
    """Validates signed tokens."""

    def __init__(self, expected: Expected, keys: Jwks) -> None:
        self._expected = expected
        self._keys = keys

    def validate(self, token: str, now_ms: int) -> BearerToken:
        """The token's principal and expiry; raises TokenRefused."""
        claims = self._claims(token.strip().encode(), now_ms)
        expected = self._expected
        expires = _check_times(claims, now_ms / 1000, expected.skew_s)
        self._check_issuer(claims)
        _check_audience(claims, expected.audience)
        scopes = scopes_in(claims, expected.scope_claim)
        if len(set(scopes)) < len(scopes) or "" in scopes:
            raise TokenRefused(f"the token's {expected.scope_claim} must have texts that differ and are not blank")
        return BearerToken(name_in(claims, expected.sub_claim), int(expires) * 1000)

    def _check_issuer(self, claims: dict[str, Any]) -> None:
        if self._expected.issuer is not None and claims.get("iss") != self._expected.issuer:
            raise TokenRefused("the token's iss is not sasl.oauthbearer.expected.issuer")

    def _claims(self, token: bytes, now_ms: int) -> dict[str, Any]:
        """The claims of a token with a good signature."""
        for key in self._keys.candidates(_key_id(token), now_ms):
            payload = _verified(token, key)
            if payload is not None:
                return _object(payload)
        raise TokenRefused("no key of sasl.oauthbearer.jwks.endpoint.url verifies the token")


def _check_times(claims: dict[str, Any], now: float, skew: int) -> float:
    """The time when the token expires."""
    expires, issued, begins = seconds(claims, "exp"), seconds(claims, "iat"), seconds(claims, "nbf", required=False)
    assert expires is not None and issued is not None
    if now - skew >= expires:
        raise TokenRefused("the token has expired")
    if begins is not None and now + skew < begins:
        raise TokenRefused("the token is not valid yet")
    if expires < max(issued, begins or 0):
        raise TokenRefused("the token expires before it begins")
    return expires


def _check_audience(claims: dict[str, Any], expected: tuple[str, ...]) -> None:
    value = claims.get("aud")
    audience = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(each, str) for each in audience):
        raise TokenRefused("the token's aud must have texts only")
    if not expected and audience:
        raise TokenRefused("the token has an aud, and sasl.oauthbearer.expected.audience is not set")
    if expected and not set(expected) & set(audience):
        raise TokenRefused("the token's aud is not in sasl.oauthbearer.expected.audience")


def _key_id(token: bytes) -> str | None:
    """The key id in the token's header, which is not verified yet."""
    from joserfc import jws

    try:
        found = jws.extract_compact(token, registry=_registry()).headers().get("kid")
    except Exception:  # of the library, for any bytes
        raise TokenRefused("the token is no JWT") from None
    if found is not None and not isinstance(found, str):
        raise TokenRefused("the token's kid is no text")
    return found


def _verified(token: bytes, key: Any) -> bytes | None:
    """The payload, if `key` has signed it."""
    from joserfc import jws

    algorithms = ALGORITHMS[key.key_type]
    try:
        return jws.deserialize_compact(token, key, algorithms=algorithms, registry=_registry(algorithms)).payload
    except Exception:  # of the library, for any bytes
        return None


@cache
def _registry(algorithms: tuple[str, ...] | None = None) -> Any:
    """The library's limits, with headers of any size and of any names that are not critical."""
    from joserfc.jws import JWSRegistry

    registry = JWSRegistry(algorithms=algorithms, strict_check_header=False)
    registry.max_header_length = 1 << 16
    return registry


def _object(payload: bytes) -> dict[str, Any]:
    try:
        claims = json.loads(payload)
    except (ValueError, RecursionError):
        claims = None
    if not isinstance(claims, dict):
        raise TokenRefused("the token's claims are no JSON object")
    return claims
