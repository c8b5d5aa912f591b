"""The requests of an unauthenticated client, decoded, and the responses to them. Bodies of other requests are not read.
For an unsupported version of ApiVersions only the correlation id is read, as its header may have changed.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from odradek.protocol import errors
from odradek.protocol.library import message_class
from odradek.protocol.requests import decode
from odradek.protocol.responses import encoded
from odradek.protocol.wire import WireError, skip_tags

SASL_HANDSHAKE = 17
API_VERSIONS = 18
SASL_AUTHENTICATE = 36

MOST_KEYS = 0x80
"""Kafka's API keys are below it; the first token of GSSAPI, read as a key, is above."""


class _Schema(NamedTuple):
    name: str
    newest: int  # version
    flexible: int  # the first version with tagged fields in the request header


_SCHEMAS = {
    SASL_HANDSHAKE: _Schema("SaslHandshake", 1, 99),
    API_VERSIONS: _Schema("ApiVersions", 4, 3),
    SASL_AUTHENTICATE: _Schema("SaslAuthenticate", 2, 2),
}
_HEAD = struct.Struct(">hhi")  # api key, version, correlation id
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class NotKafka(Exception):
    """The frame is not a Kafka request."""


class Request(NamedTuple):
    """A request; `message` is None where it is not decoded."""

    key: int
    version: int
    correlation: int
    message: Any

    @property
    def name(self) -> str:
        """The name of the API."""
        schema = _SCHEMAS.get(self.key)
        return schema.name if schema else f"API {self.key}"


def parse(frame: memoryview) -> Request:
    """The request in `frame`, without its length; raises NotKafka, or one of wire.MALFORMED."""
    key, version, correlation = _head(frame)
    schema = _SCHEMAS.get(key)
    if schema is None:
        return Request(key, version, correlation, None)
    if not 0 <= version <= schema.newest:
        if key == API_VERSIONS:
            return Request(key, version, correlation, None)
        raise WireError(f"{schema.name} v{version} is not supported")
    body = frame[_body_at(frame, version >= schema.flexible) :]
    return Request(key, version, correlation, decode(message_class(schema.name + "Request"), version, body))


def _head(frame: memoryview) -> tuple[int, int, int]:
    if len(frame) < _HEAD.size:
        raise NotKafka
    key, version, correlation = _HEAD.unpack_from(frame)
    if not 0 <= key < MOST_KEYS:
        raise NotKafka
    return key, version, correlation


def _body_at(frame: memoryview, flexible: bool) -> int:
    """The position behind the header's client id and its tagged fields."""
    (length,) = struct.unpack_from(">h", frame, _HEAD.size)
    at = _HEAD.size + 2 + max(length, 0)
    return skip_tags(frame, at, len(frame)) if flexible else at


def api_versions_error(request: Request) -> int:
    """The error code in the response to ApiVersions, or NONE (KIP-511)."""
    message = request.message
    if message is None:
        return errors.UNSUPPORTED_VERSION
    if request.version >= 3 and not (
        _SOFTWARE.fullmatch(message.client_software_name) and _SOFTWARE.fullmatch(message.client_software_version)
    ):
        return errors.INVALID_REQUEST
    return errors.NONE


def handshake_response(request: Request, error: int, mechanisms: Sequence[str]) -> bytes:
    """A frame with SaslHandshake's response."""
    response = message_class("SaslHandshakeResponse")(error_code=error, mechanisms=list(mechanisms))
    return frame(request, encoded(response, request.version))


def authenticate_response(
    request: Request, error: int, token: bytes = b"", text: str = "", lifetime_ms: int = 0
) -> bytes:
    """A frame with SaslAuthenticate's response."""
    response = message_class("SaslAuthenticateResponse")(
        error_code=error, error_message=text, auth_bytes=token, session_lifetime_ms=lifetime_ms
    )
    return frame(request, encoded(response, request.version), request.version >= 2)


def frame(request: Request, body: bytes, flexible: bool = False) -> bytes:
    """A response frame; `flexible`: its header has a section of tagged fields."""
    head = struct.pack(">i", request.correlation) + b"\x00" * flexible
    return sized(head + body)


def sized(payload: bytes) -> bytes:
    """`payload` behind its length."""
    return struct.pack(">i", len(payload)) + payload
