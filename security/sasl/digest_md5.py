"""DIGEST-MD5 (RFC 2831) on the client's side, which ZooKeeper's DigestLoginModule requires, and no other server here.

No maintained library has it. Only quality `auth`: the connection is protected by TLS, or not at all.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from odradek.security.sasl.mechanism import MechanismFailure
from odradek.security.sasl.password import Password

_DIRECTIVE = re.compile(
    r'\s*(?P<name>[A-Za-z-]+)=(?:"(?P<quoted>(?:\\.|[^"\\])*)"|(?P<bare>[^\s,"]*))\s*(?:,|\Z)', re.DOTALL
)
_COUNT = "00000001"


@dataclass
class DigestMd5Client:
    """One authentication at `uri`, SERVICE/HOST. The server speaks first: `first` is empty."""

    user: str
    password: Password
    uri: str = "zookeeper/zk-sasl-md5"  # the same for every host of ZooKeeper
    nonce: Callable[[], str] = lambda: secrets.token_urlsafe(20)
    _expected: bytes = field(default=b"", repr=False)

    def first(self) -> bytes:
        """The first token."""
        return b""

    def respond(self, challenge: bytes) -> bytes | None:
        """The proof for the challenge; None when the server has proven itself. Raises MechanismFailure."""
        given = _directives(challenge)
        if self._expected:
            if not hmac.compare_digest(given.get("rspauth", "").encode(), self._expected):
                raise MechanismFailure("the server does not know the password")
            return None
        offered = given.get("qop", "auth").split(",")
        if given.get("algorithm") != "md5-sess" or "auth" not in offered or not given.get("nonce"):
            raise MechanismFailure("the server's challenge is not one of DIGEST-MD5 with qop=auth")
        return self._prove(given["nonce"], given.get("realm", ""))

    def _prove(self, nonce: str, realm: str) -> bytes:
        own = self.nonce()
        secret = b":".join(map(_encoded, (self.user, realm, self.password.value)))
        key = _hex(_md5(secret) + f":{nonce}:{own}".encode())
        proof, self._expected = (
            _hex(b":".join((key, f"{nonce}:{_COUNT}:{own}:auth".encode(), _hex(f"{verb}:{self.uri}".encode()))))
            for verb in ("AUTHENTICATE", "")
        )
        return (
            f'charset=utf-8,username="{_quoted(self.user)}",realm="{_quoted(realm)}",nonce="{_quoted(nonce)}",'
            f'nc={_COUNT},cnonce="{own}",digest-uri="{self.uri}",maxbuf=65536,response={proof.decode()},qop=auth'
        ).encode()


def _directives(challenge: bytes) -> dict[str, str]:
    text, found, at = challenge.decode("utf-8", "replace"), dict[str, str](), 0
    while at < len(text):
        match = _DIRECTIVE.match(text, at)
        if match is None:
            raise MechanismFailure("the server's DIGEST-MD5 message is malformed")
        quoted, name = match["quoted"], match["name"].lower()
        found[name] = match["bare"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
        at = match.end()
    return found


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _encoded(text: str) -> bytes:
    """In Latin-1 where that has all characters, as the RFC requires."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


def _hex(data: bytes) -> bytes:
    return _md5(data).hex().encode()
