"""A raw connection that authenticates with a password, and requests of any API over it."""

from __future__ import annotations

from typing import Any

from odradek.protocol import interbroker
from odradek.security.sasl import plain
from odradek.security.sasl.client_exchange import ClientExchange, ClientMechanism
from odradek.security.sasl.password import Password
from odradek.security.sasl.plain import PlainClient
from odradek.security.sasl.scram_client import ScramClient
from odradek.security.sasl.scram_keys import ScramMechanism
from tests.harness.wire import Wire


def authenticate(wire: Wire, mechanism: str, user: str, secret: str, token: bool = False) -> None:
    """Authenticate the connection. Raises AuthenticationError."""
    exchange = ClientExchange(mechanism, _client(mechanism, user, Password(secret), token))
    request: bytes | None = exchange.start()
    while request is not None:
        wire.send_raw(request)
        request = exchange.receive(wire.read_frame())


def _client(mechanism: str, user: str, secret: Password, token: bool) -> ClientMechanism:
    if mechanism == plain.NAME:
        return PlainClient(user, secret)
    return ScramClient(ScramMechanism(mechanism), user, secret, token)


class SaslWire:
    """An authenticated connection. Raises AuthenticationError."""

    def __init__(
        self, bootstrap: str, user: str, secret: str, mechanism: str = "SCRAM-SHA-256", token: bool = False
    ) -> None:
        self._wire = Wire(bootstrap)
        self._correlation = 100
        authenticate(self._wire, mechanism, user, secret, token)

    def ask(self, name: str, version: int, **fields: Any) -> Any:
        """The answer to one request."""
        self._correlation += 1
        self._wire.send_raw(interbroker.request(name, version, self._correlation, "test", **fields))
        return interbroker.response(name, version, self._wire.read_frame())[1]

    def close(self) -> None:
        self._wire.close()
