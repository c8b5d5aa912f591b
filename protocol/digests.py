"""Digests of names, without OpenSSL: by the hash functions that Python has built in, as its own `random` uses them.

`import hashlib` loads OpenSSL, with two megabytes the largest part of a small broker that needs none.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

_SHA256 = ("_sha2", "_sha256", "hashlib")  # since Python 3.12; before; one that was built without its own
_BLAKE2B = ("_blake2", "hashlib")


def sha256(data: bytes) -> bytes:
    """As hashlib.sha256, 32 bytes (FIPS 180-4)."""
    return bytes(_first(_SHA256, "sha256")(data).digest())


def blake2b(data: bytes, size: int, key: bytes = b"") -> bytes:
    """As hashlib.blake2b, `size` bytes (RFC 7693)."""
    return bytes(_first(_BLAKE2B, "blake2b")(data, digest_size=size, key=key).digest())


@functools.cache
def _first(modules: tuple[str, ...], name: str) -> Any:
    """`name` of the first of these modules that has it."""
    for module in modules:
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
    raise ImportError(f"this Python has no {name}")
