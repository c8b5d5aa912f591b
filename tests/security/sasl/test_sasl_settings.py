"""Kafka's SASL settings for a listener."""

from __future__ import annotations

import pytest

from odradek.security.sasl.bearer_tokens import TokenValidator
from odradek.security.sasl.delegation_tokens import DelegationTokens, TokenSettings
from odradek.security.sasl.oauthbearer import OAuthBearerClient, OAuthBearerServer
from odradek.security.sasl.password import Password
from odradek.security.sasl.plain import LOGIN_MODULE, PlainClient, PlainServer
from odradek.security.sasl.sasl_settings import (
    FETCHED_LOGIN,
    SIGNED,
    UNSECURED,
    Configured,
    Credentials,
    SaslSettingError,
    Settings,
    client_mechanism,
    configure,
)  # fmt: skip
from odradek.security.sasl.scram_client import ScramClient
from odradek.security.sasl.scram_server import ScramServer
from odradek.security.sasl.signed_tokens import SignedTokens
from odradek.security.sasl.unsecured_tokens import UnsecuredTokens

HERE = "listener.name.external."
ENABLED = HERE + "sasl.enabled.mechanisms"
PLAIN_JAAS = HERE + "plain.sasl.jaas.config"
OAUTH_JAAS = HERE + "oauthbearer.sasl.jaas.config"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
JAAS = f'{LOGIN_MODULE} required username="broker" password="secret" user_alice="hunter2";'
URL = "sasl.oauthbearer.jwks.endpoint.url"
HANDLER = "sasl.server.callback.handler.class"
REAUTH = "connections.max.reauth.ms"


def configured(settings: dict[str, str], tokens: DelegationTokens | None = None) -> Configured:
    credentials = Credentials(lambda mechanism, user: None, tokens)
    return configure(settings, "EXTERNAL", credentials, lambda version, error: b"")


def validator(made: Configured) -> TokenValidator:
    server = made.listener.mechanisms["OAUTHBEARER"]()
    assert isinstance(server, OAuthBearerServer)
    return server._validator


def test_listener_may_enable_all_mechanisms() -> None:
    tokens = DelegationTokens(TokenSettings(Password("key")))
    names = ["SCRAM-SHA-512", "PLAIN", "OAUTHBEARER", "SCRAM-SHA-256"]
    made = configured({ENABLED: " , ".join(names), PLAIN_JAAS: JAAS, URL: "https://issuer/keys"}, tokens)
    assert list(made.listener.mechanisms) == names
    kinds = [type(made.listener.mechanisms[name]()) for name in names]
    assert kinds == [ScramServer, PlainServer, OAuthBearerServer, ScramServer]
    assert made.jwks is not None and made.jwks_url == "https://issuer/keys"
    identity = made.listener.mechanisms["PLAIN"]().evaluate(b"\0alice\0hunter2", 0).identity
    assert identity and identity.name == "alice"


def test_defaults_are_kafkas() -> None:
    made = configured({"sasl.enabled.mechanisms": "SCRAM-SHA-256"}).listener
    assert (made.max_receive, made.failure_delay_ms, made.max_reauth_ms) == (524288, 100, {"SCRAM-SHA-256": 0})


def test_the_most_specific_key_wins() -> None:
    settings = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-256", ENABLED: "PLAIN,SCRAM-SHA-256", PLAIN_JAAS: JAAS,
        REAUTH: "1", HERE + "plain." + REAUTH: "2", HERE + REAUTH: "3",
        "connection.failed.authentication.delay.ms": "4", "sasl.server.max.receive.size": "5",
    }  # fmt: skip
    made = configured(settings).listener
    assert made.max_reauth_ms == {"PLAIN": 2, "SCRAM-SHA-256": 3}
    assert (made.failure_delay_ms, made.max_receive) == (4, 5)


