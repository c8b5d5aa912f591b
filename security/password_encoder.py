"""Passwords among dynamic configs, encrypted as Kafka's EncryptingPasswordEncoder does it.

Text: `name:value` pairs with commas between them; bytes as base64. It names the algorithms, key length, salt and
iterations that it was written with, so that a reader needs nothing but the secret. Kafka derives the key by PBKDF2.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

KEY_FACTORY, CIPHER = "PBKDF2WithHmacSHA512", "AES/CBC/PKCS5Padding"  # Kafka's defaults
KEY_FACTORIES = {f"PBKDF2WithHmac{name}": name for name in ("SHA1", "SHA224", "SHA256", "SHA384", "SHA512")}
CIPHERS = (CIPHER, "AES/GCM/NoPadding")
MOST_ITERATIONS = 1_000_000  # takes a second: a client that can write the node must not stop this process for minutes
KEY_LENGTHS = (128, 192, 256)
_SALT, _CBC_VECTOR, _GCM_VECTOR, _TAG_BITS = 256, 16, 12, 128
_KEPT = 256  # decoded passwords: a broker has a few


class PasswordEncoderError(ValueError):
    """A text that cannot be decoded, or settings that cannot encode; it never has a password."""


class PasswordEncoder(NamedTuple):
    """`password.encoder.*`: the secret decodes; the others matter only where something is encoded."""

    secret: str
    key_factory: str = KEY_FACTORY
    cipher: str = CIPHER
    key_length: int = 128
    iterations: int = 4096

    def check(self) -> None:
        """Raise PasswordEncoderError, with the setting, unless it can encode."""
        if self.key_factory not in KEY_FACTORIES:
            raise _unknown("password.encoder.keyfactory.algorithm", self.key_factory, KEY_FACTORIES)
        if self.cipher not in CIPHERS:
            raise _unknown("password.encoder.cipher.algorithm", self.cipher, CIPHERS)
        if self.key_length not in KEY_LENGTHS:
            raise _unknown("password.encoder.key.length", self.key_length, map(str, KEY_LENGTHS))
        if self.iterations > MOST_ITERATIONS:
            raise PasswordEncoderError(f"password.encoder.iterations must be at most {MOST_ITERATIONS}")

    def encode(self, password: str) -> str:
        """The text of a password: another one each time."""
        salt, vector = os.urandom(_SALT), os.urandom(_CBC_VECTOR if self.cipher == CIPHER else _GCM_VECTOR)
        key = _key(self.secret, self.key_factory, salt, self.iterations, self.key_length)
        fields: dict[str, Any] = {
            "cipherAlgorithm": self.cipher,
            "encryptedPassword": _text(_encrypt(self.cipher, key, vector, password.encode())),
            "initializationVector": _text(vector),
            "iterations": self.iterations,
            "keyFactoryAlgorithm": self.key_factory,
            "keyLength": self.key_length,
            "passwordLength": _length(password),
            "salt": _text(salt),
        }
        if self.cipher != CIPHER:
            fields["authenticationTagLength"] = _TAG_BITS
        return ",".join(f"{name}:{value}" for name, value in fields.items())

    def decode(self, text: str) -> str:
        """The password in a text. PasswordEncoderError: it is malformed, or of another secret."""
        return _decode(self.secret, text)


def _unknown(name: str, value: object, known: Any) -> PasswordEncoderError:
    return PasswordEncoderError(f"{name}: {value} is not supported: use one of {', '.join(known)}")


@lru_cache(_KEPT)
def _decode(secret: str, text: str) -> str:
    try:
        fields = dict(pair.strip().rsplit(":", 1) for pair in text.split(","))
        password = _decrypt(fields, _key_of(fields, secret)).decode()
        if _length(password) != int(fields["passwordLength"]):
            raise ValueError("its length differs")
    except Exception as error:  # whatever stands there: cryptography has exceptions of several kinds
        raise PasswordEncoderError("it is malformed or encoded with another password.encoder.secret") from error
    return password


def _key_of(fields: Mapping[str, str], secret: str) -> bytes:
    iterations, bits = int(fields["iterations"]), int(fields["keyLength"])
    if not 0 < iterations <= MOST_ITERATIONS:
        raise ValueError("its iterations are out of bounds")
    return _key(secret, fields["keyFactoryAlgorithm"], _bytes(fields["salt"]), iterations, bits)


def _key(secret: str, factory: str, salt: bytes, iterations: int, bits: int) -> bytes:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.kdf.pbkdf2 import PBKDF2HMAC

    digest = getattr(hashes, KEY_FACTORIES[factory])()
    return PBKDF2HMAC(digest, bits // 8, salt, iterations).derive(secret.encode())


def _encrypt(cipher: str, key: bytes, vector: bytes, data: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers import Cipher, aead, algorithms, modes
    from cryptography.hazmat.primitives.padding import PKCS7

    if cipher != CIPHER:
        return aead.AESGCM(key).encrypt(vector, data, None)
    padder, encryptor = PKCS7(128).padder(), Cipher(algorithms.AES(key), modes.CBC(vector)).encryptor()
    return encryptor.update(padder.update(data) + padder.finalize()) + encryptor.finalize()


def _decrypt(fields: Mapping[str, str], key: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers import Cipher, aead, algorithms, modes
    from cryptography.hazmat.primitives.padding import PKCS7

    vector, data = _bytes(fields["initializationVector"]), _bytes(fields["encryptedPassword"])
    if fields["cipherAlgorithm"] not in CIPHERS:
        raise ValueError("its cipher is not supported")
    if fields["cipherAlgorithm"] != CIPHER:
        if int(fields["authenticationTagLength"]) != _TAG_BITS:
            raise ValueError("its tag is short")
        return aead.AESGCM(key).decrypt(vector, data, None)
    decryptor, unpadder = Cipher(algorithms.AES(key), modes.CBC(vector)).decryptor(), PKCS7(128).unpadder()
    return unpadder.update(decryptor.update(data) + decryptor.finalize()) + unpadder.finalize()


def _length(password: str) -> int:
    """As Java counts it: in units of UTF-16."""
    return len(password.encode("utf-16-le")) // 2


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
