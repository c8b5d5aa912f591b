"""The interface between OAUTHBEARER and validators of bearer tokens."""

from __future__ import annotations

import base64
import binascii
import json
import math
from typing import Any, NamedTuple, Protocol


class BearerToken(NamedTuple):
    """A valid token."""

    name: str
    expires_ms: int


class TokenRefused(Exception):
    """A token that is not valid; `reason` is for the log and has no part of the token."""

    def __init__(self, reason: str, status: str = "invalid_token", scope: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status
        self.scope = scope


class TokenValidator(Protocol):
    """Checks bearer tokens."""

    def validate(self, token: str, now_ms: int) -> BearerToken:
        """The token's principal and expiry; raises TokenRefused."""


def seconds(claims: dict[str, Any], name: str, required: bool = True) -> float | None:
    """A claim that is a time."""
    value = claims.get(name)
    if value is None:
        if required:
            raise TokenRefused(f"the token has no {name}")
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TokenRefused(f"the token's {name} is no number")
    if not 0 <= value < 1e15:
        raise TokenRefused(f"the token's {name} is out of range")
    return value


def name_in(claims: dict[str, Any], name: str) -> str:
    """A claim that is a text which is not blank."""
    value = claims.get(name)
    if not isinstance(value, str) or not value.strip():
        raise TokenRefused(f"the token's {name} must be a text that is not blank")
    return value.strip()


def scopes_in(claims: dict[str, Any], name: str) -> list[str]:
    """A claim that is a text or a list of texts."""
    value = claims.get(name)
    found = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    if not all(isinstance(each, str) for each in found):
        raise TokenRefused(f"the token's {name} must have texts only")
    return [each.strip() for each in found]


def json_part(part: str) -> dict[str, Any]:
    """The JSON object in the header or the payload of a token."""
    try:
        found = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise TokenRefused("a part of the token is no JSON object")
    return found
