"""Message sets, magic 0 (Kafka 0.8) and 1 (0.10, KIP-31 and KIP-32): reading and building.

    offset i64 | size i32 | crc u32 | magic i8 | attributes i8 | [timestamp i64, magic 1] | key | value

crc is zlib's CRC-32 from magic to the end; key and value are an i32 length (-1: null) and bytes. attributes:
bits 0-2 codec, bit 3 LogAppendTime (magic 1). A compressed set is one wrapper message without key whose value
unpacks to a message set. The wrapper's offset is its last message's; the offsets inside are absolute in magic 0
and count from 0 in magic 1. A set may end with a partial message, which readers ignore.
"""

import struct
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple
from zlib import crc32

from odradek.protocol.batch import COMPRESSION, ENTRY, LEAST_LENGTH, LOG_OVERHEAD, NO_TIMESTAMP, TIMESTAMP_TYPE
from odradek.protocol.errors import CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE
from odradek.protocol.records import codecs
from odradek.protocol.records.batch_v2 import CREATE_TIME, LOG_APPEND_TIME, NO_HEADERS, Record
from odradek.protocol.records.errors import RecordError

_PREFIX = struct.Struct(">qiI")  # offset, size, crc
_HEAD = {0: struct.Struct(">bb"), 1: struct.Struct(">bbq")}
_TO_KEY = {0: struct.Struct(">Ibbi"), 1: struct.Struct(">Ibbqi")}  # crc to the size of the key
_SIZE = struct.Struct(">i")


class Message(NamedTuple):
    """One message of a set; `key` and `value` are copies, nothing is unpacked."""

    offset: int
    magic: int
    attributes: int
    timestamp: int  # ms, NO_TIMESTAMP in magic 0
    key: bytes | None
    value: bytes | None

    @property
    def codec(self) -> int:
        return self.attributes & COMPRESSION

    @property
    def timestamp_type(self) -> int:
        """CREATE_TIME or LOG_APPEND_TIME."""
        return (self.attributes & TIMESTAMP_TYPE) >> 3


def entries(data: bytes | memoryview) -> Iterator[tuple[int, int, int]]:
    """(offset, start, end) of each whole message in a set, start and end without offset and size.

    RecordError CORRUPT_MESSAGE for a size below that of the smallest message.
    """
    position, total, unpack = 0, len(data), ENTRY.unpack_from
    while position + LOG_OVERHEAD <= total:
        offset, size = unpack(data, position)
        if size < LEAST_LENGTH[0]:
            raise RecordError(CORRUPT_MESSAGE, f"A message of {size} bytes is shorter than the minimum")
        position += LOG_OVERHEAD
        if position + size > total:
            return
        yield offset, position, position + size
        position += size


def messages(data: bytes | memoryview, check_crc: bool = True) -> Iterator[Message]:
    """The messages of a set, with wrappers unopened.

    RecordError CORRUPT_MESSAGE for a wrong CRC or lengths that do not add up.
    """
    for offset, start, end in entries(data):
        yield read(data, offset, start, end, check_crc)


def read(data: bytes | memoryview, offset: int, start: int, end: int, check_crc: bool = True) -> Message:
    """The message that `entries` found; errors as `messages`."""
    magic = data[start + 4]
    head = _TO_KEY.get(magic)
    if head is None or end - start < head.size + 4:
        raise RecordError(CORRUPT_MESSAGE, f"A message of magic {magic} cannot have {end - start} bytes")
    if magic:
        crc, _, attributes, timestamp, size = head.unpack_from(data, start)
    else:
        crc, _, attributes, size = head.unpack_from(data, start)
        timestamp = NO_TIMESTAMP
    if check_crc and crc != crc32(data[start + 4 : end]):
        raise RecordError(CORRUPT_MESSAGE, f"Message {offset} of its set has a wrong CRC")
    key = value = None
    position = start + head.size
    if size >= 0:
        key = bytes(data[position : position + size])
        position += size
    if position + 4 > end:
        raise RecordError(CORRUPT_MESSAGE, "A message's lengths are inconsistent")
    (size,) = _SIZE.unpack_from(data, position)
    if size >= 0:
        value = bytes(data[position + 4 : position + 4 + size])
        if position + 4 + size > end:
            raise RecordError(CORRUPT_MESSAGE, "A message's lengths are inconsistent")
    return Message(offset, magic, attributes, timestamp, key, value)


def iterate(data: bytes | memoryview, limit: int = codecs.DEFAULT_LIMIT, check_crc: bool = True) -> Iterator[Record]:
    """The records of a set, wrappers opened, offsets absolute, lazily.

    RecordError CORRUPT_MESSAGE for a wrong CRC or length, INVALID_RECORD for an invalid wrapper, and as
    codecs.decompress. Sets of both magics may be mixed.
    """
    for offset, start, end in entries(data):
        yield from _opened(data, offset, start, end, limit, check_crc)


