"""Where batches begin and end in a piece of a log, be it out of a file or out of an answer; nothing is decoded.

An offset says where a batch of magic 2 begins, and where a message of the older formats ends: one that is a compressed
set bears the offset of its last record.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

_HEAD = Struct(">qi4xb6xi")  # offset, length; magic; last offset delta of magic 2 (storage.scan has all of it)
_FRONT = Struct(">qi4xb")  # without that: a message of magic 0 may be shorter than _HEAD
_PREFIX, _LEAST = 12, 14  # what the length does not count, and the least it can be


class Whole(NamedTuple):
    """Batches in a piece of a log: bytes [begin, upto), up to offset `until`. `wanted`: the bytes of the next one."""

    begin: int
    upto: int
    until: int
    wanted: int


def whole(data: bytes, offset: int, end: int) -> Whole:
    """The whole batches at the start of `data` with records in [offset, end). ValueError at what is no batch.

    Once for each batch, so it takes from a header only what it needs, and nothing is looked at behind `end`.
    """
    unpack, room = _HEAD.unpack_from, len(data)
    begin = at = 0
    until, full = offset, room - _HEAD.size
    while room - at >= _FRONT.size:
        base, length, magic, delta = unpack(data, at) if at <= full else (*_FRONT.unpack_from(data, at), 0)
        if base >= end and magic > 1:
            return Whole(begin, at, end, 0)
        if length < _LEAST:
            raise ValueError(f"damaged after offset {until - 1}")
        after = at + length + _PREFIX
        if after > room:
            return Whole(begin, at, until, length + _PREFIX)
        at = after
        last = base + delta if magic == 2 else base
        if last < offset:
            begin = at
            continue
        until = last + 1
        if until >= end:
            break
    return Whole(begin, at, until, _HEAD.size)
