"""The request of a client for a bearer token, and the fields that it reads from the answer."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import parse_qs

import pytest

from odradek.security.sasl.bearer_tokens import TokenRefused
from odradek.security.sasl.jaas import JaasError, login_module
from odradek.security.sasl.token_endpoint import TokenEndpoint, endpoint, refusal

from .bearer import CLAIMS, NOW_MS, signed

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
URL = "https://issuer/token"


def made(options: str = 'clientId=" me " clientSecret="a:b%&=" scope=" one two "', url: str = URL) -> TokenEndpoint:
    return endpoint(url, login_module(f"{MODULE} {options};"))


def answer(token: Any) -> bytes:
    return json.dumps({"access_token": token, "token_type": "Bearer", "expires_in": 9}).encode()


def test_request_is_that_of_kafka() -> None:
    found = made()
    assert found.headers["Authorization"] == "Basic " + base64.b64encode(b"me:a:b%&=").decode()
    assert parse_qs((found.body or b"").decode()) == {"grant_type": ["client_credentials"], "scope": ["one two"]}
    assert made("clientId=c clientSecret=s").body == b"grant_type=client_credentials"
    assert "a:b%" not in repr(found)


def test_token_in_a_file_needs_no_request() -> None:
    found, token = made("", "file:/token"), signed(CLAIMS)
    assert found.body is None and found.headers == {}
    assert found.login_token(f" {token}\n".encode()).text.value == token


@pytest.mark.parametrize("options", ["", "clientId=c", "clientSecret=s", "clientId=' ' clientSecret=s"])
def test_client_without_id_or_secret_is_refused(options: str) -> None:
    with pytest.raises(JaasError, match="must have clientId and clientSecret"):
        made(options)


@pytest.mark.parametrize("url", ["", "issuer/token", "ftp://issuer/token"])
def test_unsupported_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="must be the file:, https: or http: URL"):
        made(url=url)


def test_claims_of_the_token_are_read() -> None:
    token = signed(CLAIMS)
    found = made().login_token(answer(f" {token} "))
    assert (found.text.value, found.name) == (token, "alice")
    assert (found.expires_ms, found.issued_ms) == (NOW_MS + 600_000, NOW_MS - 10_000)
    named = TokenEndpoint(URL, scope_claim="scp", sub_claim="user")
    claims = {"user": " bob ", "exp": 7, "scp": ["a", "b"], "scope": ["", ""]}
    other = named.login_token(answer(signed(claims)))
    assert (other.name, other.expires_ms, other.issued_ms) == ("bob", 7000, None)


@pytest.mark.parametrize(
    "claims",
    [
        {"sub": " "}, {"sub": None}, {"sub": 1}, {"exp": None}, {"exp": "1"}, {"exp": -1}, {"iat": "x"},
        {"scope": ["a", "a"]}, {"scope": [" "]}, {"scope": [1]},
    ],
)  # fmt: skip
def test_claims_that_kafka_refuses_are_refused(claims: dict[str, Any]) -> None:
    with pytest.raises(TokenRefused):
        made().login_token(answer(signed(CLAIMS | claims)))


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"\xff", b"[" * 100_000, answer(None), answer(" "), answer([1])])
def test_answer_without_a_token_is_refused(body: bytes) -> None:
    with pytest.raises(TokenRefused, match="no access_token"):
        made().login_token(body)


@pytest.mark.parametrize("token", ["secret", "a.b", "a.b.c.d", "a..c", "a.b\x01auth=x.c", "é.b.c", "a.b.", "a.!.c"])
def test_malformed_token_is_refused_and_not_shown(token: str) -> None:
    """A token is sent between other fields, so it must not contain a delimiter."""
    with pytest.raises(TokenRefused) as caught:
        made().login_token(answer(token))
    assert token not in caught.value.reason


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"error": "invalid_client", "error_description": "secret"}', "invalid_client"),
        (b'{"error": "a\\nb"}', ""), (b'{"error": 1}', ""), (b"{}", ""), (b"", ""), (b"<html>", ""),
    ],
)  # fmt: skip
def test_refusal_yields_only_a_plain_error_code(body: bytes, code: str) -> None:
    assert refusal(body) == code
