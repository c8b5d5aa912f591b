"""How our commands speak TLS and SASL: Kafka's client settings, for kafka-python.

TLS contexts and SASL mechanisms are the broker's own (security/tls, security/sasl): kafka-python takes an SSLContext,
and mechanisms by name. So PEM and PKCS12 stores, users with any characters, delegation tokens (tokenauth=true) and
bearer tokens from a file or a token endpoint work as in Kafka's own tools. No secret is in kafka-python's settings.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import click

from odradek.security.sasl import oauthbearer, plain, token_endpoint
from odradek.security.sasl.bearer_tokens import TokenRefused
from odradek.security.sasl.client_exchange import ClientMechanism
from odradek.security.sasl.jaas import JaasError, LoginModule, login_module
from odradek.security.sasl.mechanism import MechanismFailure
from odradek.security.sasl.password import Password
from odradek.security.sasl.sasl_settings import MECHANISMS, SaslSettingError, client_mechanism
from odradek.security.tls import listener
from odradek.security.tls.settings import TlsError, listener_settings

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_JAAS = "sasl.jaas.config"
_SECURITY = "org.apache.kafka.common.security"
_CARRIER = "sasl_oauth_token_provider"  # the one setting of kafka-python that takes an object for SASL
# librdkafka's names
_USER, _PASSWORD = "sasl.username", "sasl.password"
_CA, _CHAIN, _KEY = "ssl.ca.location", "ssl.certificate.location", "ssl.key.location"


def is_security(name: str) -> bool:
    """Whether `security_config` translates this property."""
    return name.startswith(("ssl.", "sasl.")) or name == "security.protocol"


def security_config(properties: Mapping[str, str]) -> dict[str, Any]:
    """kafka-python's settings for `properties`. Raises UsageError, in one line without a secret."""
    found = {name: value for name, value in properties.items() if is_security(name)}
    protocol = found.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in PROTOCOLS:
        raise click.UsageError(f"security.protocol must be one of {', '.join(PROTOCOLS)}, not '{protocol}'")
    config: dict[str, Any] = {"security_protocol": protocol}
    if protocol.endswith("SSL"):
        config["ssl_context"] = _context(found)
    if protocol.startswith("SASL"):
        config |= _sasl(found)
    return config


# -- TLS


def _context(properties: Mapping[str, str]) -> Any:
    try:
        return listener.load_client(listener_settings(_stores(properties)), time.time())
    except (TlsError, OSError) as error:
        raise click.UsageError(str(error)) from None


def _stores(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties with Kafka's names in place of librdkafka's."""
    found = dict(properties)
    if _CA in found:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": found.pop(_CA)}
    if _CHAIN in found and _KEY in found:
        chain, key = (Path(found.pop(name)).read_text() for name in (_CHAIN, _KEY))
        found |= {"ssl.keystore.type": "PEM", "ssl.keystore.key": key, "ssl.keystore.certificate.chain": chain}
    return found


# -- SASL


def _sasl(properties: Mapping[str, str]) -> dict[str, Any]:
    mechanism = properties.get("sasl.mechanism", properties.get("sasl.mechanisms", "GSSAPI")).strip()
    if mechanism not in MECHANISMS:
        raise click.UsageError(f"sasl.mechanism must be one of {', '.join(MECHANISMS)}, not '{mechanism}'")
    _register()
    make = _maker(mechanism, properties)
    make()  # a wrong setting is an error before anything connects
    return {"sasl_mechanism": mechanism, _CARRIER: make}


def _maker(mechanism: str, properties: Mapping[str, str]) -> Callable[[], ClientMechanism]:
    """What makes the client's side of each authentication."""
    key = f"listener.name.client.{mechanism.lower()}.{_JAAS}"
    settings = {key: properties.get(_JAAS) or _as_jaas(mechanism, properties)}

    def make() -> ClientMechanism:
        try:
            return client_mechanism(settings, "client", mechanism, 0, lambda: _bearer(settings[key], properties))
        except (SaslSettingError, JaasError) as error:
            text = str(error).replace(key, _JAAS)
            raise click.UsageError(text if text.startswith("sasl.") else f"{_JAAS}: {text}") from None

    return make


def _as_jaas(mechanism: str, properties: Mapping[str, str]) -> str:
    """librdkafka's user and password as a login module."""
    if mechanism == oauthbearer.NAME:
        return f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule required;"
    if _USER not in properties or _PASSWORD not in properties:
        raise click.UsageError(f"{_JAAS} must be set for sasl.mechanism={mechanism}")
    name = "plain.PlainLoginModule" if mechanism == plain.NAME else "scram.ScramLoginModule"
    user, password = (_quoted(properties[key]) for key in (_USER, _PASSWORD))
    return f"{_SECURITY}.{name} required username={user} password={password};"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def _bearer(jaas: str, properties: Mapping[str, str]) -> Password:
    """A bearer token: from a file, or by OAuth's client credentials."""
    from odradek.workers.net.bounded_http import fetch

    module = login_module(jaas)
    try:
        found = token_endpoint.endpoint(properties.get(token_endpoint.URL, ""), module)
        context = _token_context(module, properties) if found.scheme == "https" else None
        return found.token_in(fetch(found.url, context=context, data=found.body, headers=found.headers))
    except JaasError:
        raise
    except (OSError, ValueError, TokenRefused) as error:
        raise click.UsageError(f"{token_endpoint.URL}: {error}") from None


def _token_context(module: LoginModule, properties: Mapping[str, str]) -> Any:
    """By the options ssl.… of the JAAS entry, as in Kafka; without any, as to the broker."""
    own = {name: text.value for name, text in module.options.items() if name.startswith("ssl.")}
    return _context(own or properties) if own or "ssl.truststore.location" in properties else None


@cache
def _register() -> None:
    """Put our mechanisms in place of kafka-python's."""
    from kafka.net.sasl import register_sasl_mechanism

    mechanism = _adapter()
    for name in MECHANISMS:
        register_sasl_mechanism(name, mechanism, overwrite=True)


def _adapter() -> type:
    from kafka.errors import SaslAuthenticationFailedError
    from kafka.net.sasl.abc import SaslMechanism

    class Mechanism(SaslMechanism):  # type: ignore[misc]  # the library has no types
        """One authentication by the mechanism that `_CARRIER` makes."""

        def __init__(self, **config: Any) -> None:
            self._mechanism: ClientMechanism = config[_CARRIER]()
            self._next: bytes | None = self._mechanism.first()

        def auth_bytes(self) -> bytes:
            assert self._next is not None
            return self._next

        def receive(self, auth_bytes: bytes) -> None:
            try:
                self._next = self._mechanism.respond(auth_bytes)
            except MechanismFailure as failure:
                raise SaslAuthenticationFailedError(failure.reason) from None

        def is_done(self) -> bool:
            return self._next is None

        def is_authenticated(self) -> bool:
            return self._next is None

    return Mechanism
