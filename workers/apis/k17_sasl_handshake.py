"""SaslHandshake (key 17), versions 0 and 1, on a connection whose client is known: it begins another exchange.

KIP-368. The first exchange of a connection is `workers.authentication.unauthenticated`'s. Where no exchange can
follow, the answer is ILLEGAL_SASL_STATE, as in Kafka.
"""

from __future__ import annotations

from typing import Any

from odradek.protocol import errors
from odradek.workers.dispatch.api import Api


def take(
    services: Any, connection: Any, _version: int, _correlation: int, view: memoryview, head: int, _body: int, end: int
) -> None:
    """Take the request; `head` is behind the eight bytes of api key, version and correlation id."""
    frame = view[head - 8 : end]
    if services.authentication is None or not services.authentication.reauthenticate(connection, bytes(frame)):
        from odradek.security.sasl.sasl_requests import handshake_response, parse

        services.sender.answer_bytes(connection, handshake_response(parse(frame), errors.ILLEGAL_SASL_STATE, []))


API = Api(key=17, name="SaslHandshake", versions=(0, 1), fast_path=take)
