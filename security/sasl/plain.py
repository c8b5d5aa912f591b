"""PLAIN (RFC 4616): the password itself, so for TLS only.

The users are options `user_NAME` of the listener's JAAS entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from odradek.security.sasl.jaas import LoginModule
from odradek.security.sasl.mechanism import Identity, Step, refused
from odradek.security.sasl.password import Password

NAME = "PLAIN"
LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
MOST = 1 << 16  # bytes of a token
_USER = "user_"
_NOBODY = Password("\0")  # no password has a NUL


def users(module: LoginModule) -> dict[str, Password]:
    """The passwords of the users, by name."""
    return {key.removeprefix(_USER): value for key, value in module.options.items() if key.startswith(_USER)}


class PlainServer:
    """One authentication: one token."""

    most = MOST

    def __init__(self, passwords: Mapping[str, Password]) -> None:
        self._passwords = passwords

    def evaluate(self, token: bytes, now_ms: int) -> Step:
        """Check the token; an unknown user takes as long as a wrong password and gets the same answer."""
        requested, user, password = _parts(token)
        known = self._passwords.get(user)
        if not (known or _NOBODY).matches(password) or known is None:
            raise refused("wrong user or password")
        if requested not in ("", user):
            raise refused("an authorization id other than the user is not allowed")
        return Step(b"", Identity(user))


def _parts(token: bytes) -> list[str]:
    """Authorization id, user, password."""
    try:
        parts = token.decode().split("\0")
    except UnicodeDecodeError:
        raise refused("a PLAIN token must be UTF-8") from None
    if len(parts) != 3:
        raise refused("a PLAIN token must have three parts divided by NUL")
    if not (parts[1] and parts[2]):
        raise refused("a PLAIN token must have a user and a password")
    return parts


@dataclass
class PlainClient:
    """The client's side."""

    user: str
    password: Password

    def first(self) -> bytes:
        """The only token."""
        return f"\0{self.user}\0{self.password.value}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        """None: nothing follows; what the server sends with its success is ignored, as in Kafka."""
        return None
