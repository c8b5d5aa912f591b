"""Requests between brokers: APIs that the library lacks, and frames of any API.

    data = interbroker.request("StopReplica", 4, correlation, "1", controller_id=1, topic_states=[...])
    correlation, answer = interbroker.response("StopReplica", 4, frame)

Struct classes are attributes of their message's class: `interbroker.message_class("StopReplicaRequest").TopicState`.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from functools import cache
from typing import Any

from odradek.protocol import library
from odradek.protocol.errors import UNSUPPORTED_VERSION
from odradek.protocol.interbroker import (
    controlled_shutdown,
    leader_and_isr,
    stop_replica,
    strict,
    update_metadata,
)
from odradek.protocol.responses import encoded
from odradek.protocol.wire import I16, I32, WireError, pack_string, skip_tags

_MODULES = (leader_and_isr, stop_replica, update_metadata, controlled_shutdown)
_SCHEMAS = {module.SCHEMA.name: module.SCHEMA for module in _MODULES}

_CONTROLLED_SHUTDOWN, _API_VERSIONS = 7, 18
_HEADER = struct.Struct(">hhi")


@cache
def message_class(name: str) -> Any:
    """The class for a request or response, e.g. `LeaderAndIsrRequest`: ours, else the library's."""
    for kind in ("Request", "Response"):
        schema = _SCHEMAS.get(name.removesuffix(kind))
        if schema is not None and name.endswith(kind):
            return schema.message_class(kind)
    return library.message_class(name)


def request(name: str, version: int, correlation: int, client_id: str | None, **fields: Any) -> bytes:
    """A whole frame, with length and header; ValueError for an unknown version or field."""
    made = message_class(name + "Request")(**fields)
    if not 0 <= version <= made.max_version:
        raise ValueError(f"{name} has no version {version}")
    header = _HEADER.pack(made.API_KEY, version, correlation)
    if (made.API_KEY, version) != (_CONTROLLED_SHUTDOWN, 0):
        header += pack_string(None if client_id is None else client_id.encode(), False)
    if made.flexible_version_q(version):
        header += b"\x00"
    body = encoded(made, version)
    return I32.pack(len(header) + len(body)) + header + body


def refusal(name: str, version: int, error: int) -> bytes:
    """The body of a response that is only an error code."""
    return encoded(message_class(name + "Response")(error_code=error), version)


def response(name: str, version: int, frame: bytes | memoryview) -> tuple[int, Any]:
    """Correlation id and message of a frame without its length; WireError when it is malformed."""
    view = memoryview(frame)
    kind = message_class(name + "Response")
    try:
        (correlation,), at = I32.unpack_from(view), 4
        if kind.API_KEY == _API_VERSIONS:  # its header never has tags, and too high a version is answered in v0
            version = 0 if I16.unpack_from(view, at)[0] == UNSUPPORTED_VERSION else version
        elif kind.flexible_version_q(version):
            at = skip_tags(view, at, len(view))
    except (struct.error, IndexError) as error:
        raise WireError(f"{name} v{version}: header: {error}") from error
    return correlation, strict.decode(kind, version, view[at:])


class Codec:
    """The codec that a row of `workers.dispatch.api` needs for an API that the library lacks."""

    def __init__(self, name: str) -> None:
        self._name = name

    def decode(self, version: int, body: memoryview) -> Any:
        """The request in `body`; WireError when it is malformed."""
        return strict.decode(message_class(self._name + "Request"), version, body)

    def decoding(self, version: int, body: memoryview) -> Generator[None, None, Any]:
        """`decode` in steps; struct.error, IndexError or ValueError when it is malformed."""
        return (yield from strict.decoding(message_class(self._name + "Request"), version, body))

    def encode(self, version: int, response: Any) -> bytes:
        """The body of `response`."""
        return encoded(response, version)
