"""Compares SASL with Kafka's own classes, from the jars of 3.9."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.security.principal import Principal
from odradek.security.sasl.bearer_tokens import TokenRefused, TokenValidator
from odradek.security.sasl.delegation_tokens import DelegationTokens, Token, TokenSettings, decode, encode
from odradek.security.sasl.jaas import JaasError, login_module
from odradek.security.sasl.jwks import Jwks
from odradek.security.sasl.mechanism import Identity, MechanismFailure
from odradek.security.sasl.password import Password
from odradek.security.sasl.plain import LOGIN_MODULE, PlainServer, users
from odradek.security.sasl.scram_client import ScramClient
from odradek.security.sasl.scram_keys import ScramMechanism, derive, format_credential, parse_credential
from odradek.security.sasl.scram_server import ScramServer, ScramStore, TokenCredential
from odradek.security.sasl.signed_tokens import Expected, SignedTokens
from odradek.security.sasl.unsecured_tokens import UnsecuredTokens

from .bearer import CLAIMS, EC, NOW, RSA, jwks, key, signed, unsecured
from .bearer_cases import CASES
from .jaas_texts import RIGHT, WRONG
from .oracle_of_sasl import Oracle, Refused, unhex

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1")]


@pytest.fixture(scope="module")
def kafka() -> Iterator[Oracle]:
    oracle = Oracle()
    yield oracle
    oracle.close()


# -- JAAS

PIECES = [
    "A", " ", "required", "=", '"', "'", ";", "\\", "/", "*", "1", "-", ".", "\n", "é", ",", "x=y", "\x85", "_$",
    "\\101",
]  # fmt: skip
PATTERNS = ["A required {};", 'A required x="{}";', "A required x={}; ", "{} required x=y;", "A required{}x=y;"]


def texts() -> Iterator[str]:
    yield from (text for text, _, _ in RIGHT)
    yield from WRONG
    for pattern, pieces in itertools.product(PATTERNS, itertools.product(PIECES, repeat=2)):
        yield pattern.format("".join(pieces))


def test_jaas_entries_are_parsed_as_kafka_does(kafka: Oracle) -> None:
    assert [text for text in dict.fromkeys(texts()) if ours_of(text) != theirs_of(kafka, text)] == []


def ours_of(text: str) -> Any:
    try:
        module = login_module(text)
    except JaasError:
        return None
    return module.name, module.flag, {key: value.value for key, value in module.options.items()}


def theirs_of(kafka: Oracle, text: str) -> Any:
    try:
        name, _, flag, *options = kafka.ask("jaas", text.encode())
    except Refused:
        return None
    pairs = (option.partition("=") for option in options)
    return unhex(name), flag, {unhex(key): unhex(value) for key, _, value in pairs}


# -- PLAIN

USERS = f'{LOGIN_MODULE} required user_alice="secret" user_bé="ü";'


@pytest.mark.parametrize(
    "token",
    [
        "\0alice\0secret", "alice\0alice\0secret", "\0bé\0ü", "", "alice", "\0alice", "\0alice\0", "\0\0secret",
        "\0alice\0wrong", "\0bob\0secret", "bob\0alice\0secret", "\0alice\0secret\0", "\0alice\0secret\0x",
    ],
)  # fmt: skip
def test_plain_tokens_are_accepted_as_kafka_does(kafka: Oracle, token: str) -> None:
    kafka.ask("plain", USERS.encode())
    try:
        theirs = unhex(kafka.ask("step", token.encode())[1])
    except Refused:
        theirs = None
    try:
        identity = PlainServer(users(login_module(USERS))).evaluate(token.encode(), 0).identity
        ours = identity and identity.name
    except MechanismFailure:
        ours = None
    assert ours == theirs


# -- SCRAM

NAMES = ["alice", "a,=b", "=2C", "x y"]


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize("user", NAMES)
def test_our_client_authenticates_at_kafkas_server(kafka: Oracle, mechanism: ScramMechanism, user: str) -> None:
    made = derive(mechanism, Password("päss"), 5000)
    kafka.ask("scram", mechanism.value, user.encode(), format_credential(made).encode())
    client = ScramClient(mechanism, user, Password("päss"))
    proof = client.respond(bytes.fromhex(kafka.ask("step", client.first())[0]))
    assert proof is not None
    signature, name, lifetime = kafka.ask("step", proof)
    assert client.respond(bytes.fromhex(signature)) is None
    assert unhex(name) == user and lifetime == "null"


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize("user", NAMES)
def test_kafkas_client_authenticates_at_our_server(kafka: Oracle, mechanism: ScramMechanism, user: str) -> None:
    text = unhex(kafka.ask("credential", mechanism.value, "päss".encode(), "4096")[0])
    assert format_credential(parse_credential(text)) == text
    server = ScramServer(ScramStore(mechanism, {user: parse_credential(text)}.get))
    assert converse(kafka, server, mechanism, user).name == user


def test_kafkas_client_authenticates_with_a_delegation_token(kafka: Oracle) -> None:
    mechanism = ScramMechanism.SCRAM_SHA_512
    token = TokenCredential("alice", 99, derive(mechanism, Password("päss")))
    server = ScramServer(ScramStore(mechanism, lambda user: None, lambda token_id, now: token))
    identity = converse(kafka, server, mechanism, "id", "token")
    assert identity.by_token and identity.name == "alice"


def converse(kafka: Oracle, server: ScramServer, mechanism: ScramMechanism, user: str, kind: str = "user") -> Identity:
    """Complete an exchange of Kafka's client with our server; the identity."""
    kafka.ask("client", mechanism.value, user.encode(), "päss".encode(), kind)
    challenge = server.evaluate(bytes.fromhex(kafka.ask("respond", b"")[0]), 0).token
    step = server.evaluate(bytes.fromhex(kafka.ask("respond", challenge)[0]), 0)
    assert kafka.ask("respond", step.token) == ["-", "complete"]
    assert step.identity
    return step.identity


