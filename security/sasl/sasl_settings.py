"""Kafka's SASL settings of a listener, made into what its exchanges share, and into the client's side between brokers.

A key is looked for with the listener and the mechanism, then with the listener, then alone:

    listener.name.internal.plain.connections.max.reauth.ms, listener.name.internal.connections.max.reauth.ms, …

Only sasl.jaas.config needs both, as in Kafka. Each error is one line with the key and what is right; no value of a JAAS
entry is in it.
"""

from __future__ import annotations

import math
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from odradek.security.sasl import oauthbearer, plain
from odradek.security.sasl.bearer_tokens import TokenValidator
from odradek.security.sasl.client_exchange import ClientMechanism
from odradek.security.sasl.exchange import SaslListener
from odradek.security.sasl.jaas import JaasError, LoginModule, login_module
from odradek.security.sasl.jwks import Jwks
from odradek.security.sasl.mechanism import ServerMechanism
from odradek.security.sasl.password import Password
from odradek.security.sasl.scram_client import ScramClient
from odradek.security.sasl.scram_keys import ScramCredential, ScramMechanism
from odradek.security.sasl.scram_server import TOKENAUTH, ScramServer, ScramStore, TokenCredential, random_key
from odradek.security.sasl.signed_tokens import Expected, SignedTokens
from odradek.security.sasl.unsecured_login import unsecured_client
from odradek.security.sasl.unsecured_tokens import UnsecuredTokens

SCRAM = {mechanism.value: mechanism for mechanism in ScramMechanism}
MECHANISMS = (plain.NAME, *SCRAM, oauthbearer.NAME)
_SECURITY = "org.apache.kafka.common.security."
_MODULES = {
    plain.NAME: plain.LOGIN_MODULE,
    **dict.fromkeys(SCRAM, _SECURITY + "scram.ScramLoginModule"),
    oauthbearer.NAME: _SECURITY + "oauthbearer.OAuthBearerLoginModule",
}
_OAUTH = _SECURITY + "oauthbearer."
SIGNED = (_OAUTH + "OAuthBearerValidatorCallbackHandler", _OAUTH + "secured.OAuthBearerValidatorCallbackHandler")
UNSECURED = _OAUTH + "internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
FETCHED_LOGIN = (_OAUTH + "OAuthBearerLoginCallbackHandler", _OAUTH + "secured.OAuthBearerLoginCallbackHandler")
UNSECURED_LOGIN = _OAUTH + "internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler"
_ENABLED = "sasl.enabled.mechanisms"
_BETWEEN = "sasl.mechanism.inter.broker.protocol"
_JAAS = "sasl.jaas.config"
_HANDLER = "sasl.server.callback.handler.class"
_LOGIN = "sasl.login.callback.handler.class"
_EXTENSION = "extension_"
_JWKS = "sasl.oauthbearer.jwks.endpoint."


class SaslSettingError(ValueError):
    """A wrong setting, in one line."""

    def __init__(self, key: str, right: str) -> None:
        super().__init__(f"{key}: {right}")


class TokenCredentials(Protocol):
    """The delegation tokens, as SCRAM checks them."""

    def credential(self, mechanism: ScramMechanism, token_id: str, now_ms: int) -> TokenCredential | None:
        """What a token authenticates as; None when there is none that has not expired."""


@dataclass(frozen=True)
class Credentials:
    """Where the exchanges find credentials that change while the broker runs."""

    scram: Callable[[ScramMechanism, str], ScramCredential | None]
    tokens: TokenCredentials | None = None
    decoy_key: Callable[[], bytes] = field(default_factory=random_key)
    """Secret, the same in all workers of a cluster: see scram_server."""


@dataclass(frozen=True)
class Configured:
    """A listener, and the keys that its owner must refresh."""

    listener: SaslListener
    jwks: Jwks | None = None
    jwks_url: str = ""


