"""Java's and OpenSSL's names of cipher suites."""

from __future__ import annotations

import subprocess

import pytest

from odradek.security.tls import ciphers

NOT_CERTIFICATES = ("PSK", "SRP", "ANON", "NULL")


@pytest.mark.live
@pytest.mark.needs("openssl")
def test_names_equal_openssls() -> None:
    done = subprocess.run(
        ["openssl", "ciphers", "-V", "-stdname", "ALL:COMPLEMENTOFALL"], capture_output=True, check=True
    )
    pairs = [line.split()[2:5:2] for line in done.stdout.decode().splitlines()]
    usual = [(java, name) for java, name in pairs if not any(word in java.upper() for word in NOT_CERTIFICATES)]
    kept = [(java, name) for java, name in usual if "ARIA" not in java]
    assert len(kept) > 40
    assert [(java, ciphers.openssl_name(java), name) for java, name in kept if ciphers.openssl_name(java) != name] == []


@pytest.mark.parametrize(
    "name", ["", "TLS_DH_anon_WITH_AES_128_CBC_SHA", "TLS_RSA_WITH_NULL_SHA", "ECDHE-RSA-AES128-SHA"]
)
def test_insecure_or_unknown_suite_is_refused(name: str) -> None:
    assert not ciphers.is_known(name)


@pytest.mark.parametrize("prefix", ["TLS", "SSL"])
def test_tls_and_ssl_prefixes_name_the_same_suite(prefix: str) -> None:
    assert ciphers.openssl_name(f"{prefix}_RSA_WITH_AES_128_CBC_SHA") == "AES128-SHA"
