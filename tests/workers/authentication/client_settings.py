"""Settings of each client for a secured broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from .secured_broker import PASSWORD, USER, SecuredBroker

_SECURITY = "org.apache.kafka.common.security"
_MODULES = {"PLAIN": "plain.PlainLoginModule", "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule"}
_SCRAM = "scram.ScramLoginModule"


class Way(NamedTuple):
    """How the client alice authenticates; `token`: with a delegation token of hers."""

    protocol: str
    mechanism: str = ""
    certificate: bool = False
    token: bool = False

    def __str__(self) -> str:
        marks = ("certificate" * self.certificate, "token" * self.token)
        return "-".join(filter(None, (self.protocol, self.mechanism, *marks)))

    @property
    def principal(self) -> str:
        """The principal that the broker gives the client."""
        return "User:CN=alice" if self.certificate else "User:alice" if self.mechanism else "User:ANONYMOUS"


def _login(broker: SecuredBroker, way: Way) -> tuple[str, str]:
    return broker.delegation_token if way.token else (USER, PASSWORD)


def librdkafka(broker: SecuredBroker, way: Way) -> dict[str, Any]:
    """For confluent-kafka and kcat, without bearer tokens."""
    found = {"bootstrap.servers": broker.address(way.protocol), "security.protocol": way.protocol.lower()}
    if way.protocol.endswith("SSL"):
        found["ssl.ca.location"] = broker.ca
    if way.certificate:
        found |= {"ssl.certificate.location": broker.client_pem, "ssl.key.location": broker.client_pem}
    if way.mechanism:
        found["sasl.mechanism"] = way.mechanism
    if way.mechanism not in ("", "OAUTHBEARER"):
        found["sasl.username"], found["sasl.password"] = _login(broker, way)
    return found


def kafka_python(broker: SecuredBroker, way: Way) -> dict[str, Any]:
    """For kafka-python."""
    found: dict[str, Any] = {"bootstrap_servers": broker.address(way.protocol), "security_protocol": way.protocol}
    if way.protocol.endswith("SSL"):
        found["ssl_cafile"] = broker.ca
    if way.certificate:
        found |= {"ssl_certfile": broker.client_pem, "ssl_keyfile": broker.client_pem}
    if way.mechanism == "OAUTHBEARER":
        found["sasl_oauth_token_provider"] = _kafka_python_provider(broker)
    return found | _python_login(broker, way)


def _kafka_python_provider(broker: SecuredBroker) -> Any:
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return broker.token()

    return Provider()


def aiokafka(broker: SecuredBroker, way: Way) -> dict[str, Any]:
    """For aiokafka."""
    from aiokafka.helpers import create_ssl_context

    found: dict[str, Any] = {"bootstrap_servers": broker.address(way.protocol), "security_protocol": way.protocol}
    if way.protocol.endswith("SSL"):
        pem = {"certfile": broker.client_pem, "keyfile": broker.client_pem} if way.certificate else {}
        found["ssl_context"] = create_ssl_context(cafile=broker.ca, **pem)
    if way.mechanism == "OAUTHBEARER":
        found["sasl_oauth_token_provider"] = _aiokafka_provider(broker)
    return found | _python_login(broker, way)


def _aiokafka_provider(broker: SecuredBroker) -> Any:
    from aiokafka.abc import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return broker.token()

    return Provider()


def _python_login(broker: SecuredBroker, way: Way) -> dict[str, Any]:
    if not way.mechanism:
        return {}
    user, password = _login(broker, way)
    login = {"sasl_plain_username": user, "sasl_plain_password": password} if way.mechanism != "OAUTHBEARER" else {}
    return {"sasl_mechanism": way.mechanism} | login


def java(broker: SecuredBroker, way: Way) -> dict[str, str]:
    """For Java's clients, without bootstrap servers."""
    found = {"security.protocol": way.protocol}
    if way.protocol.endswith("SSL"):
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": broker.ca}
    if way.certificate:
        found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": broker.client_pem}
    if way.mechanism:
        found |= {"sasl.mechanism": way.mechanism, "sasl.jaas.config": _jaas(broker, way)}
    if way.mechanism == "OAUTHBEARER":
        handler = f"{_SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler"
        found |= {
            "sasl.login.callback.handler.class": handler,
            "sasl.oauthbearer.token.endpoint.url": token_url(broker),
        }
    return found


def _jaas(broker: SecuredBroker, way: Way) -> str:
    module = f"{_SECURITY}.{_MODULES.get(way.mechanism, _SCRAM)} required"
    if way.mechanism == "OAUTHBEARER":
        return f"{module};"
    user, password = _login(broker, way)
    return f'{module} username="{user}" password="{password}"{" tokenauth=true" * way.token};'


def token_url(broker: SecuredBroker) -> str:
    """The URL of a file with a bearer token."""
    path = broker.folder / "bearer-token"
    path.write_text(broker.token())
    return path.as_uri()


def java_file(broker: SecuredBroker, way: Way) -> str:
    """A properties file for Java's tools."""
    return _written(broker.folder / f"{way}.properties", java(broker, way))


def librdkafka_file(broker: SecuredBroker, way: Way) -> str:
    """A properties file as kcat reads it."""
    return _written(broker.folder / f"{way}.conf", librdkafka(broker, way))


def _written(path: Path, settings: dict[str, str]) -> str:
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return str(path)