class Settings:
    """The settings of one listener as texts."""

    def __init__(self, settings: Mapping[str, str], listener: str) -> None:
        self._settings = settings
        self._prefix = f"listener.name.{listener.lower()}."

    def find(self, key: str, mechanism: str = "") -> str | None:
        """The value, from the most specific key."""
        return next((value for name in self._keys(key, mechanism) if (value := self._settings.get(name))), None)

    def _keys(self, key: str, mechanism: str) -> list[str]:
        return [self.own(key, mechanism), self._prefix + key, key] if mechanism else [self._prefix + key, key]

    def own(self, key: str, mechanism: str) -> str:
        """The name of a key of the listener and the mechanism."""
        return f"{self._prefix}{mechanism.lower()}.{key}"

    def decimal(self, key: str, default: float, low: float, high: float) -> float:
        """A number from `low` to `high`."""
        value = self.find(key)
        try:
            found = default if value is None else float(value)
        except ValueError:
            found = math.nan
        if not low <= found <= high:
            raise SaslSettingError(key, f"must be a number from {low} to {high}")
        return found

    def number(self, key: str, default: int, mechanism: str = "") -> int:
        """A number that is not negative."""
        value = self.find(key, mechanism)
        if value is None:
            return default
        if not (value.isascii() and value.isdigit()):
            raise SaslSettingError(key, "must be a number, 0 or more")
        return int(value)

    def enabled(self) -> list[str]:
        """The enabled mechanisms; GSSAPI, the default, is refused."""
        given = self.find(_ENABLED)
        names = [name.strip() for name in (given or "GSSAPI").split(",")]
        for name in names:
            if name not in MECHANISMS:
                why = "is not supported" if given else "is not supported, and is the default"
                raise SaslSettingError(_ENABLED, f"{name} {why}; must be of {', '.join(MECHANISMS)}")
        return list(dict.fromkeys(names))

    def module(self, mechanism: str) -> LoginModule | None:
        """The JAAS entry of a mechanism."""
        key = self.own(_JAAS, mechanism)
        text = self._settings.get(key)
        if text is None:
            return None
        try:
            module = login_module(text)
        except JaasError as error:
            raise SaslSettingError(key, str(error)) from None
        if module.name != _MODULES[mechanism]:
            raise SaslSettingError(key, f"the login module must be {_MODULES[mechanism]}")
        return module

    def required_module(self, mechanism: str) -> LoginModule:
        """The JAAS entry of a mechanism that needs one."""
        module = self.module(mechanism)
        if module is None:
            raise SaslSettingError(self.own(_JAAS, mechanism), f"must be set: {_MODULES[mechanism]} required …;")
        return module


def configure(
    settings: Mapping[str, str], listener: str, credentials: Credentials, api_versions: Callable[[int, int], bytes]
) -> Configured:
    """The state that all exchanges of `listener` share; raises SaslSettingError. `api_versions`: see SaslListener."""
    mine = Settings(settings, listener)
    names = mine.enabled()
    validator, jwks, url = _validator(mine) if oauthbearer.NAME in names else (None, None, "")
    made = {name: _factory(name, mine, credentials, validator) for name in names}
    most = mine.number("connections.max.reauth.ms", 0)
    shared = SaslListener(
        made,
        api_versions,
        {name: mine.number("connections.max.reauth.ms", most, name) for name in names},
        mine.number("sasl.server.max.receive.size", 524288),
        mine.number("connection.failed.authentication.delay.ms", 100),
    )
    return Configured(shared, jwks, url)


def _factory(
    name: str, mine: Settings, credentials: Credentials, validator: TokenValidator | None
) -> Callable[[], ServerMechanism]:
    if name in SCRAM:
        mine.module(name)
        store = _scram_store(SCRAM[name], credentials)
        return lambda: ScramServer(store)
    if name == plain.NAME:
        passwords = plain.users(mine.required_module(name))
        return lambda: plain.PlainServer(passwords)
    assert validator is not None
    return lambda: oauthbearer.OAuthBearerServer(validator)


def _scram_store(mechanism: ScramMechanism, credentials: Credentials) -> ScramStore:
    tokens = credentials.tokens
    return ScramStore(
        mechanism,
        lambda user: credentials.scram(mechanism, user),
        lambda token_id, now_ms: tokens.credential(mechanism, token_id, now_ms) if tokens else None,
        credentials.decoy_key,
    )


def _validator(mine: Settings) -> tuple[TokenValidator, Jwks | None, str]:
    """For unsecured tokens only with their own class; for signed ones with Kafka's class or the URL of the keys."""
    handler, url = mine.find(_HANDLER, oauthbearer.NAME), mine.find(_JWKS + "url")
    key = mine.own(_HANDLER, oauthbearer.NAME)
    if handler == UNSECURED:
        return _unsecured(mine), None, ""
    if handler is not None and handler not in SIGNED:
        raise SaslSettingError(key, f"must be {SIGNED[0]}, or {UNSECURED} to take tokens without a signature")
    if not url:
        raise SaslSettingError(_JWKS + "url", "must be set, to the file: or https: URL of the keys")
    jwks = _jwks(mine, url)
    return SignedTokens(_expected(mine), jwks), jwks, url


