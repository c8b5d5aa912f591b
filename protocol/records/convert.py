"""Conversion between message formats: down for old consumers (up is part of `validate.normalise`).

As in Apache Kafka's broker: KIP-31, KIP-32 and KIP-98, and its RecordsUtil for a fetch by an old client.
Headers, producer fields and control batches do not exist below magic 2 and are dropped.
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from odradek.protocol.batch import ENTRY, LEAST_LENGTH, LOG_OVERHEAD, MAGIC_AT, NO_TIMESTAMP
from odradek.protocol.errors import CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE
from odradek.protocol.records import batch_v2, codecs, message_sets
from odradek.protocol.records.batch_v2 import CREATE_TIME, Record
from odradek.protocol.records.errors import RecordError

_ENOUGH_BYTES = 16 << 20  # unpacked for one response; the client fetches the rest later
_ENOUGH_RECORDS = 20_000  # converted for one response: a record costs some 10 µs, and may have as few as 7 bytes


class Down(NamedTuple):
    """Message sets for an old client, and whether batches that it may read were left out to spare the worker."""

    data: bytes
    cut: bool = False


class _Converted(NamedTuple):
    """A converted batch, and what it cost."""

    data: bytes
    unpacked: int = 0  # bytes
    records: int = 0


def split(data: bytes | memoryview) -> Iterator[memoryview]:
    """The whole batches and messages in `data`, of any magic; ignores a partial one at the end.

    RecordError CORRUPT_MESSAGE for an impossible size or magic.
    """
    view = memoryview(data)
    position, total = 0, len(view)
    while position + LOG_OVERHEAD <= total:
        size = ENTRY.unpack_from(view, position)[1]
        if size < LEAST_LENGTH[0]:
            raise RecordError(CORRUPT_MESSAGE, f"A batch of {size} bytes is shorter than the minimum")
        end = position + LOG_OVERHEAD + size
        if position + MAGIC_AT < total and view[position + MAGIC_AT] > 2:
            raise RecordError(CORRUPT_MESSAGE, f"Unknown magic {view[position + MAGIC_AT]}")
        if end > total:
            return
        yield view[position:end]
        position = end


def renumbered(records: Iterable[Record], base_offset: int) -> Iterator[Record]:
    """The same records at offsets `base_offset`, `base_offset` + 1, …"""
    for offset, (_, timestamp, key, value, headers) in enumerate(records, base_offset):
        yield offset, timestamp, key, value, headers


def down(
    data: bytes | memoryview,
    magic: int,
    first_offset: int = 0,
    limit: int = codecs.WORKER_LIMIT,
    room: int | None = None,
) -> Down:
    """A slice of a log as a message set of `magic` 0 or 1, for Fetch below version 4 (1) and 2 (0).

    first_offset: the client's fetch offset. Records before it are omitted from uncompressed batches, as old
    librdkafka needs; in compressed sets the client skips them itself. Batches already at or below `magic` are
    copied. Offsets stay, codecs stay. No data when nothing is left: control batches only, or less than one batch.
    RecordError UNSUPPORTED_COMPRESSION_TYPE for zstd, and as batch_v2.iterate. After other batches an error only
    ends the set: the client reads up to there and gets the error with its next fetch.
    room: bytes to cut the set to, as before KIP-74, but not within the result of a first batch that fit in them.
    """
    out: list[bytes] = []
    unpacked = records = 0
    for batch in split(data):
        if (unpacked >= _ENOUGH_BYTES or records >= _ENOUGH_RECORDS) and any(out):
            return Down(b"".join(out)[:room], cut=True)
        try:
            converted = _down_batch(batch, magic, first_offset, limit)
        except RecordError:
            if not any(out):
                raise
            break
        if room is not None and len(batch) <= room and not any(out):
            room = max(room, len(converted.data))
        out.append(converted.data)
        unpacked += converted.unpacked
        records += converted.records
    return Down(b"".join(out)[:room])


def _down_batch(batch: memoryview, magic: int, first_offset: int, limit: int) -> _Converted:
    found = batch[MAGIC_AT]
    if found <= magic:
        return _Converted(bytes(batch))
    if found == 1:
        return _one_to_zero(batch, first_offset, limit)
    head = batch_v2.header(batch)
    if head.is_control:
        return _Converted(b"")
    if head.codec == codecs.ZSTD:
        raise RecordError(UNSUPPORTED_COMPRESSION_TYPE, "This client version does not support zstd")
    if head.num_records > codecs.WORKER_RECORDS:
        raise RecordError(MESSAGE_TOO_LARGE, f"{head.num_records} records are too many to convert")
    body = batch_v2.payload(batch, limit)
    records = batch_v2.walk(body, head)
    if not head.codec:
        records = (record for record in records if record[0] >= first_offset)
    appended = head.max_timestamp if head.timestamp_type else NO_TIMESTAMP
    built = message_sets.build(
        records, magic, codec=head.codec, timestamp_type=head.timestamp_type, append_time=appended
    )
    return _Converted(built, len(body), head.num_records)


def _one_to_zero(batch: memoryview, first_offset: int, limit: int) -> _Converted:
    (message,) = message_sets.messages(batch, check_crc=False)
    if not message.codec and message.offset < first_offset:
        return _Converted(b"")
    count = itertools.count()
    records = (record for record, _ in zip(message_sets.iterate(batch, limit, check_crc=False), count, strict=False))
    built = message_sets.build(records, 0, codec=message.codec, timestamp_type=CREATE_TIME)
    return _Converted(built, len(batch), next(count))
