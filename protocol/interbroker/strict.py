"""Strict decoding as in `protocol.requests`, with room for all partitions of a large cluster in one message.

Seven elements are a partition with three replicas, so that the few that a client's request may have would not do.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

from odradek.protocol import requests
from odradek.protocol.wire import WireError

MOST_ELEMENTS = 1 << 20


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
    def __init__(self, version: int, flexible: bool) -> None:
        super().__init__(version, flexible)
        self._globals["check_elements"] = _check


def _check(number: int) -> None:
    if number > MOST_ELEMENTS:
        raise WireError(f"more than {MOST_ELEMENTS} elements")
