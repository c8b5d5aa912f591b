"""The PLAIN mechanism."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.security.sasl.jaas import login_module
from odradek.security.sasl.mechanism import Identity, MechanismFailure, Step
from odradek.security.sasl.password import Password
from odradek.security.sasl.plain import LOGIN_MODULE, PlainClient, PlainServer, users

USERS = users(login_module(f'{LOGIN_MODULE} required username="x" user_alice="secret" user_é="ü" user_="none";'))


def test_users_are_read_from_options() -> None:
    assert set(USERS) == {"alice", "é", ""} and "secret" not in repr(USERS)


@pytest.mark.parametrize("token", [b"\0alice\0secret", b"alice\0alice\0secret", "\0é\0ü".encode()])
def test_correct_password_authenticates(token: bytes) -> None:
    user = token.decode().split("\0")[1]
    assert PlainServer(USERS).evaluate(token, 0) == Step(b"", Identity(user))


@pytest.mark.parametrize(
    "token",
    [b"", b"alice", b"\0alice", b"\0alice\0", b"\0\0none", b"\0alice\0wrong", b"\0bob\0secret", b"bob\0alice\0secret",
     b"\0alice\0secret\0", b"\0alice\0\xff", b"\0x\0x", b"\0alice\0secret\0more\0"],
)  # fmt: skip
def test_invalid_token_is_refused(token: bytes) -> None:
    with pytest.raises(MechanismFailure) as caught:
        PlainServer(USERS).evaluate(token, 0)
    assert caught.value.told and "secret" not in str(caught.value)


def test_unknown_user_and_wrong_password_have_the_same_error() -> None:
    told = []
    for token in (b"\0alice\0wrong", b"\0bob\0wrong"):
        with pytest.raises(MechanismFailure) as caught:
            PlainServer(USERS).evaluate(token, 0)
        told.append((caught.value.told, caught.value.reason))
    assert told[0] == told[1]


def test_client_sends_user_and_password() -> None:
    client = PlainClient("alice", Password("secret"))
    assert PlainServer(USERS).evaluate(client.first(), 0).identity == Identity("alice")
    assert client.respond(b"") is None and "secret" not in repr(client)


@given(st.binary(max_size=60))
def test_random_token_is_refused(token: bytes) -> None:
    with pytest.raises(MechanismFailure):
        PlainServer(USERS).evaluate(token, 0)


def test_a_password_compares_by_value_and_hides_it() -> None:
    assert Password("a") == Password("a") != Password("b") and Password("a") != "a"
    assert repr(Password("a")) == str(Password("a")) == "[hidden]"
    assert Password("\ud800").matches("\ud800") and len({Password("a"), Password("a")}) == 1
