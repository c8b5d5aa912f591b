"""Small batches that unpack to gigabytes, made without that much memory."""

from __future__ import annotations

import gzip
import struct
import zlib

from ..clients.raw.batches import CODEC_BITS, NOW, batch

_PIECE = 32 << 20
_ZSTD_BLOCK = 128 << 10
_LZ4_BLOCK = 4 << 20


def bomb(codec: str, size: int) -> bytes:
    """Compressed data of about `size` zeros."""
    return {"gzip": _gzip, "snappy": _snappy, "lz4": _lz4, "zstd": _zstd}[codec](size)


def _gzip(size: int) -> bytes:
    """Successive members, which gzip readers take for one stream."""
    return gzip.compress(bytes(_PIECE), 9, mtime=0) * (size // _PIECE)


def _zstd(size: int) -> bytes:
    """One frame of RLE blocks, each a byte and its repeat count."""
    header = struct.pack("<IBB", 0xFD2FB528, 0, 0x70)  # no checksum, no content size, a window of 16 MiB
    block = _ZSTD_BLOCK << 3 | 1 << 1
    blocks = (block.to_bytes(3, "little") + b"\0") * (size // _ZSTD_BLOCK)
    return header + blocks + (1 | 1 << 1).to_bytes(3, "little") + b"\0"  # the last block


def _lz4(size: int) -> bytes:
    """Independent blocks of one long match; the ratio is 255 at most."""
    from odradek.protocol.records.lz4_frames import xxh32

    run = _LZ4_BLOCK - 1 - 4 - 15 - 5
    body = b"\x1f\0\x01\0" + b"\xff" * (run // 255) + bytes((run % 255,)) + b"\x50" + bytes(5)
    descriptor = b"\x60\x70"  # version 1, independent blocks of up to 4 MiB
    header = b"\x04\x22\x4d\x18" + descriptor + bytes((xxh32(descriptor) >> 8 & 255,))
    return header + (struct.pack("<I", len(body)) + body) * (size // _LZ4_BLOCK) + bytes(4)


def _snappy(size: int) -> bytes:
    """A raw block that claims `size` bytes."""
    out = bytearray()
    left = size
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes(out) + bytes((left, 0, 0)) + b"\xfe\x01\0" * 1000


def batch_of(codec: str, size: int, count: int = 1) -> bytes:
    """A record batch of magic 2 around a bomb; its header claims `count` records."""
    return batch([None] * count, payload=bomb(codec, size), attributes=CODEC_BITS[codec])


def message_of(codec: str, size: int, magic: int) -> bytes:
    """A wrapper message of magic 0 or 1 around a bomb."""
    data = bomb(codec, size)
    stamp = struct.pack(">q", NOW) if magic else b""
    body = struct.pack(">bb", magic, CODEC_BITS[codec]) + stamp + struct.pack(">ii", -1, len(data)) + data
    return struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body
