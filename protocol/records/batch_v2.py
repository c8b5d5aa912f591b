"""Record batches, magic 2 (KIP-98): header, building, reading, checking, rewriting.

A batch is a header (odradek.protocol.batch has its layout), then `count` records, compressed as one piece. A record:
length, attributes (0), timestamp delta, offset delta, key, value, headers; every number in it is a zig-zag varint, and
length -1 is null.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from odradek.protocol.batch import (
    ATTRIBUTES_AT,
    COMPRESSION,
    CONTROL,
    CRC_AT,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LEAST_LENGTH,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE,
    TRANSACTIONAL,
)
from odradek.protocol.crc import crc32c
from odradek.protocol.errors import CORRUPT_MESSAGE, INVALID_RECORD
from odradek.protocol.records import codecs, varint
from odradek.protocol.records.errors import RecordError
from odradek.protocol.wire import INT64_MAX

Headers = Sequence[tuple[bytes, bytes | None]]
# offset, timestamp, key, value, headers
Record = tuple[int, int, bytes | None, bytes | None, Headers]

CREATE_TIME, LOG_APPEND_TIME = 0, 1
EARLIEST, LATEST = -INT64_MAX - 1, INT64_MAX  # a base plus a delta may exceed 64 bits
NO_HEADERS: Headers = ()


class Header(NamedTuple):
    """A batch's header, fields in wire order."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    num_records: int

    @property
    def size(self) -> int:
        """The size of the whole batch in bytes."""
        return self.length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        return self.attributes & COMPRESSION

    @property
    def timestamp_type(self) -> int:
        """CREATE_TIME or LOG_APPEND_TIME."""
        return (self.attributes & TIMESTAMP_TYPE) >> 3

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)


def header(data: bytes | memoryview, position: int = 0) -> Header:
    """The header at `position`; struct.error when fewer than 61 bytes are left. Nothing is checked."""
    return Header._make(HEADER.unpack_from(data, position))


def crc_is_right(batch: bytes | memoryview) -> bool:
    """Whether the stored CRC-32C matches the bytes; `batch` is exactly one batch."""
    stored = int.from_bytes(batch[CRC_AT:CRC_START], "big")
    return len(batch) >= HEADER_SIZE and stored == crc32c(batch[CRC_START:])


def build(
    records: Iterable[Record],
    *,
    base_offset: int | None = None,
    codec: int = codecs.NONE,
    level: int | None = None,
    attributes: int = 0,
    timestamp_type: int = CREATE_TIME,
    append_time: int = NO_TIMESTAMP,
    **producer: int,
) -> bytes:
    """One batch of `records` (rising offsets, at least one record).

    base_offset: of the batch, the first record's by default. level: of the codec. attributes: TRANSACTIONAL
    and CONTROL bits. append_time: the batch's timestamp in ms when timestamp_type is LOG_APPEND_TIME.
    producer: `producer_id`, `producer_epoch`, `base_sequence`, `leader_epoch`, all -1 by default.
    ValueError for no records at all.
    """
    body, span = encode_records(records, base_offset)
    attributes |= codec | timestamp_type << 3
    if timestamp_type == LOG_APPEND_TIME:
        span = span._replace(max_timestamp=append_time)
    return assemble(codecs.compress(codec, body, level), span, attributes, **producer)


class RecordsSpan(NamedTuple):
    """The header fields that describe the records."""

    base_offset: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    num_records: int


def encode_records(records: Iterable[Record], base_offset: int | None = None) -> tuple[bytes, RecordsSpan]:
    """The uncompressed records section and its description; ValueError for no records."""
    rows = iter(records)
    first = next(rows, None)
    if first is None:
        raise ValueError("A batch holds at least one record")
    base = first[0] if base_offset is None else base_offset
    base_timestamp = highest = first[1]
    out: list[bytes] = []
    append, known, slow, join = out.append, varint.CACHE.get, varint.encode, b"".join
    count = 0
    offset = base
    row: Record | None = first
    # A loop without calls for the usual short lengths: about 1 µs a record.
    while row is not None:
        offset, timestamp, key, value, headers = row
        if timestamp > highest:
            highest = timestamp
        delta, step = timestamp - base_timestamp, offset - base
        parts = [b"\0", known(delta) or slow(delta), known(step) or slow(step)]
        if key is None:
            parts.append(b"\1")
        else:
            size = len(key)
            parts += known(size) or slow(size), key
        if value is None:
            parts.append(b"\1")
        else:
            size = len(value)
            parts += known(size) or slow(size), value
        parts.append(_encode_headers(headers) if headers else b"\0")
        body = join(parts)
        append(slow(len(body)))
        append(body)
        count += 1
        row = next(rows, None)
    return join(out), RecordsSpan(base, offset - base, base_timestamp, highest, count)


