"""OAUTHBEARER: its messages, signed and unsecured tokens, and the keys that sign them."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.security.sasl.bearer_tokens import BearerToken, TokenRefused
from odradek.security.sasl.jaas import JaasError, login_module
from odradek.security.sasl.jwks import MISSING_AGAIN_MS, MOST_MISSING, Jwks, parse
from odradek.security.sasl.mechanism import Identity, MechanismFailure
from odradek.security.sasl.oauthbearer import OAuthBearerClient, OAuthBearerServer
from odradek.security.sasl.password import Password
from odradek.security.sasl.signed_tokens import Expected, SignedTokens
from odradek.security.sasl.unsecured_tokens import UnsecuredTokens

from .bearer import CLAIMS, EC, NOW, NOW_MS, RSA, jwks, key, signed, unsecured
from .bearer_cases import CASES

ED = key("OKP", "Ed25519", "ed")
KEYS = jwks(RSA, EC)


def validator(expected: Expected | None = None, keys: bytes = KEYS) -> SignedTokens:
    made = Jwks(0)
    made.store(keys, NOW_MS)
    return SignedTokens(expected or Expected(), made)


@pytest.mark.parametrize(("audience", "issuer", "claims", "valid"), CASES)
def test_claims_are_validated(
    audience: tuple[str, ...], issuer: str | None, claims: dict[str, Any], valid: bool
) -> None:
    made = validator(Expected(audience, issuer))
    if valid:
        token = made.validate(signed(claims), NOW_MS)
        assert token == BearerToken(claims["sub"].strip(), int(claims["exp"]) * 1000)
    else:
        with pytest.raises(TokenRefused):
            made.validate(signed(claims), NOW_MS)


def test_claim_names_are_settings() -> None:
    made = validator(Expected(sub_claim="user", scope_claim="scp"))
    assert made.validate(signed(CLAIMS | {"user": "bob", "scope": [""], "scp": "x"}), NOW_MS).name == "bob"


@pytest.mark.filterwarnings("ignore:EdDSA is deprecated")
@pytest.mark.parametrize("kid", [True, False])
@pytest.mark.parametrize(
    ("by", "alg"), [(RSA, "RS256"), (RSA, "RS512"), (RSA, "PS384"), (EC, "ES256"), (ED, "EdDSA")]
)  # fmt: skip
def test_signed_token_is_accepted(by: Any, alg: str, kid: bool) -> None:
    token = signed(CLAIMS, by, alg, **({} if kid else {"kid": None}))
    assert validator(keys=jwks(EC, RSA, ED)).validate(token, NOW_MS).name == "alice"


def forged() -> dict[str, str]:
    good = signed(CLAIMS)
    head, body, mark = good.split(".")
    other = key("RSA", 2048, "other")
    return {
        "unsecured": unsecured(CLAIMS),
        "none with a signature": unsecured(CLAIMS) + mark,
        "other key": signed(CLAIMS, other),
        "other key, this id": signed(CLAIMS, other, kid="rsa"),
        "other key, no id": signed(CLAIMS, other, kid=None),
        "shared secret": signed(CLAIMS, key("oct", 256, "rsa"), "HS256"),
        "changed claims": f"{head}.{signed(CLAIMS | {'sub': 'root'}).split('.')[1]}.{mark}",
        "no signature": f"{head}.{body}.",
        "changed signature": f"{head}.{body}.{mark[:-4]}AAAA",
        "cut": good[:-10],
        "two parts": f"{head}.{body}",
        "empty": "",
        "claims no object": signed(b"[]"),
        "claims no JSON": signed(b"{"),
    }


@pytest.mark.parametrize("which", forged())
def test_forged_token_is_refused(which: str) -> None:
    with pytest.raises(TokenRefused):
        validator().validate(forged()[which], NOW_MS)


def test_public_key_is_not_accepted_as_a_shared_secret() -> None:
    """Algorithm confusion: HS256 with the text of the public key."""
    from joserfc import jwk

    secret = jwk.import_key(RSA.as_pem(private=False).hex(), "oct")
    with pytest.raises(TokenRefused):
        validator().validate(signed(CLAIMS, secret, "HS256", kid="rsa"), NOW_MS)


def test_unknown_headers_are_ignored() -> None:
    token = signed(CLAIMS, nonce="x" * 600, x5t="abc", typ="at+jwt")
    assert validator().validate(token, NOW_MS).name == "alice"


def in_parts(parts: list[bytes]) -> str:
    return ".".join(base64.urlsafe_b64encode(part).decode() for part in parts)


@given(st.text(max_size=60) | st.lists(st.binary(max_size=20), min_size=3, max_size=3).map(in_parts))
def test_random_token_is_refused(token: str) -> None:
    for made in (validator(), UnsecuredTokens()):
        with pytest.raises(TokenRefused):
            made.validate(token, NOW_MS)


NAMES = st.sampled_from(["sub", "exp", "iat", "nbf", "aud", "iss", "scope"])
VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)


@given(st.dictionaries(NAMES, VALUES | st.lists(VALUES)))
def test_any_claims_are_accepted_or_refused(claims: dict[str, Any]) -> None:
    made = (validator(Expected(("a",), "b")), signed(claims)), (UnsecuredTokens(), unsecured(claims))
    for each, token in made:
        try:
            each.validate(token, NOW_MS)
        except TokenRefused:
            pass


# -- unsecured


def test_valid_unsecured_token_is_accepted() -> None:
    assert UnsecuredTokens().validate(unsecured(CLAIMS), NOW_MS) == BearerToken("alice", (NOW + 600) * 1000)
    assert UnsecuredTokens().validate(unsecured({"sub": "a", "exp": NOW + 1}), NOW_MS).name == "a"


@pytest.mark.parametrize(
    "token",
    [
        unsecured(CLAIMS | {"exp": NOW}), unsecured(CLAIMS | {"iat": NOW + 1}), unsecured({"sub": "a"}),
        unsecured({"exp": NOW + 1}), unsecured(CLAIMS | {"exp": NOW + 1, "iat": NOW + 1}),
        unsecured(CLAIMS, "RS256"), unsecured(CLAIMS) + "x", unsecured([]), "a.b.", signed(CLAIMS),
    ],
)  # fmt: skip
def test_invalid_unsecured_token_is_refused(token: str) -> None:
    with pytest.raises(TokenRefused):
        UnsecuredTokens().validate(token, NOW_MS)


OPTIONS = (
    "X required unsecuredValidatorPrincipalClaimName=user unsecuredValidatorScopeClaimName=scp "
    'unsecuredValidatorRequiredScope="read write" unsecuredValidatorAllowableClockSkewMs="5000";'
)


def test_options_of_unsecured_tokens_apply() -> None:
    made = UnsecuredTokens.of(login_module(OPTIONS))
    claims = {"user": "bob", "exp": NOW - 4, "scp": ["read", "write", "x"]}
    assert made.validate(unsecured(claims), NOW_MS).name == "bob"
    with pytest.raises(TokenRefused) as caught:
        made.validate(unsecured(claims | {"scp": "read"}), NOW_MS)
    assert (caught.value.status, caught.value.scope) == ("insufficient_scope", "read write")
    with pytest.raises(JaasError, match="AllowableClockSkewMs"):
        UnsecuredTokens.of(login_module('X required unsecuredValidatorAllowableClockSkewMs="-1";'))


# -- keys


def test_keys_that_cannot_verify_are_ignored() -> None:
    secret = {"kty": "oct", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0", "kid": "oct"}
    fields = json.loads(KEYS)["keys"]
    listed = [secret, {"kty": "AKP"}, {"kty": "RSA"}, fields[0], fields[1] | {"use": "enc"}, {"kty": "EC", "crv": 7}]
    assert [each.kid for each in parse(json.dumps({"keys": listed}).encode())] == ["rsa"]


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"keys": 1}', b'{"keys": null}', b"\xff", b"[" * 100000])
def test_malformed_jwks_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="JWKS must be"):
        parse(data)


def test_keys_are_fetched_again_after_an_hour() -> None:
    made = Jwks(3600_000)
    assert made.due(NOW_MS)
    made.refresh(lambda: jwks(RSA), NOW_MS)
    assert not made.due(NOW_MS + 3599_999) and made.due(NOW_MS + 3600_000)


def test_failed_fetch_is_retried_with_a_back_off() -> None:
    made = Jwks(3600_000, 100, 1000)
    made.refresh(lambda: jwks(RSA), NOW_MS)

    def fail() -> bytes:
        raise OSError("unreachable")

    waits = []
    for _ in range(5):
        made.refresh(fail, NOW_MS)
        waits.append(next(ms for ms in (100, 200, 400, 800, 1000) if made.due(NOW_MS + ms)))
    assert waits == [100, 200, 400, 800, 1000] and made.candidates("rsa", NOW_MS)
    made.refresh(lambda: b"no keys", NOW_MS)
    assert made.candidates("rsa", NOW_MS)
    made.refresh(lambda: jwks(EC), NOW_MS)
    assert not made.due(NOW_MS + 1000) and made.candidates("ec", NOW_MS)


def test_an_unknown_key_id_makes_a_fetch_due_once_a_minute() -> None:
    made = Jwks(3600_000)
    made.store(jwks(RSA), NOW_MS)
    assert made.candidates("new", NOW_MS) == [] and made.due(NOW_MS)
    made.store(jwks(RSA), NOW_MS + 1)
    made.candidates("new", NOW_MS + 2)
    made.candidates("x" * 1001, NOW_MS + 2)
    assert not made.due(NOW_MS + 2)
    made.candidates("new", NOW_MS + MISSING_AGAIN_MS)
    assert made.due(NOW_MS + MISSING_AGAIN_MS)


def test_number_of_remembered_unknown_key_ids_is_bounded() -> None:
    made = Jwks(3600_000)
    made.store(jwks(RSA), NOW_MS)
    for number in range(100):
        made.candidates(str(number), NOW_MS)
    assert len(made._missing) == MOST_MISSING


def test_jwks_file_is_read_once() -> None:
    made = Jwks(0)
    made.store(jwks(RSA), NOW_MS)
    assert made.candidates("new", NOW_MS) == [] and not made.due(1 << 60)


# -- messages


def server() -> OAuthBearerServer:
    return OAuthBearerServer(validator())


def first(token: str, authzid: str = "", more: str = "") -> bytes:
    return f"n,{authzid},\x01{more}auth=Bearer {token}\x01\x01".encode()


@pytest.mark.parametrize("authzid", ["", "a=alice"])
@pytest.mark.parametrize("more", ["", "host=broker\x01port=9092\x01"])
def test_message_with_a_valid_token_authenticates(authzid: str, more: str) -> None:
    step = server().evaluate(first(signed(CLAIMS), authzid, more), NOW_MS)
    assert step.identity == Identity("alice", (NOW + 600) * 1000)


def test_invalid_token_is_answered_with_its_status_before_the_failure() -> None:
    made = server()
    step = made.evaluate(first(unsecured(CLAIMS)), NOW_MS)
    assert step.identity is None and json.loads(step.token) == {"status": "invalid_token"}
    with pytest.raises(MechanismFailure) as caught:
        made.evaluate(b"\x01", NOW_MS)
    assert caught.value.told == step.token.decode()
    with pytest.raises(MechanismFailure):
        made.evaluate(first(signed(CLAIMS)), NOW_MS)


@pytest.mark.parametrize(
    "message",
    [
        b"", b"\x01", b"n,,\x01\x01", b"n,,\x01auth=Basic x\x01\x01", b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer x\x01", b"n,,\x01auth=Bearer x\x01\x01x", b"y,,\x01auth=Bearer x\x01\x01",
        b"n,,\x01a1=b\x01auth=Bearer x\x01\x01", first(signed(CLAIMS), "a=root"),
    ],
)  # fmt: skip
def test_malformed_message_is_refused(message: bytes) -> None:
    with pytest.raises(MechanismFailure):
        server().evaluate(message, NOW_MS)


@given(st.binary(max_size=60))
def test_random_message_is_refused(message: bytes) -> None:
    with pytest.raises(MechanismFailure):
        server().evaluate(message, NOW_MS)


def test_client_sends_token_and_extensions() -> None:
    client = OAuthBearerClient(Password(signed(CLAIMS)), {"traceId": "x y"})
    assert server().evaluate(client.first(), NOW_MS).identity == Identity("alice", CLAIMS["exp"] * 1000)
    assert client.respond(b"") is None and client.respond(b'{"status":"invalid_token"}') == b"\x01"
    assert signed(CLAIMS)[:20] not in repr(client)
    for extensions in ({"auth": "x"}, {"a1": "x"}, {"a": ""}, {"a": "\x01"}):
        with pytest.raises(ValueError, match="an extension must"):
            OAuthBearerClient(Password("x"), extensions).first()
