"""Snappy in the formats of Kafka clients: the framing of snappy-java ("xerial"), or one bare block.

Java frames: 16 bytes of header (magic, version, lowest compatible version; all big-endian), then blocks of
int32 length and snappy data, 32 KiB unpacked each. librdkafka sends the bare block; readers must accept both.
Streams may be concatenated: a header where a length should be starts the next (snappy-java, SnappyInputStream).
"""

import struct
from collections.abc import Iterator

MAGIC = b"\x82SNAPPY\x00"
HEADER = MAGIC + struct.pack(">ii", 1, 1)
BLOCK = 32 * 1024
_LENGTH = struct.Struct(">i")


def compress(data: bytes) -> bytes:
    """`data` in xerial framing, which every client since 0.8 reads."""
    import cramjam

    out = [HEADER]
    view = memoryview(data)
    for start in range(0, len(data), BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + BLOCK]))
        out += _LENGTH.pack(len(block)), block
    return b"".join(out)


def decompress(data: bytes | memoryview, limit: int) -> bytes | None:
    """`data` unpacked from either format, None when the output exceeds `limit` bytes; ValueError if broken."""
    import cramjam

    view = memoryview(data)
    if view[: len(MAGIC)] != MAGIC:
        blocks = [view]
    elif len(view) < len(HEADER):
        raise ValueError("the snappy header is cut short")
    else:
        blocks = list(_blocks(view))
    # The decoder allocates and enforces the length that a block claims, so it is the bound too.
    if sum(map(cramjam.snappy.decompress_raw_len, blocks)) > limit:
        return None
    return b"".join([bytes(cramjam.snappy.decompress_raw(block)) for block in blocks])


def _blocks(view: memoryview) -> Iterator[memoryview]:
    position = len(HEADER)
    while position < len(view):
        if view[position : position + len(MAGIC)] == MAGIC:
            position += len(HEADER)
            continue
        if position + 4 > len(view):
            raise ValueError("a snappy block length is cut short")
        (length,) = _LENGTH.unpack_from(view, position)
        position += 4
        if not 0 <= length <= len(view) - position:
            raise ValueError("a snappy block is cut short")
        yield view[position : position + length]
        position += length