def _encode_headers(headers: Headers) -> bytes:
    out = [varint.encode(len(headers))]
    for key, value in headers:
        out += varint.encode(len(key)), key
        out += (b"\1",) if value is None else (varint.encode(len(value)), value)
    return b"".join(out)


def assemble(
    payload: bytes,
    span: RecordsSpan,
    attributes: int,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
) -> bytes:
    """A batch of a header and a compressed `payload`; `attributes` contain its codec."""
    length = LEAST_LENGTH[2] + len(payload)
    base, last_delta, base_timestamp, max_timestamp, count = span
    producer = (producer_id, producer_epoch, base_sequence)
    times = (last_delta, base_timestamp, max_timestamp)
    head = HEADER.pack(base, length, leader_epoch, 2, 0, attributes, *times, *producer, count)
    crc = crc32c(payload, crc32c(head[CRC_START:]))
    return b"".join((head[:CRC_AT], crc.to_bytes(4, "big"), head[ATTRIBUTES_AT:], payload))


def payload(batch: bytes | memoryview, limit: int = codecs.DEFAULT_LIMIT) -> bytes:
    """The uncompressed records section of one batch, at most `limit` bytes; RecordError as codecs.decompress."""
    return codecs.decompress(batch[ATTRIBUTES_AT + 1] & COMPRESSION, batch[HEADER_SIZE:], limit)


def iterate(batch: bytes | memoryview, limit: int = codecs.DEFAULT_LIMIT) -> Iterator[Record]:
    """The records of one batch, lazily. In a LogAppendTime batch every timestamp is the batch's.

    The CRC is not checked. RecordError INVALID_RECORD at the first malformed record, and after the last when
    bytes are left over.
    """
    return walk(payload(batch, limit), header(batch))


def walk(body: bytes, head: Header) -> Iterator[Record]:
    """The records in `body`, the uncompressed section of a batch with header `head`; errors as `iterate`."""
    base, base_timestamp, appended = head.base_offset, head.base_timestamp, head.attributes & TIMESTAMP_TYPE
    timestamp = head.max_timestamp
    position, size, decode, signed = 0, len(body), varint.decode, varint.ONE_BYTE
    try:
        # Varints of one byte, and of two where they are common, are decoded in place: a call for each would
        # double the time of the loop.
        for _ in range(head.num_records):
            length = body[position]
            if length < 128:
                length, position = signed[length], position + 1
            else:
                length, position = decode(body, position, varint.INT)
            end = position + length
            if end > size or length < 6:
                raise RecordError(INVALID_RECORD, f"A record of {length} bytes does not fit into its batch")
            position += 1  # attributes, unused
            delta = body[position]
            if delta < 128:
                delta, position = signed[delta], position + 1
            else:
                delta, position = decode(body, position)
            if not appended:
                timestamp = base_timestamp + delta
                if not EARLIEST <= timestamp <= LATEST:
                    raise RecordError(INVALID_RECORD, "A record's timestamp has more than 64 bits")
            delta = body[position]
            if delta < 128:
                delta, position = signed[delta], position + 1
            elif body[position + 1] < 128:
                delta = delta & 127 | body[position + 1] << 7
                delta, position = (delta >> 1) ^ -(delta & 1), position + 2
            else:
                delta, position = decode(body, position, varint.INT)
            n = body[position]
            if n < 128:
                n, position = signed[n], position + 1
            else:
                n, position = decode(body, position, varint.INT)
            key = value = None
            if n >= 0:
                key = body[position : position + n]
                position += n
            n = body[position]
            if n < 128:
                n, position = signed[n], position + 1
            elif body[position + 1] < 128:
                n = n & 127 | body[position + 1] << 7
                n, position = (n >> 1) ^ -(n & 1), position + 2
            else:
                n, position = decode(body, position, varint.INT)
            if n >= 0:
                value = body[position : position + n]
                position += n
            headers = NO_HEADERS
            if body[position]:
                headers, position = _decode_headers(body, position, end)
            else:
                position += 1
            if position != end:
                raise RecordError(INVALID_RECORD, f"A record of {length} bytes does not have its declared length")
            yield base + delta, timestamp, key, value, headers
    except IndexError:
        raise RecordError(INVALID_RECORD, "The records end before their declared count") from None
    if position != size:
        raise RecordError(INVALID_RECORD, "There are more records than the declared count")