@pytest.mark.parametrize(
    ("settings", "key", "right"),
    [
        ({}, "sasl.enabled.mechanisms", "GSSAPI is not supported"),
        ({ENABLED: "PLAIN,GSSAPI"}, "sasl.enabled.mechanisms", "GSSAPI is not supported"),
        ({ENABLED: "plain"}, "sasl.enabled.mechanisms", "plain is not supported"),
        ({ENABLED: "PLAIN"}, PLAIN_JAAS, "must be set"),
        ({ENABLED: "PLAIN", "sasl.jaas.config": JAAS}, PLAIN_JAAS, "must be set"),
        ({ENABLED: "PLAIN", PLAIN_JAAS: JAAS[:-1]}, PLAIN_JAAS, "must end with ;"),
        ({ENABLED: "PLAIN", PLAIN_JAAS: f"{SCRAM_MODULE} required;"}, PLAIN_JAAS, LOGIN_MODULE),
        ({ENABLED: "PLAIN", PLAIN_JAAS: JAAS, REAUTH: "-1"}, REAUTH, "number"),
        ({ENABLED: "OAUTHBEARER"}, URL, "must be set"),
        ({ENABLED: "OAUTHBEARER", URL: "ftp://x"}, URL, "file:"),
        ({ENABLED: "OAUTHBEARER", HANDLER: "com.x.Y", URL: "file:/x"}, HERE + "oauthbearer." + HANDLER, SIGNED[0]),
        (
            {ENABLED: "OAUTHBEARER", HANDLER: UNSECURED,
             OAUTH_JAAS: f"{OAUTH_MODULE} required unsecuredValidatorAllowableClockSkewMs=x;"},
            OAUTH_JAAS, "unsecuredValidatorAllowableClockSkewMs",
        ),
    ],
)  # fmt: skip
def test_invalid_setting_is_one_line(settings: dict[str, str], key: str, right: str) -> None:
    with pytest.raises(SaslSettingError) as caught:
        configured(settings)
    text = str(caught.value)
    assert text.startswith(f"{key}: ") and right in text and "\n" not in text and "hunter2" not in text


def test_unsigned_tokens_need_their_callback_handler() -> None:
    made = configured({ENABLED: "OAUTHBEARER", HERE + "oauthbearer." + HANDLER: UNSECURED})
    assert made.jwks is None and isinstance(validator(made), UnsecuredTokens)
    for handler in SIGNED:
        assert configured({ENABLED: "OAUTHBEARER", HANDLER: handler, URL: "file:/keys"}).jwks is not None


def test_settings_of_signed_tokens_are_read() -> None:
    settings = {
        ENABLED: "OAUTHBEARER", URL: "file:/keys", "sasl.oauthbearer.expected.audience": "a, b",
        "sasl.oauthbearer.expected.issuer": "i", HERE + "sasl.oauthbearer.clock.skew.seconds": "7",
        "sasl.oauthbearer.scope.claim.name": "scp", "sasl.oauthbearer.sub.claim.name": "user",
    }  # fmt: skip
    signed = validator(configured(settings))
    assert isinstance(signed, SignedTokens)
    expected = signed._expected
    assert (expected.audience, expected.issuer, expected.skew_s) == (("a", "b"), "i", 7)
    assert (expected.scope_claim, expected.sub_claim) == ("scp", "user")


def test_inter_broker_client_uses_the_jaas_entry() -> None:
    assert client_mechanism({PLAIN_JAAS: JAAS}, "external", "PLAIN", 0) == PlainClient("broker", Password("secret"))
    jaas = f"{SCRAM_MODULE} required username=id password=hmac tokenauth=true;"
    made = client_mechanism({HERE + "scram-sha-256.sasl.jaas.config": jaas}, "external", "SCRAM-SHA-256", 0)
    assert isinstance(made, ScramClient) and made.token and made.user == "id"


def test_client_uses_a_fetched_bearer_token() -> None:
    made = client_mechanism({}, "external", "OAUTHBEARER", 0, lambda: Password("t"))
    assert isinstance(made, OAuthBearerClient) and b"Bearer t" in made.first()


def test_client_sends_extensions_with_a_fetched_token() -> None:
    settings = {OAUTH_JAAS: f"{OAUTH_MODULE} required clientSecret=hunter2 extension_cluster=c1;"}
    made = client_mechanism(settings, "external", "OAUTHBEARER", 0, lambda: Password("t"))
    assert made.first() == b"n,,\x01auth=Bearer t\x01cluster=c1\x01\x01"
    settings = {OAUTH_JAAS: f"{OAUTH_MODULE} required extension_auth=hunter2;"}
    with pytest.raises(SaslSettingError, match="extension_…: ") as caught:
        client_mechanism(settings, "external", "OAUTHBEARER", 0, lambda: Password("t"))
    assert str(caught.value).startswith(OAUTH_JAAS) and "hunter2" not in str(caught.value)


