"""Hand-made frames of a SASL client, and decoders for the answers."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, TypeVar

from odradek.protocol.library import message_class
from odradek.protocol.requests import decode
from odradek.protocol.responses import encoded
from odradek.security.sasl.exchange import Effect

T = TypeVar("T")
CLIENT = struct.pack(">h", 4) + b"test"


def sized(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def head(key: int, version: int, correlation: int = 7) -> bytes:
    return struct.pack(">hhi", key, version, correlation) + CLIENT


def handshake(mechanism: str, version: int = 1) -> bytes:
    return head(17, version) + struct.pack(">h", len(mechanism)) + mechanism.encode()


def authenticate(token: bytes, version: int = 2) -> bytes:
    body = encoded(message_class("SaslAuthenticateRequest")(auth_bytes=token), version)
    return head(36, version) + b"\0" * (version >= 2) + body


def api_versions(version: int = 3, software: str = "test") -> bytes:
    request = message_class("ApiVersionsRequest")
    body = encoded(request(client_software_name=software, client_software_version="1"), min(version, 4))
    return head(18, version) + b"\0" * (version >= 3) + body


def metadata() -> bytes:
    return head(3, 0) + struct.pack(">i", 0)


def handshake_answer(frame: bytes) -> Any:
    """The response of SaslHandshake in a frame with its length."""
    return decode(message_class("SaslHandshakeResponse"), 1, memoryview(frame)[8:])


def authenticate_answer(frame: bytes, version: int = 2) -> Any:
    return decode(
        message_class("SaslAuthenticateResponse"), version, memoryview(frame)[8 + (version >= 2) :]
    )  # fmt: skip


def the(kind: type[T], effects: Iterable[Effect] | None) -> T:
    """The last effect, which is of this kind."""
    *_, effect = effects or ()
    assert isinstance(effect, kind)
    return effect
