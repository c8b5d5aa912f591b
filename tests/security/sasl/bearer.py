"""Keys and bearer tokens for tests."""

from __future__ import annotations

import base64
import json
from functools import cache
from typing import Any

from joserfc import jwk, jws

NOW = 1_700_000_000  # s
NOW_MS = NOW * 1000
CLAIMS: dict[str, Any] = {"sub": "alice", "exp": NOW + 600, "iat": NOW - 10}


@cache
def key(kind: Any, which: Any, key_id: str | None) -> Any:
    return jwk.generate_key(kind, which, {"kid": key_id} if key_id else None, private=True)


RSA = key("RSA", 2048, "rsa")
EC = key("EC", "P-256", "ec")


def jwks(*keys: Any) -> bytes:
    return json.dumps({"keys": [each.as_dict(private=False) for each in keys]}).encode()


def signed(claims: Any, by: Any = RSA, alg: str = "RS256", **header: Any) -> str:
    """A token; `header` is added, None removes."""
    fields = {"alg": alg, "kid": by.kid} | header
    kept = {name: value for name, value in fields.items() if value is not None}
    payload = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
    registry = jws.JWSRegistry(algorithms=[alg], strict_check_header=False)
    return jws.serialize_compact(kept, payload, by, registry=registry)


def unsecured(claims: Any, alg: str = "none") -> str:
    parts = (json.dumps(part).encode() for part in ({"alg": alg}, claims))
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + "."
