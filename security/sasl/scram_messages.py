"""The messages of SCRAM (RFC 5802), read with the tolerance of Kafka.

Only the header `n` (no channel binding) is known; extensions may follow where Kafka lets them; a user name has ASCII
only. `bare` and `without_proof` are the bytes that the signature covers, as they were received.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from odradek.security.sasl.mechanism import MechanismFailure
from odradek.security.sasl.scram_keys import decode, encode

_VALUE = r"[\x01-\x2b\x2d-\x7f]+"  # all but the comma
_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)?"
_EXTENSIONS = rf"(?:,[A-Za-z]+={_VALUE})*"
_RESERVED = rf"(?:m={_VALUE},)?"
# Compiled with their first use, which few brokers of tests have.
_CLIENT_FIRST = (
    rf"n,(?:a=(?P<authzid>{_NAME}))?,(?P<bare>{_RESERVED}n=(?P<user>{_NAME}),r=(?P<nonce>{_PRINTABLE})"
    rf"(?P<extensions>{_EXTENSIONS}))"
)
_SERVER_FIRST = (
    rf"{_RESERVED}r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,10}}){_EXTENSIONS}"
)
_CLIENT_FINAL = rf"(?P<without_proof>c={_BASE64},r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
_SERVER_FINAL = rf"e=(?P<error>[^=,]+)|v=(?P<signature>{_BASE64}){_EXTENSIONS}"


class ClientFirst(NamedTuple):
    """The first message of the client."""

    user: str
    nonce: str
    authzid: str
    extensions: dict[str, str]
    bare: str


class ServerFirst(NamedTuple):
    """The challenge."""

    nonce: str
    salt: bytes
    iterations: int

    def __str__(self) -> str:
        return f"r={self.nonce},s={encode(self.salt)},i={self.iterations}"


class ClientFinal(NamedTuple):
    """The client's proof."""

    nonce: str
    proof: bytes
    without_proof: str


def client_first(token: bytes) -> ClientFirst:
    """Parse the client's first message."""
    match = _match(_CLIENT_FIRST, token, "client's first")
    extensions = match["extensions"].removeprefix(",")
    pairs = dict(part.partition("=")[::2] for part in extensions.split(",")) if extensions else {}
    return ClientFirst(_unescape(match["user"]), match["nonce"], match["authzid"] or "", pairs, match["bare"])


def client_final(token: bytes) -> ClientFinal:
    """Parse the client's second message."""
    match = _match(_CLIENT_FINAL, token, "client's final")
    return ClientFinal(match["nonce"], decode(match["proof"]), match["without_proof"])


def server_first(token: bytes) -> ServerFirst:
    """Parse the server's challenge."""
    match = _match(_SERVER_FIRST, token, "server's first")
    return ServerFirst(match["nonce"], decode(match["salt"]), int(match["iterations"]))


def server_signature(token: bytes) -> bytes:
    """The signature in the server's last message."""
    match = _match(_SERVER_FINAL, token, "server's final")
    if match["error"]:
        raise MechanismFailure("the server refuses the credentials")
    return decode(match["signature"])


def escaped(user: str) -> str:
    """A user name as it stands in a message."""
    return user.replace("=", "=3D").replace(",", "=2C")


def _unescape(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _match(pattern: str, token: bytes, which: str) -> re.Match[str]:
    match = re.fullmatch(pattern, token.decode("utf-8", "replace"))
    if match is None:
        raise MechanismFailure(f"the {which} SCRAM message is malformed")
    return match
