"""The bearer token that a broker makes for itself, without a signature, from the options of its JAAS entry.

    OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker" unsecuredLoginListClaim_scope="|a|b";

It proves nothing: any client can make one. The options are Kafka's (OAuthBearerUnsecuredLoginCallbackHandler).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

from odradek.security.sasl.jaas import JaasError, LoginModule
from odradek.security.sasl.oauthbearer import OAuthBearerClient
from odradek.security.sasl.password import Password

_PREFIX = "unsecuredLogin"
_LIFETIME, _PRINCIPAL = _PREFIX + "LifetimeSeconds", _PREFIX + "PrincipalClaimName"
_STRING, _NUMBER, _LIST = (f"{_PREFIX}{kind}Claim_" for kind in ("String", "Number", "List"))
_EXTENSION = _PREFIX + "Extension_"
_RESERVED = ("iat", "exp")


def unsecured_client(module: LoginModule, now_ms: int) -> OAuthBearerClient:
    """The client's side with a token made at `now_ms`. Raises JaasError."""
    options = {name: password.value for name, password in module.options.items()}
    lifetime = options.get(_LIFETIME, "3600")
    if not (lifetime.isascii() and lifetime.isdigit()):
        raise JaasError(f"{_LIFETIME} must be a number of seconds")
    claims = {"exp": now_ms / 1000 + int(lifetime), "iat": now_ms / 1000, **dict(_claims(options))}
    principal = options.get(_PRINCIPAL, "").strip() or "sub"
    if not isinstance(claims.get(principal), str) or not claims[principal].strip():
        raise JaasError(f"{_STRING}{principal} must be set to the broker's name")
    extensions = {name[len(_EXTENSION) :]: text for name, text in options.items() if name.startswith(_EXTENSION)}
    client = OAuthBearerClient(Password(f"{_part({'alg': 'none'})}.{_part(claims)}."), extensions)
    try:
        client.first()
    except ValueError as error:
        raise JaasError(f"{_EXTENSION}…: {error}") from None
    return client


def _claims(options: dict[str, str]) -> Iterator[tuple[str, Any]]:
    for option, text in options.items():
        for prefix, parse in ((_STRING, str), (_NUMBER, float), (_LIST, _list)):
            name = option[len(prefix) :]
            if not option.startswith(prefix) or not name:
                continue
            if name in _RESERVED:
                raise JaasError(f"{option} must not be set: the claim is made here")
            try:
                yield name, parse(text)
            except ValueError:
                raise JaasError(f"{option} must be a number") from None


def _list(text: str) -> list[str]:
    """The first character is what separates the others."""
    return text[1:].split(text[0]) if len(text) > 1 else []


def _part(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()
