"""Fetch of one partition: the offset's position in such a request, and responses in which only a few numbers change.

The same bytes as `protocol.fetch` reads and writes, from version 4 on, for repeated equal requests.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from odradek.protocol import wire
from odradek.protocol.fetch import FLEXIBLE, TOPIC_IDS, skip_topic

FIRST = 4


def offset_at(buf: memoryview, at: int, end: int, version: int) -> int:
    """The position of the first partition's offset in the well-formed request body buf[at:end]."""
    at += 13 + (4 if version < 15 else 0) + (8 if version >= 7 else 0)  # wait, bytes, isolation; replica; session
    _, at = wire.count(buf, at, end, version >= FLEXIBLE)
    at = skip_topic(buf, at, end, version)
    _, at = wire.count(buf, at, end, version >= FLEXIBLE)
    return at + (8 if version >= 9 else 4)


def epoch_at(at: int, version: int) -> int:
    """The position of the session epoch in the request body that begins at `at`, from version 7 on."""
    return at + 17 + (4 if version < 15 else 0)


class ResponseTemplate:
    """The encoding of responses for one partition without an error or aborted transactions.

    A frame is `opening`, then `head`, the records and `tail`; only the opening depends on the client. Within a session
    the opening and `nothing` mean that nothing changed.
    """

    __slots__ = ("_after", "_before", "_numbers", "_size", "nothing", "opening", "tail")

    def __init__(self, version: int, topic: bytes, index: int, committed: bool) -> None:
        flexible = version >= FLEXIBLE
        one = wire.pack_count(1, flexible)
        named = topic if version >= TOPIC_IDS else wire.pack_string(topic, flexible)
        self.opening = _opening(version)
        self._before = one + named + one + wire.I32.pack(index) + b"\x00\x00"  # no error
        self._numbers = _numbers(version)
        self._after = wire.pack_count(0 if committed else -1, flexible) + (b"\xff" * 4 if version >= 11 else b"")
        self._size: Callable[[int], bytes] = _flexible_size if flexible else wire.I32.pack
        self.nothing = wire.pack_count(0, flexible) + (b"\x00" if flexible else b"")
        self.tail = b"\x00\x00\x00" if flexible else b""  # the tags of the partition, the topic and the whole

    def head(self, hw: int, stable: int, log_start: int, size: int) -> bytes:
        """The bytes from the count of topics to the size of the records."""
        return self._before + self._numbers(hw, stable, log_start) + self._after + self._size(size)


def _flexible_size(size: int) -> bytes:
    return wire.pack_count(size, True)


def _numbers(version: int) -> Callable[[int, int, int], bytes]:
    if version >= 5:
        return struct.Struct(">qqq").pack
    pack = struct.Struct(">qq").pack
    return lambda hw, stable, log_start: pack(hw, stable)


def _opening(version: int) -> Callable[[int, int, int], bytes]:
    """(size of the rest, correlation id, session id) → the frame's beginning: no throttling, no error."""
    if version < 7:
        short = struct.Struct(">ii4x").pack
        return lambda size, correlation, session_id: short(size + 8, correlation)
    packer = struct.Struct(">iix4x2xi" if version >= FLEXIBLE else ">ii4x2xi")
    pack, more = packer.pack, packer.size - 4
    return lambda size, correlation, session_id: pack(size + more, correlation, session_id)
