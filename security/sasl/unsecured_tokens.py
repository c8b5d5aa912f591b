"""Bearer tokens without a signature, which prove nothing: for tests.

Kafka takes them unless a validator is set. Here sasl.server.callback.handler.class must name Kafka's validator of
unsecured tokens; the options of the JAAS entry are Kafka's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from odradek.security.sasl.bearer_tokens import BearerToken, TokenRefused, json_part, name_in, scopes_in, seconds
from odradek.security.sasl.jaas import JaasError, LoginModule


@dataclass(frozen=True, slots=True)
class UnsecuredTokens:
    """Validates unsecured tokens."""

    principal_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: tuple[str, ...] = ()
    skew_ms: int = 0

    @classmethod
    def of(cls, module: LoginModule) -> UnsecuredTokens:
        """Read the options of a JAAS entry; JaasError names the wrong one."""

        def option(name: str, default: str = "") -> str:
            return (module.option("unsecuredValidator" + name) or "").strip() or default

        skew = option("AllowableClockSkewMs", "0")
        if not skew.isascii() or not skew.isdigit():
            raise JaasError("unsecuredValidatorAllowableClockSkewMs must be a number of milliseconds")
        scope = tuple(option("RequiredScope").split())
        return cls(option("PrincipalClaimName", "sub"), option("ScopeClaimName", "scope"), scope, int(skew))

    def validate(self, token: str, now_ms: int) -> BearerToken:
        """The token's principal and expiry; raises TokenRefused."""
        claims = _claims(token)
        name = name_in(claims, self.principal_claim)
        expires, issued = seconds(claims, "exp"), seconds(claims, "iat", required=False)
        assert expires is not None
        if issued is not None and issued * 1000 > now_ms + self.skew_ms:
            raise TokenRefused("the token is issued in the future")
        if now_ms - self.skew_ms >= expires * 1000:
            raise TokenRefused("the token has expired")
        if issued is not None and expires <= issued:
            raise TokenRefused("the token expires before it is issued")
        self._check_scope(scopes_in(claims, self.scope_claim))
        return BearerToken(name, round(expires * 1000))

    def _check_scope(self, scopes: list[str]) -> None:
        if set(self.required_scope) - set(scopes):
            raise TokenRefused("a required scope is missing", "insufficient_scope", " ".join(self.required_scope))


def _claims(token: str) -> dict[str, Any]:
    parts = token.split(".")
    if len(parts) != 3 or parts[2]:
        raise TokenRefused("an unsecured token must have a header, claims and no signature")
    header, claims = json_part(parts[0]), json_part(parts[1])
    if header.get("alg") != "none":
        raise TokenRefused("an unsecured token must have alg none")
    return claims