def _opened(
    data: bytes | memoryview, offset: int, start: int, end: int, limit: int, check_crc: bool
) -> Iterator[Record]:
    """The records of one message, which may be a wrapper."""
    message = read(data, offset, start, end, check_crc)
    if not message.codec:
        yield offset, message.timestamp, message.key, message.value, NO_HEADERS
        return
    for inner in unwrap(message, limit, check_crc):
        yield inner.offset, inner.timestamp, inner.key, inner.value, NO_HEADERS


def unwrap(
    wrapper: Message, limit: int = codecs.DEFAULT_LIMIT, check_crc: bool = True, most: int | None = None
) -> Iterator[Message]:
    """The messages in a compressed one, with absolute offsets; with LogAppendTime all have the wrapper's timestamp.

    The magic of the inner messages is not compared with the wrapper's. Errors as `iterate`, and MESSAGE_TOO_LARGE for
    more than `most` messages, before any is read.
    """
    if wrapper.codec == codecs.ZSTD:
        raise RecordError(INVALID_RECORD, f"zstd needs message format 2, not {wrapper.magic}")
    if wrapper.value is None:
        raise RecordError(INVALID_RECORD, "A compressed message set without a value")
    data = codecs.decompress(wrapper.codec, wrapper.value, limit, wrapper.magic)
    base = _inner_base(wrapper, data, most)
    appended = wrapper.magic and wrapper.attributes & TIMESTAMP_TYPE
    for offset, start, end in entries(data):
        inner = read(data, offset + base, start, end, check_crc)
        if inner.codec:
            raise RecordError(INVALID_RECORD, "A compressed message within a compressed message")
        if appended and inner.magic:
            inner = inner._replace(timestamp=wrapper.timestamp)
        yield inner


def _inner_base(wrapper: Message, data: bytes, most: int | None) -> int:
    """The number to add to the inner offsets; also checks that there is at least one message, and at most `most`."""
    offsets = [offset for offset, _, _ in islice(entries(data), None if most is None else most + 1)]
    if most is not None and len(offsets) > most:
        raise RecordError(MESSAGE_TOO_LARGE, f"More than {most} messages are too many to decompress")
    if not offsets:
        raise RecordError(INVALID_RECORD, "A compressed message set holds no messages")
    # A wrapper at 0 counts from 0: some versions of librdkafka never set its offset.
    if wrapper.magic == 0 or wrapper.offset == 0:
        return 0
    if wrapper.offset < offsets[-1]:
        raise RecordError(INVALID_RECORD, f"A wrapper at {wrapper.offset} ends at {offsets[-1]} inside")
    return wrapper.offset - offsets[-1]


def build(
    records: Iterable[Record],
    magic: int,
    *,
    codec: int = codecs.NONE,
    level: int | None = None,
    timestamp_type: int = CREATE_TIME,
    append_time: int = NO_TIMESTAMP,
) -> bytes:
    """A message set of `records` (rising offsets; headers are lost, magic 0 loses timestamps too).

    With a codec one wrapper, without one message per record. append_time: the timestamp of all of them in ms
    when timestamp_type is LOG_APPEND_TIME. b"" for no records; UNSUPPORTED_COMPRESSION_TYPE for zstd.
    """
    if codec == codecs.ZSTD:
        raise RecordError(UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs message format 2, not {magic}")
    attributes = timestamp_type << 3 if magic else 0
    if magic and timestamp_type == LOG_APPEND_TIME:
        records = ((offset, append_time, key, value, ()) for offset, _, key, value, _ in records)
    if not codec:
        return _plain(records, magic, attributes, relative=False)[0]
    inner, last, highest = _plain(records, magic, attributes, relative=magic > 0)
    if not inner:
        return b""
    packed = codecs.compress(codec, inner, level, magic)
    head = _HEAD[magic].pack(magic, attributes | codec, *((highest,) if magic else ()))
    body = b"".join((head, _SIZE.pack(-1), _SIZE.pack(len(packed)), packed))
    return _PREFIX.pack(last, len(body) + 4, crc32(body)) + body


def _plain(records: Iterable[Record], magic: int, attributes: int, relative: bool) -> tuple[bytes, int, int]:
    """Messages without a wrapper, their last offset and highest timestamp."""
    out: list[bytes] = []
    append, pack_head, pack_prefix, pack_size = out.append, _HEAD[magic].pack, _PREFIX.pack, _SIZE.pack
    null = pack_size(-1)
    last, highest, base = -1, NO_TIMESTAMP, None
    for last, timestamp, key, value, _ in records:
        if base is None:
            base = last if relative else 0
        if timestamp > highest:
            highest = timestamp
        head = pack_head(magic, attributes, timestamp) if magic else pack_head(magic, attributes)
        keyed = null if key is None else pack_size(len(key)) + key
        body = head + keyed + (null if value is None else pack_size(len(value)) + value)
        append(pack_prefix(last - base, len(body) + 4, crc32(body)))
        append(body)
    return b"".join(out), last, highest
