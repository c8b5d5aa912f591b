"""Segments written by hand for the tests."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from odradek.storage.files import names
from odradek.storage.recovery.rebuild import scan_segment


class Interval(NamedTuple):
    """The part of a topic's config that recovery reads."""

    index_interval_bytes: int = 4096
    compacted: bool = False
    retention_unknown: bool = False


def varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def record(delta: int, value: bytes, key: bytes | None = None) -> bytes:
    key_part = varint(-1) if key is None else varint(len(key)) + key
    body = b"\0" + varint(0) + varint(delta) + key_part + varint(len(value)) + value + varint(0)
    return varint(len(body)) + body


def batch(
    offset: int,
    records: int = 1,
    *,
    size: int = 50,
    timestamp: int = 1000,
    epoch: int = 0,
    attributes: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    key: bytes | None = None,
    value: bytes | None = None,
) -> bytes:
    """A batch of magic 2. `producer`: id, epoch, base sequence."""
    content = b"".join(record(i, b"v" * size if value is None else value, key) for i in range(records))
    head = struct.pack(">hiqqqhii", attributes, records - 1, timestamp, timestamp, *producer, records)
    body = head + content
    return struct.pack(">qiibI", offset, len(body) + 9, epoch, 2, crc32c(body)) + body


def marker(
    offset: int, producer_id: int, epoch: int, *, commit: bool, coordinator: int = 7, timestamp: int = 2000
) -> bytes:
    """A control batch that ends a transaction."""
    key, value = struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, coordinator)
    return batch(offset, attributes=0x30, producer=(producer_id, epoch, -1), key=key, value=value, timestamp=2000)


def message(offset: int, magic: int = 1, *, value: bytes = b"old", timestamp: int = 500) -> bytes:
    """A message of magic 0 or 1, not compressed."""
    body = struct.pack(">bb", magic, 0) + (struct.pack(">q", timestamp) if magic else b"")
    body += struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def write_segment(
    directory: Path, base: int, batches: list[bytes], *, interval: int = 4096, sealed: bool = True
) -> Path:
    """A segment with its indexes, as a broker leaves it."""
    directory.mkdir(parents=True, exist_ok=True)
    path = names.segment_path(directory, base)
    path.write_bytes(b"".join(batches))
    scanned = scan_segment(directory, base, 4096)
    if sealed:
        scanned.indexes.close()
    scanned.write_indexes(directory)
    return path


def run_of_batches(first: int, count: int, **options: object) -> list[bytes]:
    """`count` batches of one record each, from offset `first`, timestamps rising."""
    return [batch(first + i, timestamp=1000 + first + i, **options) for i in range(count)]  # type: ignore[arg-type]  # of several types
