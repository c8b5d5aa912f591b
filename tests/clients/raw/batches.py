"""Record batches (magic 2) and message sets (magic 0 and 1) as bytes, right or deliberately wrong."""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import crc32c

NOW = int(time.time() * 1000)  # recent, so that the default retention keeps it
_HEAD = struct.Struct(">qiibIhiqqqhii")  # KIP-98: base offset … record count
_AFTER_CRC = 21
CODEC_BITS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


class Parsed(NamedTuple):
    """A record out of a fetch answer."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    magic: int
    headers: tuple[tuple[str, bytes | None], ...] = ()


def varint(value: int) -> bytes:
    """Zigzag, 7 bits a byte."""
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value & ~0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def record(
    at: int,
    value: bytes | None,
    key: bytes | None = None,
    timestamp_delta: int = 0,
    headers: Sequence[tuple[str, bytes | None]] = (),
) -> bytes:
    """One record of magic 2."""
    body = b"\0" + varint(timestamp_delta) + varint(at) + _sized(key) + _sized(value) + varint(len(headers))
    body += b"".join(_sized(name.encode()) + _sized(each) for name, each in headers)
    return varint(len(body)) + body


def _sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def batch(
    values: Sequence[bytes | None],
    *,
    producer: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    attributes: int = 0,
    timestamp: int = NOW,
    step: int = 0,
    key: bytes | None = None,
    payload: bytes | None = None,
    last_delta: int | None = None,
    count: int | None = None,
    break_crc: bool = False,
) -> bytes:
    """A batch of `values`; `payload` replaces the record bytes, the rest overrides header fields."""
    rows = [record(at, value, key, at * step) for at, value in enumerate(values)]
    body = b"".join(rows) if payload is None else payload
    last = len(values) - 1 if last_delta is None else last_delta
    newest = timestamp + step * max(len(values) - 1, 0)
    number = len(values) if count is None else count
    head = (attributes, last, timestamp, newest, producer, epoch, sequence, number)
    packed = _HEAD.pack(0, _HEAD.size - 12 + len(body), -1, 2, 0, *head) + body
    crc = crc32c.crc32c(packed[_AFTER_CRC:]) ^ (1 if break_crc else 0)
    return packed[:17] + struct.pack(">I", crc) + packed[_AFTER_CRC:]


def compressed(values: Sequence[bytes | None], codec: str, **fields: Any) -> bytes:
    """A batch of magic 2 whose records are compressed."""
    plain = b"".join(record(at, value) for at, value in enumerate(values))
    return batch(values, payload=compress(codec, plain), attributes=CODEC_BITS[codec], **fields)


def compress(codec: str, data: bytes) -> bytes:
    """As kafka-python compresses (snappy in the framing of snappy-java)."""
    from kafka import codec as codecs

    encode = getattr(codecs, f"{codec}_encode")
    return encode(data)


def message(
    value: bytes | None,
    key: bytes | None = None,
    *,
    magic: int = 0,
    offset: int = 0,
    attributes: int = 0,
    timestamp: int = NOW,
    break_crc: bool = False,
) -> bytes:
    """One message of a message set, magic 0 or 1, with its offset and size."""
    stamp = struct.pack(">q", timestamp) if magic else b""
    body = struct.pack(">bb", magic, attributes) + stamp + _sized4(key) + _sized4(value)
    crc = zlib.crc32(body) ^ (1 if break_crc else 0)
    return struct.pack(">qiI", offset, len(body) + 4, crc) + body


def _sized4(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def wrapped(values: Sequence[bytes | None], codec: str, *, magic: int = 0, xerial: bool = True) -> bytes:
    """A compressed message set: inner messages within one wrapper, offsets as clients of that magic number them."""
    from kafka import codec as codecs

    inner = b"".join(message(value, magic=magic, offset=at) for at, value in enumerate(values))
    if codec == "lz4" and magic == 0:
        packed = codecs.lz4_encode_old_kafka(inner)
    elif codec == "snappy" and not xerial:
        packed = codecs.snappy_encode(inner, xerial_compatible=False)
    else:
        packed = compress(codec, inner)
    return message(packed, magic=magic, offset=len(values) - 1, attributes=CODEC_BITS[codec])


def parse(data: bytes | None) -> list[Parsed]:
    """All records in whole batches of a fetch answer, by kafka-python's reader, CRCs checked."""
    from kafka.record.memory_records import MemoryRecords

    found = []
    for one in MemoryRecords(bytes(data or b"")):
        assert one.validate_crc()
        found += [Parsed(r.offset, r.timestamp, r.key, r.value, one.magic, tuple(r.headers)) for r in one]
    return found
