"""Find the batch boundaries in a piece of a log, from a file or from a fetch response, without decoding.

An offset marks the start of a batch of magic 2, but the end of a message of the older formats: a compressed message
set has the offset of its last record.

No checksum covers a base offset. So each batch must start where the previous one ends; a gap is a hole, and
`wire.holes` decides which holes are legitimate.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from odradek.protocol.batch import COMPRESSION, CRC_START, LEAST_LENGTH, LOG_OVERHEAD, OLD_ATTRIBUTES_AT
from odradek.protocol.crc import crc32c

_HEAD = Struct(">qi4xb6xi")  # offset, length; magic; last offset delta of magic 2 (protocol.batch has all of it)
_FRONT = Struct(">qi4xb")  # without the delta: a message of magic 0 may be shorter than _HEAD
_CRC = Struct(">17xI")
_LEAST = LEAST_LENGTH[0]

Hole = tuple[int, int]
"""The first offset that no batch has, and the first one after the hole."""


class WholeBatches(NamedTuple):
    """Batches in a piece of a log: bytes [begin, upto), up to offset `until`. `wanted`: bytes needed for the next one.

    `holes` lie before `until`, or before the batch behind the piece; `bounded`: the header of that batch was checked.
    """

    begin: int
    upto: int
    until: int
    wanted: int
    holes: list[Hole]
    bounded: bool = False


def whole(data: bytes | memoryview, offset: int, end: int, least: int = 0, behind: bool = True) -> WholeBatches:
    """The whole batches at the start of `data` with records in [offset, end). ValueError for data that is no batch.

    No batch may start before `least`. `behind`: the data after `end` is batches too; then the header of the first one
    is checked, which confirms where the last batch ends. The loop runs once for each batch, so it reads only what it
    needs from a header.
    """
    holes: list[Hole] = []
    unpack, room, full = _HEAD.unpack_from, len(data), len(data) - _HEAD.size
    begin = at = 0
    until = due = offset
    while room - at >= _FRONT.size:
        base, length, magic, delta = unpack(data, at) if at <= full else (*_FRONT.unpack_from(data, at), 0)
        if base >= end and magic > 1:
            return WholeBatches(begin, at, end, 0, [*holes, (until, end)] if base > until else holes, True)
        if length < _LEAST:
            raise ValueError(f"damaged after offset {until - 1}")
        after = at + length + LOG_OVERHEAD
        if after > room:
            return WholeBatches(begin, at, until, length + LOG_OVERHEAD, holes)
        if base != due:
            if base < due and (at or base < least):
                raise ValueError(f"damaged: batch with offset {base} where {max(due, least)} is expected")
            if base > until and not _is_set(data, at, magic):
                holes.append((until, min(base, end)))
        due = (base + delta if magic == 2 else base) + 1
        at = after
        if due <= offset:
            if until > offset:
                raise ValueError(f"damaged: the batch with offset {base} ends before its base offset")
            begin = at
            continue
        until = due
        if until >= end:
            found = WholeBatches(begin, at, until, 0, holes)
            return _bounded(data, found) if behind else found
    return WholeBatches(begin, at, until, _HEAD.size, holes)


def _bounded(data: bytes | memoryview, found: WholeBatches) -> WholeBatches:
    """Check the header of the batch behind."""
    if len(data) - found.upto <= _FRONT.size:
        return found
    base, _, magic = _FRONT.unpack_from(data, found.upto)
    if base < found.until:
        raise ValueError(f"damaged: batch with offset {base} where {found.until} is expected")
    if base > found.until and not _is_set(data, found.upto, magic):
        found.holes.append((found.until, base))
    return found._replace(bounded=True)


def _is_set(data: bytes | memoryview, at: int, magic: int) -> bool:
    """Whether it is a compressed message set of an old format, which does not state its first offset."""
    return magic < 2 and data[at + OLD_ATTRIBUTES_AT] & COMPRESSION != 0


def checked(data: bytes | memoryview) -> Iterator[tuple[int, int]]:
    """The first offset of each whole batch in `data`, and the offset after its last. ValueError for other data.

    Unlike `whole` it verifies checksums.
    """
    at = due = 0
    while len(data) - at >= _HEAD.size:
        base, length, magic, delta = _HEAD.unpack_from(data, at)
        after = at + length + LOG_OVERHEAD
        if after > len(data) and length >= _LEAST:
            return
        if length < _LEAST or base < due or (magic == 2 and not _is_sound(data[at:after])):
            raise ValueError(f"damaged: batch with offset {base} after offset {due - 1}")
        due = (base + delta if magic == 2 else base) + 1
        yield base, due
        at = after


def _is_sound(batch: bytes | memoryview) -> bool:
    (crc,) = _CRC.unpack_from(batch)
    return bool(crc32c(batch[CRC_START:]) == crc)
