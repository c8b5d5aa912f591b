"""Kafka's settings for a client that fetches its bearer token."""

from __future__ import annotations

import pytest

from odradek.security.sasl.login_settings import LoginSettings, login_settings
from odradek.security.sasl.sasl_settings import FETCHED_LOGIN, UNSECURED_LOGIN, SaslSettingError

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
HERE = "listener.name.internal.oauthbearer."
JAAS = HERE + "sasl.jaas.config"
HANDLER, URL = "sasl.login.callback.handler.class", "sasl.oauthbearer.token.endpoint.url"
OPTIONS = 'clientId=me clientSecret=hunter2 scope=s ssl.truststore.location="/ca.pem" extension_a=b'
GIVEN = {JAAS: f"{MODULE} {OPTIONS};", URL: "https://issuer/token", HERE + HANDLER: FETCHED_LOGIN[0]}


def found(**changes: str | None) -> LoginSettings | None:
    settings = GIVEN | {name.replace("_", "."): value for name, value in changes.items()}
    return login_settings({k: v for k, v in settings.items() if v is not None}, "INTERNAL", "OAUTHBEARER")


def test_defaults_are_kafkas() -> None:
    made = found()
    assert made is not None
    assert (made.endpoint.url, made.endpoint.client_id, made.endpoint.scope) == ("https://issuer/token", "me", "s")
    assert (made.endpoint.scope_claim, made.endpoint.sub_claim) == ("scope", "sub")
    assert made.tls == {"ssl.truststore.location": "/ca.pem"}
    window = made.window
    assert (window.factor, window.jitter, window.min_period_ms, window.buffer_ms) == (0.8, 0.05, 60_000, 300_000)
    assert (made.backoff_ms, made.backoff_max_ms, made.connect_ms, made.read_ms) == (100, 10_000, None, None)
    assert "hunter2" not in repr(made)


def test_each_setting_is_read() -> None:
    prefix = "listener.name.internal."
    more = {
        "sasl.oauthbearer.scope.claim.name": "scp", prefix + "sasl.oauthbearer.sub.claim.name": "user",
        "sasl.login.refresh.window.factor": "0.5", "sasl.login.refresh.window.jitter": "0.25",
        "sasl.login.refresh.min.period.seconds": "1", prefix + "sasl.login.refresh.buffer.seconds": "2",
        "sasl.login.retry.backoff.ms": "3", HERE + "sasl.login.retry.backoff.max.ms": "4",
        "sasl.login.connect.timeout.ms": "5", "sasl.login.read.timeout.ms": "6",
    }  # fmt: skip
    made = login_settings(GIVEN | more, "INTERNAL", "OAUTHBEARER")
    assert made is not None
    assert (made.endpoint.scope_claim, made.endpoint.sub_claim) == ("scp", "user")
    window = made.window
    assert (window.factor, window.jitter, window.min_period_ms, window.buffer_ms) == (0.5, 0.25, 1000, 2000)
    assert (made.backoff_ms, made.backoff_max_ms, made.connect_ms, made.read_ms) == (3, 4, 5, 6)
    assert made != found() and found() == found()


def test_token_is_fetched_only_for_a_fetching_handler_or_url() -> None:
    assert all(found(**{HERE + HANDLER: handler}) for handler in FETCHED_LOGIN)
    assert found(**{HERE + HANDLER: None}), "the URL is enough"
    assert found(**{HERE + HANDLER: UNSECURED_LOGIN}) is None
    assert found(**{HERE + HANDLER: None, URL: None}) is None
    assert login_settings(GIVEN, "INTERNAL", "SCRAM-SHA-512") is None


@pytest.mark.parametrize(
    ("changes", "key", "right"),
    [
        ({URL: None}, URL, "must be set"),
        ({URL: "issuer"}, URL, "must be the file:, https: or http: URL"),
        ({JAAS: None}, JAAS, "must be set"),
        ({JAAS: f"{MODULE} clientId=me;"}, JAAS, "must have clientId and clientSecret"),
        ({"sasl.login.refresh.window.factor": "0.4"}, "sasl.login.refresh.window.factor", "from 0.5 to 1.0"),
        ({"sasl.login.refresh.window.jitter": "nan"}, "sasl.login.refresh.window.jitter", "from 0.0 to 0.25"),
        ({"sasl.login.refresh.window.jitter": "x"}, "sasl.login.refresh.window.jitter", "from 0.0 to 0.25"),
        ({"sasl.login.retry.backoff.ms": "-1"}, "sasl.login.retry.backoff.ms", "must be a number"),
    ],
)
def test_invalid_setting_is_one_line(changes: dict[str, str | None], key: str, right: str) -> None:
    with pytest.raises(SaslSettingError) as caught:
        found(**changes)
    text = str(caught.value)
    assert text.startswith(f"{key}: ") and right in text and "\n" not in text and "hunter2" not in text
