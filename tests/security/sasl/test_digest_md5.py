"""DIGEST-MD5 with the example of RFC 2831, and with answers that no server sends. Live: tests/cluster/tree."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.security.sasl.digest_md5 import DigestMd5Client
from odradek.security.sasl.mechanism import MechanismFailure
from odradek.security.sasl.password import Password

CHALLENGE = b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth,auth-int",algorithm=md5-sess,charset=utf-8'
SUCCESS = b"rspauth=ea40f60335c427b5527b84dbabcdfffd"


def client() -> DigestMd5Client:
    return DigestMd5Client("chris", Password("secret"), "imap/elwood.innosoft.com", lambda: "OA6MHXh6VqTrRk")


def test_example_of_the_rfc() -> None:
    mine = client()
    assert mine.first() == b""
    proof = mine.respond(CHALLENGE)
    assert proof is not None
    assert b"response=d388dad90d4bbd760a152321f2143af7" in proof and b"secret" not in proof
    assert mine.respond(SUCCESS) is None


def test_server_that_does_not_know_the_password_is_refused() -> None:
    mine = client()
    mine.respond(CHALLENGE)
    for answer in (SUCCESS[:-1] + b"e", b"", b"rspauth="):
        with pytest.raises(MechanismFailure, match="does not know the password"):
            mine.respond(answer)


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"nonce",
        b'nonce="',
        b'nonce="a",algorithm=md5',
        b"algorithm=md5-sess",
        b'nonce="a",qop="auth-conf",algorithm=md5-sess',
    ],
)
def test_malformed_challenge_is_refused(challenge: bytes) -> None:
    with pytest.raises(MechanismFailure):
        client().respond(challenge)


@given(st.binary(max_size=200), st.booleans())
def test_any_challenge_is_accepted_or_refused(data: bytes, begun: bool) -> None:
    mine = client()
    if begun:
        mine.respond(CHALLENGE)
    try:
        mine.respond(data)
    except MechanismFailure:
        pass


def test_quotes_are_escaped() -> None:
    mine = DigestMd5Client('a"\\', Password("p"), nonce=lambda: "n")
    proof = mine.respond(b'realm="r\\"",nonce="x",algorithm=md5-sess')
    assert proof is not None and b'username="a\\"\\\\"' in proof and b'realm="r\\""' in proof
