"""SaslAuthenticate (key 36), versions 0 to 2, on a connection whose client is known: ILLEGAL_SASL_STATE, as in Kafka.

Exchanges are elsewhere, see k17_sasl_handshake.
"""

from __future__ import annotations

from typing import Any

from odradek.protocol import errors
from odradek.workers.dispatch.api import Api

_TEXT = "SaslAuthenticate request received after successful authentication"


def take(
    services: Any, connection: Any, _version: int, _correlation: int, view: memoryview, head: int, _body: int, end: int
) -> None:
    """Take the request; `head` is behind the eight bytes of api key, version and correlation id."""
    from odradek.security.sasl.sasl_requests import authenticate_response, parse

    answer = authenticate_response(parse(view[head - 8 : end]), errors.ILLEGAL_SASL_STATE, text=_TEXT)
    services.sender.answer_bytes(connection, answer)


API = Api(key=36, name="SaslAuthenticate", versions=(0, 2), fast_path=take)
