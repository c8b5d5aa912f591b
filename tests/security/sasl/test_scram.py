"""SCRAM with the vectors of RFC 7677, between our client and server, and with arbitrary messages."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.security.sasl.mechanism import Identity, MechanismFailure
from odradek.security.sasl.password import Password
from odradek.security.sasl.scram_client import ScramClient
from odradek.security.sasl.scram_keys import (
    ScramCredential,
    ScramMechanism,
    credential,
    derive,
    format_credential,
    new_salt,
    parse_credential,
    salted,
)  # fmt: skip
from odradek.security.sasl.scram_messages import client_final, client_first, server_first, server_signature
from odradek.security.sasl.scram_server import ScramServer, ScramStore, TokenCredential

SHA_256 = ScramMechanism.SCRAM_SHA_256
# RFC 7677, section 3
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
FIRST = f"n,,n=user,r={CLIENT_NONCE}".encode()
CHALLENGE = f"r={CLIENT_NONCE}{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
FINAL = f"c=biws,r={CLIENT_NONCE}{SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
SIGNATURE = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="

USERS = {"user": derive(SHA_256, Password("pencil"), salt=SALT), "a,=b": derive(SHA_256, Password("x"))}


def server(
    mechanism: ScramMechanism = SHA_256, users: Mapping[str, ScramCredential] = USERS, **more: Any
) -> ScramServer:
    return ScramServer(ScramStore(mechanism, users.get, **more), lambda: SERVER_NONCE)


def test_server_follows_the_rfc_vector() -> None:
    made = server()
    assert made.evaluate(FIRST, 0) == (CHALLENGE, None)
    assert made.evaluate(FINAL, 0) == (SIGNATURE, Identity("user"))


def test_final_nonce_with_the_client_nonce_twice_is_accepted() -> None:
    """Older versions of librdkafka send it (2.0.2 of Debian 12), and Kafka accepts it; the proof covers that nonce."""
    made = server()
    challenge = made.evaluate(FIRST, 0).token
    final = f"c=biws,r={CLIENT_NONCE}{CLIENT_NONCE}{SERVER_NONCE}"
    key = hmac.digest(hashlib.pbkdf2_hmac("sha256", b"pencil", SALT, 4096), b"Client Key", "sha256")
    signed = b",".join([FIRST[3:], challenge, final.encode()])
    signature = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
    proof = base64.b64encode(bytes(one ^ other for one, other in zip(key, signature, strict=True))).decode()
    assert made.evaluate(f"{final},p={proof}".encode(), 0).identity == Identity("user")


def test_client_follows_the_rfc_vector() -> None:
    client = ScramClient(SHA_256, "user", Password("pencil"), nonce=lambda: CLIENT_NONCE)
    assert client.first() == FIRST
    assert client.respond(CHALLENGE) == FINAL
    assert client.respond(SIGNATURE) is None


def run(client: ScramClient, made: ScramServer) -> Identity | None:
    """Complete the exchange; the identity."""
    proof = client.respond(made.evaluate(client.first(), 0).token)
    assert proof is not None
    step = made.evaluate(proof, 0)
    assert client.respond(step.token) is None
    return step.identity


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize("user", ["alice", "a,=b", "=2C=3D"])
def test_our_client_authenticates_at_our_server(mechanism: ScramMechanism, user: str) -> None:
    users = {user: derive(mechanism, Password("ü&"), 5000)}
    assert run(ScramClient(mechanism, user, Password("ü&")), server(mechanism, users)) == Identity(user)


def test_delegation_token_authenticates_its_owner() -> None:
    token = TokenCredential("alice", 99, derive(SHA_256, Password("hmac")))
    made = server(token=lambda token_id, now_ms: token if token_id == "id" else None)
    client = ScramClient(SHA_256, "id", Password("hmac"), token=True)
    assert run(client, made) == Identity("alice", 99, True)
    with pytest.raises(MechanismFailure):
        run(ScramClient(SHA_256, "id", Password("hmac")), made)


@pytest.mark.parametrize(("user", "password"), [("user", "pen"), ("nobody", "pencil"), ("nobody", "")])
def test_unknown_user_and_wrong_password_have_the_same_error(user: str, password: str) -> None:
    with pytest.raises(MechanismFailure) as caught:
        run(ScramClient(SHA_256, user, Password(password)), server())
    assert caught.value.told is None and caught.value.reason == "wrong user or password"


def test_salt_of_an_unknown_user_looks_real_and_is_stable() -> None:
    key = b"k" * 32
    salts = {
        server_first(server(decoy_key=lambda: key).evaluate(f"n,,n={name},r=x".encode(), 0).token).salt
        for name in ["no", "no", "nobody"]
    }
    assert len(salts) == 2 and all(re.fullmatch(rb"[0-9a-z]{20,26}", salt) for salt in [*salts, new_salt()])
    other = server_first(server(decoy_key=lambda: b"l" * 32).evaluate(b"n,,n=no,r=x", 0).token).salt
    assert other not in salts


def test_no_proof_authenticates_an_unknown_user() -> None:
    """Not even a proof of zeros."""
    made = server()
    challenge = made.evaluate(b"n,,n=no,r=x", 0).token
    for size in (0, 32):
        again = server()
        again.evaluate(b"n,,n=no,r=x", 0)
        proof = base64.b64encode(bytes(size)).decode()
        with pytest.raises(MechanismFailure):
            again.evaluate(f"c=biws,r={server_first(challenge).nonce},p={proof}".encode(), 0)


@pytest.mark.parametrize(
    "first",
    [b"", b"n,,", b"y,,n=user,r=x", b"p=tls-unique,,n=user,r=x", b"n,,n=,r=x", b"n,,n=user,r=", b"n,,n=user,r=x,",
     b"n,,n=us=er,r=x", b"n,a=,n=user,r=x", b"n,a=other,n=user,r=x", "n,,n=é,r=x".encode(), b"n,,n=user,r=x,1=y",
     b"n,,n=user", b"n,,r=x,n=user", b"n,,n=user,r=x\n\xff"],
)  # fmt: skip
def test_malformed_first_message_is_refused(first: bytes) -> None:
    with pytest.raises(MechanismFailure):
        server().evaluate(first, 0)


def test_unknown_extensions_are_ignored() -> None:
    found = client_first(b"n,a=user,m=x,n=user,r=abc,tokenauth=TRUE,a=b=c")
    assert found.extensions == {"tokenauth": "TRUE", "a": "b=c"} and found.authzid == "user"
    assert found.bare == "m=x,n=user,r=abc,tokenauth=TRUE,a=b=c"
    assert client_final(b"c=biws,r=abc,x=y,p=AAAA").without_proof == "c=biws,r=abc,x=y"


@pytest.mark.parametrize(
    "final",
    [b"", FINAL[:-1], FINAL[:-5], FINAL.replace(b"r=", b"r=x"), FINAL.replace(b"p=", b"p=AAAA"),
     b"c=biws,r=x,p=", FINAL.replace(b"c=biws", b"c=biwsx"), FINAL.replace(b"p=d", b"p=e")],
)  # fmt: skip
def test_invalid_final_message_is_refused(final: bytes) -> None:
    made = server()
    made.evaluate(FIRST, 0)
    with pytest.raises(MechanismFailure):
        made.evaluate(final, 0)


@given(st.binary(max_size=80), st.binary(max_size=80))
def test_random_messages_are_refused(first: bytes, final: bytes) -> None:
    made = server()
    with pytest.raises(MechanismFailure):
        made.evaluate(first, 0)
        made.evaluate(final, 0)
    made = server()
    made.evaluate(FIRST, 0)
    with pytest.raises(MechanismFailure):
        made.evaluate(final, 0)


@given(st.sampled_from([FIRST, FINAL]), st.data())
def test_damaged_message_raises_only_a_mechanism_failure(message: bytes, data: st.DataObject) -> None:
    made = server()
    at = data.draw(st.integers(0, len(message) - 1))
    damaged = message[:at] + data.draw(st.binary(max_size=3)) + message[at + 1 :]
    try:
        if message is FINAL:
            made.evaluate(FIRST, 0)
        made.evaluate(damaged, 0)
    except MechanismFailure:
        pass


def test_credential_with_too_few_iterations_is_refused() -> None:
    with pytest.raises(MechanismFailure, match="4096"):
        server(users={"user": derive(SHA_256, Password("x"), 4095)}).evaluate(FIRST, 0)


# -- the client does not trust the server


@pytest.mark.parametrize(
    "challenge",
    [b"", b"r=other,s=AAAA,i=4096", CHALLENGE.replace(b"4096", b"4095"), CHALLENGE.replace(b"4096", b"99999999"),
     CHALLENGE.replace(b"4096", b"0"), CHALLENGE.replace(b"s=W", b"s=!"), SIGNATURE],
)  # fmt: skip
def test_client_refuses_an_invalid_challenge(challenge: bytes) -> None:
    client = ScramClient(SHA_256, "user", Password("pencil"), nonce=lambda: CLIENT_NONCE)
    client.first()
    with pytest.raises(MechanismFailure):
        client.respond(challenge)


@pytest.mark.parametrize("signature", [b"", b"v=AAAA", b"e=no", CHALLENGE, b"v="])
def test_client_refuses_a_server_that_does_not_know_the_password(signature: bytes) -> None:
    client = ScramClient(SHA_256, "user", Password("pencil"), nonce=lambda: CLIENT_NONCE)
    client.first()
    client.respond(CHALLENGE)
    with pytest.raises(MechanismFailure):
        client.respond(signature)


@given(st.binary(max_size=60))
def test_any_server_message_is_parsed_or_refused(data: bytes) -> None:
    for parse in (server_first, server_signature):
        try:
            parse(data)
        except MechanismFailure:
            pass


# -- credentials


def test_credential_has_kafkas_form() -> None:
    made = ScramCredential(b"salt", b"stored", b"server", 4096)
    text = "salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=4096"
    assert format_credential(made) == text and parse_credential(text) == made
    assert parse_credential(",".join(reversed(text.split(",")))) == made
    assert "c2" not in repr(made) and "salt" not in str(made)


@pytest.mark.parametrize(
    "text", ["", "salt=c2FsdA==", "salt=!,stored_key=,server_key=,iterations=1", "a=b,c=d,e=f,g=h",
             "salt=,stored_key=,server_key=,iterations=x"]
)  # fmt: skip
def test_malformed_credential_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a SCRAM credential must have"):
        parse_credential(text)


@given(st.text(max_size=60))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    for given_text in (text, f"salt={text},stored_key=AAAA,server_key=AAAA,iterations={text}"):
        try:
            parse_credential(given_text)
        except ValueError:
            pass


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_credential_from_a_salted_password_equals_the_derived_one(mechanism: ScramMechanism) -> None:
    salt = new_salt()
    made = credential(mechanism, salt, salted(mechanism, Password("x"), salt, 4096), 4096)
    assert made == derive(mechanism, Password("x"), 4096, salt) and len(made.stored_key) == mechanism.size