def _decode_headers(body: bytes, position: int, end: int) -> tuple[Headers, int]:
    count, position = varint.decode(body, position, varint.INT)
    if not 0 <= count <= end - position:
        raise RecordError(INVALID_RECORD, f"A record claims {count} headers")
    out: list[tuple[bytes, bytes | None]] = []
    for _ in range(count):
        size, position = varint.decode(body, position, varint.INT)
        if size < 0:
            raise RecordError(INVALID_RECORD, "A header key is null")
        key, position = body[position : position + size], position + size
        size, position = varint.decode(body, position, varint.INT)
        value = None
        if size >= 0:
            value, position = body[position : position + size], position + size
        out.append((key, value))
    return out, position


class Summary(NamedTuple):
    """The result of `scan` for the records of a batch."""

    dense: bool  # offset deltas are 0, 1, 2, …
    rising: bool  # offset deltas rise
    last_offset_delta: int
    min_timestamp: int  # over records that have one (≠ -1)
    max_timestamp: int
    null_keys: int


def scan(body: bytes, head: Header) -> Summary:
    """Read every record of `body` once without keeping any; RecordError INVALID_RECORD if one is malformed."""
    dense = rising = True
    last, lowest, highest, null_keys = head.base_offset - 1, 1 << 63, NO_TIMESTAMP, 0
    for offset, timestamp, key, _value, _headers in walk(body, head):
        if offset != last + 1:
            dense = False
            rising = rising and offset > last
        last = offset
        if timestamp > highest:
            highest = timestamp
        if timestamp < lowest and timestamp != NO_TIMESTAMP:
            lowest = timestamp
        if key is None:
            null_keys += 1
    return Summary(dense, rising, last - head.base_offset, lowest, highest, null_keys)


def check(batch: bytes | memoryview, limit: int = codecs.DEFAULT_LIMIT, dense: bool = False) -> Header:
    """Check one batch: size, CRC, count, offsets, well-formed records. Returns its header.

    dense: also require offset deltas 0, 1, 2, … as before compaction. RecordError CORRUPT_MESSAGE for size,
    magic and CRC, INVALID_RECORD for the records.
    """
    if len(batch) < HEADER_SIZE or (head := header(batch)).size != len(batch) or head.magic != 2:
        raise RecordError(CORRUPT_MESSAGE, "Not one whole record batch of magic 2")
    if not crc_is_right(batch):
        raise RecordError(CORRUPT_MESSAGE, f"Record batch at offset {head.base_offset} has a wrong CRC")
    found = scan(payload(batch, limit), head)
    # Compaction may remove the last records and keeps lastOffsetDelta; it may remove them all (count 0).
    if not found.rising or found.last_offset_delta > head.last_offset_delta or (dense and not found.dense):
        raise RecordError(INVALID_RECORD, f"Offsets in the batch at {head.base_offset} do not increase")
    if dense and head.last_offset_delta != head.num_records - 1:
        raise RecordError(INVALID_RECORD, f"Count and offsets differ in the batch at {head.base_offset}")
    return head


def set_crc(batch: bytearray | memoryview) -> None:
    """Set the right CRC of one batch, in place."""
    struct.pack_into(">I", batch, CRC_AT, crc32c(memoryview(batch)[CRC_START:]))


def repack(head: Header, body: bytes, codec: int, level: int | None = None) -> bytes:
    """A batch with the fields of `head` and the uncompressed records `body`, compressed with `codec`."""
    times = (head.base_timestamp, head.max_timestamp)
    span = RecordsSpan(head.base_offset, head.last_offset_delta, *times, head.num_records)
    return assemble(
        codecs.compress(codec, body, level),
        span,
        head.attributes & ~COMPRESSION | codec,
        producer_id=head.producer_id,
        producer_epoch=head.producer_epoch,
        base_sequence=head.base_sequence,
        leader_epoch=head.leader_epoch,
    )