def test_inter_broker_client_makes_an_unsecured_token() -> None:
    options = "unsecuredLoginStringClaim_sub=broker unsecuredLoginListClaim_scope='|a|b' unsecuredLoginExtension_x=y"
    made = client_mechanism(unsecured(options), "external", "OAUTHBEARER", 1_000_000)
    assert isinstance(made, OAuthBearerClient) and made.extensions == {"x": "y"}
    valid = UnsecuredTokens(required_scope=("a", "b")).validate(made.token.value, 1_000_000)
    assert (valid.name, valid.expires_ms) == ("broker", 1_000_000 + 3600_000)
    options = "unsecuredLoginStringClaim_user=b unsecuredLoginPrincipalClaimName=user unsecuredLoginLifetimeSeconds='9'"
    made = client_mechanism(unsecured(options), "external", "OAUTHBEARER", 1_000_000)
    assert isinstance(made, OAuthBearerClient)
    assert UnsecuredTokens("user").validate(made.token.value, 1_000_000).expires_ms == 1_009_000


def unsecured(options: str, **changes: str) -> dict[str, str]:
    """Settings of brokers that connect to each other with unsecured tokens."""
    here = HERE + "oauthbearer."
    return {OAUTH_JAAS: f"{OAUTH_MODULE} required {options};", here + HANDLER: UNSECURED} | changes


SUB = "unsecuredLoginStringClaim_sub=broker"


@pytest.mark.parametrize(
    ("settings", "key", "right"),
    [
        (unsecured(""), OAUTH_JAAS, "unsecuredLoginStringClaim_sub must be set"),
        (unsecured("unsecuredLoginStringClaim_sub=' '"), OAUTH_JAAS, "unsecuredLoginStringClaim_sub must be set"),
        (unsecured("unsecuredLoginNumberClaim_sub='1'"), OAUTH_JAAS, "unsecuredLoginStringClaim_sub must be set"),
        (unsecured(SUB + " unsecuredLoginLifetimeSeconds=x"), OAUTH_JAAS, "must be a number of seconds"),
        (unsecured(SUB + " unsecuredLoginNumberClaim_n=x"), OAUTH_JAAS, "unsecuredLoginNumberClaim_n must be a number"),
        (unsecured(SUB + " unsecuredLoginNumberClaim_exp='1'"), OAUTH_JAAS, "exp must not be set"),
        (unsecured(SUB + " unsecuredLoginExtension_auth=x"), OAUTH_JAAS, "unsecuredLoginExtension_"),
        ({HERE + "oauthbearer." + HANDLER: UNSECURED}, OAUTH_JAAS, "must be set"),
        ({OAUTH_JAAS: f"{OAUTH_MODULE} required {SUB};"}, HERE + "oauthbearer." + HANDLER, f"must be {UNSECURED}"),
        (
            unsecured(SUB, **{"sasl.login.callback.handler.class": "com.example.Handler"}),
            HERE + "oauthbearer.sasl.login.callback.handler.class",
            f"must be {FETCHED_LOGIN[0]}, or ",
        ),
    ],
)
def test_setting_that_yields_no_broker_token_is_one_line(settings: dict[str, str], key: str, right: str) -> None:
    with pytest.raises(SaslSettingError) as caught:
        client_mechanism(settings, "external", "OAUTHBEARER", 0)
    text = str(caught.value)
    assert text.startswith(f"{key}: ") and right in text and "\n" not in text


@pytest.mark.parametrize("mechanism", ["GSSAPI", "OAUTHBEARER", "PLAIN"])
def test_inter_broker_client_without_credentials_is_refused(mechanism: str) -> None:
    with pytest.raises(SaslSettingError):
        client_mechanism({PLAIN_JAAS: f"{LOGIN_MODULE} required username=x;"}, "external", mechanism, 0)


def test_empty_values_are_not_set() -> None:
    assert Settings({"a": "", HERE + "a": "x"}, "External").find("a") == "x"
