"""Strict decoding as in `protocol.requests`, with room for all partitions of a large cluster in one message.

Seven elements are a partition with three replicas, so that the few that a client's request may have would not do. As
many are let in as the frame has room for: no element of these messages takes less than LEAST_BYTES (StopReplica's
topics, without a name and partitions), and the frame's own size is bounded by socket.request.max.bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import Any

from odradek.protocol import requests
from odradek.protocol.wire import WireError

LEAST_BYTES = 3


def decode(message_class: Any, version: int, body: memoryview) -> Any:
    """The message in `body`; WireError when it is malformed."""
    try:
        return requests.decode_all(message_class, version, body, len(body) // LEAST_BYTES)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise WireError(f"{message_class.__name__} v{version}: {error}") from error


def decoding(message_class: Any, version: int, body: memoryview) -> Generator[None, None, Any]:
    """The same in steps, with the errors of `protocol.requests`."""
    return (yield from requests.decoding(message_class, version, body, len(body) // LEAST_BYTES))