@pytest.mark.parametrize(
    "first",
    [
        "n,,n=alice,r=x", "n,a=alice,n=alice,r=x", "n,a=bob,n=alice,r=x", "n,,n=alice,r=x,a=b", "n,,n=alice,r=x,1=b",
        "n,,m=q,n=alice,r=x", "y,,n=alice,r=x", "n,,n=é,r=x", "n,,n=alice,r=", "n,,n=alice,r=x,", "",
        "n,,n=al=ice,r=x", "n,,n=alice,r=x,a=b=c", "n,,n=alice,r=x y",
    ],
)  # fmt: skip
def test_scram_first_messages_are_accepted_as_kafka_does(kafka: Oracle, first: str) -> None:
    mechanism = ScramMechanism.SCRAM_SHA_256
    made = derive(mechanism, Password("x"))
    kafka.ask("scram", mechanism.value, b"alice", format_credential(made).encode())
    try:
        kafka.ask("step", first.encode())
        theirs = True
    except Refused:
        theirs = False
    try:
        ours = bool(ScramServer(ScramStore(mechanism, {"alice": made}.get)).evaluate(first.encode(), 0))
    except MechanismFailure:
        ours = False
    assert ours == theirs


# -- OAUTHBEARER


def accepted(kafka: Oracle, token: str, name: str, *server: str | bytes) -> tuple[str, int] | None:
    """The principal and the expiry time by a new server of Kafka; None if it refuses the token."""
    kafka.ask(name, *server)
    try:
        answer = kafka.ask("step", f"n,,\x01auth=Bearer {token}\x01\x01".encode())
    except Refused:
        return None
    return (unhex(answer[1]), int(answer[2])) if len(answer) == 3 else None


def accepted_here(validator: TokenValidator, token: str) -> tuple[str, int] | None:
    try:
        found = validator.validate(token, int(time.time() * 1000))
    except TokenRefused:
        return None
    return found.name, found.expires_ms


def written_now(claims: dict[str, Any]) -> dict[str, Any]:
    """The claims with present times, since Kafka's clock cannot be set."""
    times = {name: claims[name] for name in ("exp", "iat", "nbf") if type(claims.get(name)) in (int, float)}
    by = int(time.time()) - NOW
    return claims | {name: value + by for name, value in times.items() if value > 0}


