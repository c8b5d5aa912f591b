"""Strict decoding as in `protocol.requests`, with room for all partitions of a large cluster in one message.

Seven elements are a partition with three replicas, so that the few that a client's request may have would not do. As
many are let in as the frame has room for: no element of these messages takes less than LEAST_BYTES (StopReplica's
topics, without a name and partitions), and the frame's own size is bounded by socket.request.max.bytes.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

from odradek.protocol import requests
from odradek.protocol.wire import WireError

LEAST_BYTES = 3


def decode(message_class: Any, version: int, body: memoryview) -> Any:
    """The message in `body`; WireError when it is malformed."""
    try:
        return _decoder(message_class, version)(body, 0)[0]
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise WireError(f"{message_class.__name__} v{version}: {error}") from error


@cache
def _decoder(message_class: Any, version: int) -> requests.Decoder:
    source = _Source(version, message_class.flexible_version_q(version))
    return source.function(lambda: source.struct("made", message_class._struct, message_class, "    "))


class _Source(requests._Source):
    most = f"end // {LEAST_BYTES}"

    def __init__(self, version: int, flexible: bool) -> None:
        super().__init__(version, flexible)
        self._globals["check_elements"] = _refuse


def _refuse(number: int) -> None:
    raise WireError(f"{number} elements, for which the frame has no room")
