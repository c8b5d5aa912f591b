"""A bearer token from sasl.oauthbearer.token.endpoint.url: by OAuth's client credentials (RFC 6749, 4.4) or a file.

The request and the reading of its response; the caller sends it. The options are those of the JAAS entry, as Kafka's
OAuthBearerLoginCallbackHandler has them:

    OAuthBearerLoginModule required clientId="broker" clientSecret="…" scope="kafka" ssl.truststore.location="…";

A client does not verify the signature: it reads only the principal and the expiry.
"""

from __future__ import annotations

import base64
import json
import re
import urllib.parse
from dataclasses import dataclass, field

from odradek.security.sasl.bearer_tokens import TokenRefused, json_part, name_in, scopes_in, seconds
from odradek.security.sasl.jaas import JaasError, LoginModule
from odradek.security.sasl.password import Password

URL = "sasl.oauthbearer.token.endpoint.url"
SCHEMES = ("file", "http", "https")
_JWT = re.compile(r"[\w-]+\.(?P<payload>[\w-]+)\.[\w-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class LoginToken:
    """A token, its principal and its times, in ms since 1970."""

    text: Password
    name: str
    expires_ms: int
    issued_ms: int | None


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """The source of the token, and the credentials to send there."""

    url: str
    client_id: str = ""
    client_secret: Password = field(default_factory=lambda: Password(""))
    scope: str = ""
    scope_claim: str = "scope"
    sub_claim: str = "sub"

    @property
    def scheme(self) -> str:
        """In small letters."""
        return urllib.parse.urlsplit(self.url).scheme

    @property
    def body(self) -> bytes | None:
        """The body to POST; None for a GET."""
        if self.scheme == "file":
            return None
        scope = {"scope": self.scope} if self.scope else {}
        return urllib.parse.urlencode({"grant_type": "client_credentials", **scope}).encode()

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the request; they contain the secret."""
        if self.scheme == "file":
            return {}
        basic = base64.b64encode(f"{self.client_id}:{self.client_secret.value}".encode()).decode()
        return {
            "Authorization": f"Basic {basic}", "Accept": "application/json", "Cache-Control": "no-cache",
            "Content-Type": "application/x-www-form-urlencoded",
        }  # fmt: skip

    def token_in(self, answer: bytes) -> Password:
        """The token in the answer. Raises TokenRefused."""
        if self.scheme == "file":
            return Password(answer.decode("ascii", "replace").strip())
        try:
            found = json.loads(answer)["access_token"]
        except (ValueError, KeyError, TypeError, RecursionError):
            found = None
        if not isinstance(found, str) or not found.strip():
            raise TokenRefused("the answer has no access_token")
        return Password(found.strip())

    def login_token(self, answer: bytes) -> LoginToken:
        """The token in the answer, with its claims. Raises TokenRefused."""
        text = self.token_in(answer)
        claims = json_part(_payload(text))
        scopes = scopes_in(claims, self.scope_claim)
        if len(set(scopes)) < len(scopes) or "" in scopes:
            raise TokenRefused(f"the token's {self.scope_claim} must have texts that differ and are not blank")
        expires, issued = seconds(claims, "exp"), seconds(claims, "iat", required=False)
        assert expires is not None
        name = name_in(claims, self.sub_claim)
        return LoginToken(text, name, int(expires) * 1000, None if issued is None else int(issued) * 1000)


def endpoint(url: str, module: LoginModule, scope_claim: str = "scope", sub_claim: str = "sub") -> TokenEndpoint:
    """By the options of a JAAS entry. Raises JaasError; ValueError for an URL of another kind."""
    scheme = urllib.parse.urlsplit(url).scheme
    if scheme not in SCHEMES:
        raise ValueError("must be the file:, https: or http: URL of a bearer token")
    if scheme == "file":
        return TokenEndpoint(url, scope_claim=scope_claim, sub_claim=sub_claim)
    name, secret = (_option(module, option) for option in ("clientId", "clientSecret"))
    if not name or not secret:
        raise JaasError("must have clientId and clientSecret")
    return TokenEndpoint(url, name, Password(secret), _option(module, "scope"), scope_claim, sub_claim)


def refusal(body: bytes) -> str:
    """The error code in the body of a refusal (RFC 6749, 5.2); empty where there is none."""
    try:
        found = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return found if isinstance(found, str) and len(found) < 100 and found.isascii() and found.isprintable() else ""


def _option(module: LoginModule, name: str) -> str:
    return (module.option(name) or "").strip()


def _payload(token: Password) -> str:
    found = _JWT.fullmatch(token.value)
    if found is None:
        raise TokenRefused("the token is no JWT")
    return found["payload"]
