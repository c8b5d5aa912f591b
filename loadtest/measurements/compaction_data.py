"""Segments of keyed records as a producer with default settings leaves them: batches of 16 KiB, magic 2, uncompressed.

Written directly, without indexes: brokers build them when they open the log.
"""

from __future__ import annotations

import os
import random
import struct
import time
from pathlib import Path

from crc32c import crc32c

KEY_SIZE = 16
_BATCH, _HEADER, _SEGMENT = 16384, 61, 1 << 30
_KEY = b"?" * KEY_SIZE


def fill(folder: Path, size: int, records: int, keys: int) -> int:
    """Write sealed segments with `records` records of `size` bytes, and an active one with one batch; its base."""
    folder.mkdir(parents=True)
    count = (_BATCH - _HEADER) // size
    body = bytearray(b"".join(_record(delta, size) for delta in range(count)))
    places = [at for at in range(len(body)) if body.startswith(_KEY, at)]
    base, now = 0, int(time.time() * 1000)
    per_segment = _SEGMENT // (len(body) + _HEADER) * count
    while base < records:
        end = min(base + per_segment, -(-records // count) * count)
        with (folder / f"{base:020d}.log").open("wb", 1 << 20) as file:
            for offset in range(base, end, count):
                for at in places:
                    body[at : at + KEY_SIZE] = b"%0*d" % (KEY_SIZE, random.randrange(keys))
                file.write(_header(offset, count, body, now))
                file.write(body)
        base = end
    (folder / f"{base:020d}.log").write_bytes(_header(base, count, body, now) + body)
    return base


def _record(delta: int, size: int) -> bytes:
    """A record with a placeholder for its key, and a value of random digits."""
    value = os.urandom(size).hex().encode()[: size - KEY_SIZE - 10]
    content = b"\0\0" + _varint(delta) + _varint(KEY_SIZE) + _KEY + _varint(len(value)) + value + b"\0"
    return _varint(len(content)) + content


def _varint(number: int) -> bytes:
    """Zig-zag, for a number that is not negative."""
    rest, out = number << 1, bytearray()
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    return bytes(out) + bytes([rest])


def _header(offset: int, count: int, body: bytes | bytearray, now_ms: int) -> bytes:
    rest = struct.pack(">hiqqqhii", 0, count - 1, now_ms, now_ms, -1, -1, -1, count)
    return struct.pack(">qiibI", offset, _HEADER - 12 + len(body), 0, 2, crc32c(body, crc32c(rest))) + rest
