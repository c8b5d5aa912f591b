"""Strict decoding as in `protocol.requests`, with room for all partitions of a large cluster in one message.

A partition with three replicas takes seven elements, so the limit for a client's request would be too low. The limit is
the number that the frame can hold: every element of these messages takes at least LEAST_BYTES (StopReplica's topics,
without a name and partitions), and socket.request.max.bytes bounds the frame's size.
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