def keys_in(folder: Path) -> tuple[bytes, Jwks]:
    """The path of a file with keys, and the keys."""
    (folder / "keys").write_bytes(jwks(RSA, EC))
    keys = Jwks(0)
    keys.store((folder / "keys").read_bytes(), 0)
    return str(folder / "keys").encode(), keys


def test_claims_are_accepted_as_kafka_does(kafka: Oracle, tmp_path: Path) -> None:
    path, keys = keys_in(tmp_path)
    differ = []
    for audience, issuer, claims, _ in CASES:
        server = "oauth", path, ",".join(audience).encode(), (issuer or "").encode()
        token = signed(written_now(claims))
        theirs = accepted(kafka, token, *server)
        ours = accepted_here(SignedTokens(Expected(audience, issuer), keys), token)
        differ += [(audience, issuer, claims, theirs, ours)] if theirs != ours else []
    assert differ == []


def test_signatures_are_accepted_as_kafka_does(kafka: Oracle, tmp_path: Path) -> None:
    path, keys = keys_in(tmp_path)
    claims = written_now(CLAIMS)
    good = signed(claims)
    tokens = [
        good, signed(claims, EC, "ES256"), signed(claims, RSA, "PS256"), signed(claims, RSA, "RS512"),
        signed(claims, kid=None), signed(claims, EC, "ES256", kid=None), signed(claims, kid="other"),
        signed(claims, key("RSA", 2048, "other"), kid="rsa"), signed(claims, nonce="x", typ="at+jwt"),
        unsecured(claims), good[:-8], good + ".x", good.rpartition(".")[0] + ".",
        signed(claims, key("oct", 256, "rsa"), "HS256"),
    ]  # fmt: skip
    mine = SignedTokens(Expected(), keys)
    theirs = [accepted(kafka, token, "oauth", path, b"", b"") for token in tokens]
    assert theirs == [accepted_here(mine, token) for token in tokens]


JAAS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
    'unsecuredValidatorRequiredScope="a" unsecuredValidatorAllowableClockSkewMs="3000";'
)


def test_unsecured_tokens_are_accepted_as_kafka_does(kafka: Oracle) -> None:
    now = int(time.time())
    base = {"sub": "alice", "exp": now + 60, "iat": now, "scope": "a"}
    cases = [
        base, base | {"scope": ["a", "b"]}, base | {"scope": "b"}, base | {"exp": now - 1, "iat": now - 9},
        base | {"exp": now - 60}, base | {"iat": now + 30}, base | {"exp": now, "iat": now}, base | {"sub": ""},
        {"sub": "alice", "exp": now + 60.5, "scope": "a"}, {"exp": now + 60, "scope": "a"}, {"sub": "a", "scope": "a"},
        base | {"sub": 7}, base | {"exp": "x"},
    ]  # fmt: skip
    mine = UnsecuredTokens.of(login_module(JAAS))
    tokens = [unsecured(case) for case in cases]
    theirs = [accepted(kafka, token, "unsecured", JAAS.encode()) for token in tokens]
    assert theirs == [accepted_here(mine, token) for token in tokens]


# -- delegation tokens


@pytest.mark.parametrize("renewers", [[], ["User:bob"], ["User:a b*~+é/", "User:CN=x,O=y"]])
def test_token_nodes_are_read_by_kafka_and_us(kafka: Oracle, renewers: list[str]) -> None:
    principals = tuple(map(Principal.parse, renewers))
    token = Token("tök", Principal("User", "a:b"), Principal("User", "*"), principals, 1, 1 << 40, 2)
    texts = [each.encode().hex() for each in ("tök", "User:a:b", "User:*")]
    words = [*texts, "1", str(1 << 40), "2", *(each.encode().hex() for each in renewers)]
    theirs = unhex(kafka.ask("token", *words)[0]).encode()
    assert decode(theirs) == token and json.loads(theirs) == json.loads(encode(token))
    assert kafka.ask("read-token", encode(token)) == words


def test_token_hmac_equals_kafkas(kafka: Oracle) -> None:
    held = DelegationTokens(TokenSettings(Password("schlüssel")))
    assert kafka.ask("hmac", b"some-id", "schlüssel".encode()) == [held.hmac("some-id").hex()]
