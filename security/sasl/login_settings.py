"""Kafka's settings of a client that fetches its bearer token: sasl.oauthbearer.token.endpoint.url and sasl.login.*.

As for a listener (sasl_settings), a key is looked for with the listener and the mechanism, then with the listener, then
alone. Each error is one line with the key and what is right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from odradek.security.sasl import oauthbearer, token_endpoint
from odradek.security.sasl.jaas import JaasError, LoginModule
from odradek.security.sasl.sasl_settings import FETCHED_LOGIN, SaslSettingError, Settings
from odradek.security.sasl.token_endpoint import TokenEndpoint
from odradek.security.sasl.token_login import RefreshWindow

_NAME = oauthbearer.NAME
_HANDLER = "sasl.login.callback.handler.class"
_REFRESH, _BACKOFF = "sasl.login.refresh.", "sasl.login.retry.backoff."
_CONNECT, _READ = "sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms"
_TLS = "ssl."


@dataclass(frozen=True)
class LoginSettings:
    """The settings for fetching a token; two are equal when they get the same token."""

    endpoint: TokenEndpoint
    tls: Mapping[str, str]
    """The options ssl.… of the JAAS entry, which apply only to the token's server."""
    jaas_key: str
    window: RefreshWindow
    backoff_ms: int
    backoff_max_ms: int
    connect_ms: int | None
    read_ms: int | None


def login_settings(settings: Mapping[str, str], listener: str, mechanism: str) -> LoginSettings | None:
    """None where no token is fetched. Raises SaslSettingError.

    Kafka fetches only where sasl.login.callback.handler.class says so; here the URL is enough.
    """
    mine = Settings(settings, listener)
    handler, url = mine.find(_HANDLER, _NAME), mine.find(token_endpoint.URL, _NAME)
    if mechanism != _NAME or handler not in (None, *FETCHED_LOGIN) or not (handler or url):
        return None
    if url is None:
        raise SaslSettingError(token_endpoint.URL, "must be set, to the https: or file: URL of a bearer token")
    module, jaas_key = mine.required_module(_NAME), mine.own("sasl.jaas.config", _NAME)
    return LoginSettings(
        _endpoint(mine, url, module, jaas_key), _tls(module), jaas_key, _window(mine),
        mine.number(_BACKOFF + "ms", 100, _NAME), mine.number(_BACKOFF + "max.ms", 10_000, _NAME),
        _optional(mine, _CONNECT), _optional(mine, _READ),
    )  # fmt: skip


def _endpoint(mine: Settings, url: str, module: LoginModule, jaas_key: str) -> TokenEndpoint:
    prefix = "sasl.oauthbearer."
    scope, sub = (mine.find(f"{prefix}{name}.claim.name", _NAME) or name for name in ("scope", "sub"))
    try:
        return token_endpoint.endpoint(url, module, scope, sub)
    except JaasError as error:
        raise SaslSettingError(jaas_key, str(error)) from None
    except ValueError as error:
        raise SaslSettingError(token_endpoint.URL, str(error)) from None


def _tls(module: LoginModule) -> dict[str, str]:
    return {name: text.value for name, text in module.options.items() if name.startswith(_TLS)}


def _window(mine: Settings) -> RefreshWindow:
    """With the bounds that Kafka's clients have."""
    return RefreshWindow(
        mine.decimal(_REFRESH + "window.factor", 0.8, 0.5, 1.0),
        mine.decimal(_REFRESH + "window.jitter", 0.05, 0.0, 0.25),
        mine.number(_REFRESH + "min.period.seconds", 60) * 1000,
        mine.number(_REFRESH + "buffer.seconds", 300) * 1000,
    )


def _optional(mine: Settings, key: str) -> int | None:
    """A time; Kafka knows none, and 0 for none."""
    return mine.number(key, 0, _NAME) or None