def _unsecured(mine: Settings) -> UnsecuredTokens:
    module = mine.module(oauthbearer.NAME)
    try:
        return UnsecuredTokens.of(module) if module else UnsecuredTokens()
    except JaasError as error:
        raise SaslSettingError(mine.own(_JAAS, oauthbearer.NAME), str(error)) from None


def _jwks(mine: Settings, url: str) -> Jwks:
    try:
        scheme = urllib.parse.urlsplit(url).scheme
    except ValueError:  # http://[::1
        scheme = ""
    if scheme not in ("file", "http", "https"):
        raise SaslSettingError(_JWKS + "url", "must be a file:, https: or http: URL")
    refresh = 0 if scheme == "file" else mine.number(_JWKS + "refresh.ms", 3600000)
    backoff = mine.number(_JWKS + "retry.backoff.ms", 100)
    return Jwks(refresh, backoff, mine.number(_JWKS + "retry.backoff.max.ms", 10000))


def _expected(mine: Settings) -> Expected:
    prefix = "sasl.oauthbearer."
    audience = (mine.find(prefix + "expected.audience") or "").split(",")
    return Expected(
        tuple(filter(None, map(str.strip, audience))),
        mine.find(prefix + "expected.issuer"),
        mine.number(prefix + "clock.skew.seconds", 30),
        mine.find(prefix + "scope.claim.name") or "scope",
        mine.find(prefix + "sub.claim.name") or "sub",
    )


def client_mechanism(
    settings: Mapping[str, str], listener: str, mechanism: str, now_ms: int,
    token: Callable[[], Password] | None = None,
) -> ClientMechanism:  # fmt: skip
    """The client's side of sasl.mechanism.inter.broker.protocol; each authentication needs another.

    User and password, or what a bearer token has, are in the JAAS entry of the listener; `token` gets a token that was
    fetched (login_settings). `now_ms`: the time of day.
    """
    mine = Settings(settings, listener)
    if mechanism == oauthbearer.NAME:
        return _unsecured_client(mine, now_ms) if token is None else _bearer_client(mine, token())
    if mechanism not in (plain.NAME, *SCRAM):
        right = f"{mechanism} is not supported; must be of {', '.join(MECHANISMS)}"
        raise SaslSettingError(_BETWEEN, right)
    module = mine.required_module(mechanism)
    user, password = module.options.get("username"), module.options.get("password")
    if user is None or password is None:
        raise SaslSettingError(mine.own(_JAAS, mechanism), "must have username and password for connections to brokers")
    if mechanism == plain.NAME:
        return plain.PlainClient(user.value, password)
    by_token = (module.option(TOKENAUTH) or "").lower() == "true"
    return ScramClient(SCRAM[mechanism], user.value, password, by_token)


def _bearer_client(mine: Settings, token: Password) -> ClientMechanism:
    """With the options `extension_…` of Kafka's OAuthBearerLoginCallbackHandler."""
    module = mine.module(oauthbearer.NAME)
    options = module.options if module is not None else {}
    extensions = {name[len(_EXTENSION) :]: text.value for name, text in options.items() if name.startswith(_EXTENSION)}
    client = oauthbearer.OAuthBearerClient(token, extensions)
    try:
        client.first()
    except ValueError as error:
        raise SaslSettingError(mine.own(_JAAS, oauthbearer.NAME), f"{_EXTENSION}…: {error}") from None
    return client


def check_enabled(settings: Mapping[str, str], listener: str, mechanism: str) -> None:
    """As in Kafka, brokers authenticate to each other by a mechanism that their own listener accepts."""
    enabled = Settings(settings, listener).enabled()
    if mechanism not in enabled:
        right = f"{mechanism} is not in sasl.enabled.mechanisms of the listener {listener}: {', '.join(enabled)}"
        raise SaslSettingError(_BETWEEN, right)


def _unsecured_client(mine: Settings, now_ms: int) -> ClientMechanism:
    """With a token without a signature, made here, where the broker's own listener takes such tokens."""
    name = oauthbearer.NAME
    handler = mine.find(_LOGIN, name)
    if handler not in (None, UNSECURED_LOGIN):
        raise SaslSettingError(mine.own(_LOGIN, name), f"must be {FETCHED_LOGIN[0]}, or {UNSECURED_LOGIN}")
    if mine.find(_HANDLER, name) != UNSECURED:
        right = f"must be {UNSECURED} where brokers make their own tokens for {name}: these have no signature"
        raise SaslSettingError(mine.own(_HANDLER, name), right)
    try:
        return unsecured_client(mine.required_module(name), now_ms)
    except JaasError as error:
        raise SaslSettingError(mine.own(_JAAS, name), str(error)) from None
