"""Batches and records as lines of text, in the format of Kafka's DumpLogSegments."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from struct import pack

from odradek.protocol.batch import (
    COMPRESSION,
    CONTROL,
    CRC_START,
    DELETE_HORIZON,
    OLD_CRC_START,
    TIMESTAMP_TYPE,
    TRANSACTIONAL,
)
from odradek.protocol.crc import crc32c
from odradek.protocol.records import batch_v2, control, message_sets
from odradek.protocol.records.errors import RecordError
from odradek.storage.producers.producer_state import next_sequence
from odradek.storage.segment.scan import Batch

CODECS = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
CONTROL_TYPES = {2: "LEADER_CHANGE", 3: "SNAPSHOT_HEADER", 4: "SNAPSHOT_FOOTER", 5: "KRAFT_VERSION", 6: "KRAFT_VOTERS"}

# Returns the text to print for a record's (key, value), each None to print nothing.
RecordDecoder = Callable[[int, bytes | None, bytes | None], tuple[str | None, str | None]]


def text_decoder(offset: int, key: bytes | None, value: bytes | None) -> tuple[str | None, str | None]:
    """Keys and values as UTF-8."""
    return _text(key), _text(value)


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")


def batch_line(batch: Batch, payload: bytes) -> str:
    """The line of one batch; `payload` is the whole batch."""
    return (
        f"{_batch_v2(batch) if batch.magic == 2 else f'offset: {batch.last_offset}'} position: {batch.position} "
        f"{timestamp_type(batch)}: {batch.max_timestamp} size: {batch.size} magic: {batch.magic} "
        f"compresscodec: {CODECS.get(batch.attributes & COMPRESSION, 'unknown')} crc: {batch.crc} "
        f"isvalid: {_java(_is_valid(batch, payload))}"
    )


def _batch_v2(batch: Batch) -> str:
    last = next_sequence(batch.base_sequence, batch.last_offset_delta) if batch.base_sequence >= 0 else -1
    horizon = f"OptionalLong[{batch.base_timestamp}]" if batch.attributes & DELETE_HORIZON else "OptionalLong.empty"
    return (
        f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} count: {batch.records} "
        f"baseSequence: {batch.base_sequence} lastSequence: {last} producerId: {batch.producer_id} "
        f"producerEpoch: {batch.producer_epoch} partitionLeaderEpoch: {batch.leader_epoch} "
        f"isTransactional: {_java(batch.attributes & TRANSACTIONAL)} isControl: {_java(batch.attributes & CONTROL)} "
        f"deleteHorizonMs: {horizon}"
    )


def timestamp_type(batch: Batch) -> str:
    if batch.magic == 0:
        return "NoTimestampType"
    return "LogAppendTime" if batch.attributes & TIMESTAMP_TYPE else "CreateTime"


def _is_valid(batch: Batch, payload: bytes) -> bool:
    if batch.magic == 2:
        return crc32c(memoryview(payload)[CRC_START:]) == batch.crc
    return zlib.crc32(memoryview(payload)[OLD_CRC_START:]) == batch.crc


def _java(value: object) -> str:
    return "true" if value else "false"


def record_lines(
    batch: Batch, payload: bytes, decoder: RecordDecoder | None, *, with_metadata: bool
) -> Iterator[tuple[int | None, str]]:
    """(offset, line) of each record; (None, why) when the rest of the batch cannot be decoded.

    With a `decoder` the line has the decoded key and payload, except for control records.
    """
    try:
        records = _records_v2(batch, payload) if batch.magic == 2 else _records_legacy(batch, payload)
        for offset, metadata, key, value in records:
            line = f"| {metadata}" if with_metadata else ""
            if decoder is not None and not batch.attributes & CONTROL:
                line += _contents(*decoder(offset, key, value), first=not with_metadata)
            yield offset, line
    except RecordError as problem:
        yield None, f"batch at byte {batch.position}, offset {batch.base_offset}: {problem}"


def _contents(key: str | None, value: str | None, first: bool) -> str:
    """Key and payload. As in Kafka, a line that begins with them has a bar before a key, not before a payload."""
    key_text = "" if key is None else f"{'| ' if first else ' '}key: {key}"
    return key_text + ("" if value is None else f" payload: {value}")


_Line = tuple[int, str, bytes | None, bytes | None]


def _records_v2(batch: Batch, payload: bytes) -> Iterator[_Line]:
    for offset, timestamp, key, value, headers in batch_v2.iterate(payload):
        sequence = next_sequence(batch.base_sequence, offset - batch.base_offset) if batch.base_sequence >= 0 else -1
        header_keys = ",".join(name.decode("utf-8", "replace") for name, _ in headers)
        line = f"{_sizes(batch, offset, timestamp, key, value)} sequence: {sequence} headerKeys: [{header_keys}]"
        if batch.attributes & CONTROL:
            line += _control(key, payload)
        yield offset, line, key, value


def _sizes(batch: Batch, offset: int, timestamp: int, key: bytes | None, value: bytes | None) -> str:
    key_size, value_size = (-1 if data is None else len(data) for data in (key, value))
    kind = timestamp_type(batch)
    return f"offset: {offset} {kind}: {timestamp} keySize: {key_size} valueSize: {value_size}"


def _control(key: bytes | None, payload: bytes) -> str:
    kind = control.read_key(key)
    if kind in (control.ABORT, control.COMMIT):
        name = "COMMIT" if kind == control.COMMIT else "ABORT"
        return f" endTxnMarker: {name} coordinatorEpoch: {control.read_marker(payload)[1]}"
    return f" controlType: {CONTROL_TYPES.get(kind, 'UNKNOWN')}({kind})"


def _records_legacy(batch: Batch, payload: bytes) -> Iterator[_Line]:
    """Messages of magic 0 or 1. The bracket after the checksum is Kafka's own; scripts may look for it."""
    for wrapper in message_sets.messages(payload):
        for message in message_sets.unwrap(wrapper) if wrapper.codec else (wrapper,):
            line = _sizes(batch, message.offset, message.timestamp, message.key, message.value)
            yield message.offset, f"{line} isValid: true crc: {_crc(message)}}}", message.key, message.value


def _crc(message: message_sets.Message) -> int:
    """A message's checksum, computed from its parts: the reader has verified that it matches."""
    stamp = pack(">q", message.timestamp) if message.magic else b""
    body = pack(">bb", message.magic, message.attributes) + stamp
    for data in (message.key, message.value):
        body += pack(">i", -1 if data is None else len(data)) + (data or b"")
    return zlib.crc32(body)
