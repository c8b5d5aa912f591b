"""Hashes, message authentication codes and comparisons in constant time, by the standard library.

OpenSSL is loaded with the first of them: with two megabytes, it is the largest part of a small broker that needs none.
"""

from __future__ import annotations


def digest(name: str, data: bytes) -> bytes:
    """The hash of `data` by the function of that name in hashlib."""
    import hashlib

    return hashlib.new(name, data).digest()


def size(name: str) -> int:
    """The length of such a hash in bytes."""
    import hashlib

    return hashlib.new(name).digest_size


def mac(name: str, key: bytes, data: bytes) -> bytes:
    """HMAC of `data` (RFC 2104)."""
    import hmac

    return hmac.digest(key, data, name)


def pbkdf2(name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    """PBKDF2 of a password (RFC 8018)."""
    import hashlib

    return hashlib.pbkdf2_hmac(name, password, salt, iterations)


def are_equal(one: bytes, other: bytes) -> bool:
    """Whether both are equal, in a time that does not depend on where they differ."""
    import hmac

    return hmac.compare_digest(one, other)
