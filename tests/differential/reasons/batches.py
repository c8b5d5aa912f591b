"""Record batches of the sequences: their validity and contents."""

from __future__ import annotations

import zlib
from typing import Any

from odradek.protocol.batch import COMPRESSION, HEADER, HEADER_SIZE, TRANSACTIONAL
from odradek.protocol.records import codecs

from ...clients.raw.batches import parse, record
from ...fuzz.sequences import Step
from ..pair import Difference, decoded

GZIP, SNAPPY, LZ4 = 1, 2, 3
RECORD = 6  # the number of fields of a decoded record; the first is its offset
CODECS = 5  # none, gzip, snappy, lz4, zstd
OLD_HEADER = 17  # bytes up to the codec of a message
MOST = 1 << 24  # the maximum bytes of unpacked records
MORE = 16  # the maximum bytes after the last block


def unsound(difference: Difference) -> list[tuple[str, int]]:
    """The partitions with invalid batches; old formats are not checked here."""
    parts = [(topic.name, part) for topic in difference.request.topic_data for part in topic.partition_data]
    return [(name, part.index) for name, part in parts if not is_sound(bytes(part.records or b""))]


def records(difference: Difference) -> list[bytes]:
    return _in_produce(difference.request) if difference.step.api == "Produce" else []


def _in_produce(request: Any) -> list[bytes]:
    return [bytes(part.records or b"") for topic in request.topic_data for part in topic.partition_data]


def codec(records: bytes) -> int:
    """The codec of the first batch or message."""
    at = 22 if len(records) > 16 and records[16] == 2 else 17
    return records[at] & 7 if len(records) > at else 0


def is_sound(one: bytes) -> bool:
    """Whether a client may send this batch of magic 2, which must equal the encoding of its records."""
    if len(one) <= HEADER_SIZE or one[16] != 2:
        return False
    _, _, _, _, _, attributes, last, base, *_, count = HEADER.unpack_from(one)
    if attributes & ~(COMPRESSION | TRANSACTIONAL) or last != count - 1:
        return False
    try:
        rows = [record(at, row.value, row.key, row.timestamp - base, row.headers) for at, row in enumerate(parse(one))]
        return len(rows) == count and b"".join(rows) == codecs.decompress(codec(one), one[HEADER_SIZE:], MOST)
    except Exception:  # any error of the two readers for invalid bytes
        return False


def has_more(one: bytes) -> bool:
    if codec(one) == SNAPPY:
        return any(_unpacks(one[:end]) for end in range(len(one) - 1, max(HEADER_SIZE, len(one) - MORE), -1))
    if codec(one) == LZ4:
        return one[-5:] == bytes(5) or one[-4:] != bytes(4)
    unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        return codec(one) == GZIP and bool(unpacker.decompress(one[HEADER_SIZE:], MOST) and unpacker.unused_data)
    except zlib.error:
        return False


def _unpacks(one: bytes) -> bool:
    try:
        return bool(codecs.decompress(codec(one), one[HEADER_SIZE:], MOST))
    except Exception:  # any error of the reader
        return False


def times(one: bytes) -> list[int]:
    try:
        return [row.timestamp for row in parse(one) if row.timestamp is not None]
    except Exception:  # the bytes are no batch
        return []


def sent_out_of_order(difference: Difference) -> bool:
    return not all(map(in_order, sent(difference)))


def sent(difference: Difference) -> list[bytes]:
    """All former records, whatever their result."""
    return [one for step, body in difference.produced for one in _in_produce(decoded(step, body))]


def dense(rows: list[Any]) -> bool:
    return [row[0] for row in rows] == list(range(rows[0][0], rows[0][0] + len(rows))) if rows else True


def in_order(one: bytes) -> bool:
    try:
        offsets = [row.offset for row in parse(one)]
    except Exception:  # the bytes are no batch
        return True
    return offsets == list(range(len(offsets)))


def in_parts(step: Step, body: bytes) -> list[tuple[tuple[str, int], bytes]]:
    """The bytes for each partition of a Produce request."""
    rows = [(topic.name, part) for topic in decoded(step, body).topic_data for part in topic.partition_data]
    return [((name, part.index), bytes(part.records or b"")) for name, part in rows]


def sequence(one: bytes, attributes: int) -> tuple[bytes, int] | None:
    """Producer id and epoch, and the sequence, of a batch with at least these attributes."""
    if len(one) < HEADER_SIZE or one[16] != 2 or one[22] & attributes != attributes:
        return None
    return one[43:53], HEADER.unpack_from(one)[11]
