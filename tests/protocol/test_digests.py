"""Names of run directories, regions and quotas are the digests that every version and every Python computes."""

from __future__ import annotations

import hashlib
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol import digests


@given(st.binary(), st.integers(1, 64))
def test_digests_are_those_of_hashlib(data: bytes, size: int) -> None:
    assert digests.sha256(data) == hashlib.sha256(data).digest()
    assert digests.blake2b(data, size) == hashlib.blake2b(data, digest_size=size).digest()


def test_a_python_without_its_own_functions_uses_openssl(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("_sha2", "_sha256", "_blake2"):
        monkeypatch.setitem(sys.modules, module, None)
    assert digests.sha256(b"x") == hashlib.sha256(b"x").digest()
    assert digests.blake2b(b"x", 16) == hashlib.blake2b(b"x", digest_size=16).digest()
