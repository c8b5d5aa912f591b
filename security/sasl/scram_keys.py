"""The keys of SCRAM (RFC 5802), and credentials in the form in which ZooKeeper keeps them.

A credential, in /config/users/NAME under the mechanism's name, as Kafka writes it:

    salt=BASE64,stored_key=BASE64,server_key=BASE64,iterations=4096

Passwords are taken as UTF-8 without SASLprep, as in Kafka.
"""

from __future__ import annotations

import base64
import binascii
import enum
import os
from dataclasses import dataclass

from odradek.security import hashes
from odradek.security.sasl.password import Password

LEAST_ITERATIONS = 4096
MOST_ITERATIONS = 16384
_SALT_BITS = 130
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class ScramMechanism(enum.Enum):
    """By its name; `type` is its number in KIP-554's requests."""

    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"

    @property
    def type(self) -> int:
        """The number on the wire."""
        return 1 if self is ScramMechanism.SCRAM_SHA_256 else 2

    @property
    def hash(self) -> str:
        """The name of the hash function in hashlib."""
        return self.value.removeprefix("SCRAM-").replace("-", "").lower()

    @property
    def size(self) -> int:
        """Bytes of a key."""
        return hashes.size(self.hash)


BY_TYPE = {mechanism.type: mechanism for mechanism in ScramMechanism}
"""The mechanisms by their numbers in requests (KIP-554)."""


@dataclass(frozen=True, slots=True, repr=False)
class ScramCredential:
    """The data that a server stores for a password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations}, [hidden])"


def format_credential(made: ScramCredential) -> str:
    """The form in ZooKeeper: a secret."""
    keys = {"salt": made.salt, "stored_key": made.stored_key, "server_key": made.server_key}
    return ",".join(f"{name}={encode(key)}" for name, key in keys.items()) + f",iterations={made.iterations}"


def parse_credential(text: str) -> ScramCredential:
    """A credential from ZooKeeper; ValueError for other data, without any part of it."""
    fields = dict(part.partition("=")[::2] for part in text.split(","))
    if fields.keys() != {"salt", "stored_key", "server_key", "iterations"}:
        raise ValueError("a SCRAM credential must have salt, stored_key, server_key and iterations")
    try:
        salt, stored_key, server_key = (decode(fields[name]) for name in ("salt", "stored_key", "server_key"))
        return ScramCredential(salt, stored_key, server_key, int(fields["iterations"]))
    except ValueError:
        raise ValueError("a SCRAM credential must have keys in Base64 and a number of iterations") from None


def credential(mechanism: ScramMechanism, salt: bytes, salted_password: bytes, iterations: int) -> ScramCredential:
    """The data that a server stores for a salted password, which is all that KIP-554 sends."""
    stored_key = digest(mechanism, client_key(mechanism, salted_password))
    return ScramCredential(salt, stored_key, server_key(mechanism, salted_password), iterations)


def derive(
    mechanism: ScramMechanism, password: Password, iterations: int = LEAST_ITERATIONS, salt: bytes | None = None
) -> ScramCredential:
    """A credential of a password, with a new salt."""
    salt = salt or new_salt()
    return credential(mechanism, salt, salted(mechanism, password, salt, iterations), iterations)


def salted(mechanism: ScramMechanism, password: Password, salt: bytes, iterations: int) -> bytes:
    """The salted password: the slow step."""
    return hashes.pbkdf2(mechanism.hash, password.value.encode("utf-8", "surrogatepass"), salt, iterations)


def client_key(mechanism: ScramMechanism, salted_password: bytes) -> bytes:
    """RFC 5802's ClientKey."""
    return mac(mechanism, salted_password, b"Client Key")


def server_key(mechanism: ScramMechanism, salted_password: bytes) -> bytes:
    """RFC 5802's ServerKey."""
    return mac(mechanism, salted_password, b"Server Key")


def mac(mechanism: ScramMechanism, key: bytes, text: bytes) -> bytes:
    """HMAC with the mechanism's hash function."""
    return hashes.mac(mechanism.hash, key, text)


def digest(mechanism: ScramMechanism, data: bytes) -> bytes:
    """The mechanism's hash of `data`."""
    return hashes.digest(mechanism.hash, data)


def xor(one: bytes, other: bytes) -> bytes:
    """The exclusive or of two keys of the same length."""
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def new_salt() -> bytes:
    """A salt as Kafka's tools make them."""
    return salt_of(os.urandom(32))


def salt_of(data: bytes) -> bytes:
    """A salt of the same form: 130 bits to the base of 36."""
    number, digits = int.from_bytes(data[:17], "big") >> (17 * 8 - _SALT_BITS), ""
    while number:
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits.encode()


def encode(data: bytes) -> str:
    """Base64."""
    return base64.b64encode(data).decode()


def decode(text: str) -> bytes:
    """Base64; ValueError if it is not."""
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("not Base64") from None
