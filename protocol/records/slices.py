"""The records of a batch of magic 2 in place, for rewriting a batch with only some of its records.

Compaction keeps some records of a batch and drops the others. Offset and timestamp deltas count from the batch's
base, which stays, so a kept record is copied unchanged; only a new base timestamp (KIP-534) changes deltas.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from odradek.protocol.batch import CONTROL, DELETE_HORIZON, NO_TIMESTAMP, TIMESTAMP_TYPE, TRANSACTIONAL
from odradek.protocol.errors import INVALID_RECORD
from odradek.protocol.records import batch_v2, codecs, varint
from odradek.protocol.records.batch_v2 import Header
from odradek.protocol.records.errors import RecordError


class Slice(NamedTuple):
    """One record: body[start:end] including its length; `after` is the end of its timestamp delta."""

    start: int
    end: int
    content: int  # the record's start after its length
    after: int
    offset: int
    timestamp_delta: int
    key: bytes | None
    has_value: bool


def slices(body: bytes, head: Header) -> Iterator[Slice]:
    """The records in `body`, the uncompressed section of a batch; RecordError INVALID_RECORD if it is malformed.

    Values and headers are not read.
    """
    position, size, decode, base, signed = 0, len(body), varint.decode, head.base_offset, varint.ONE_BYTE
    new = tuple.__new__
    try:
        # Varints of one byte are decoded in place: a call for each would double the time of the loop.
        for _ in range(head.num_records):
            start = position
            n = body[start]
            length, content = (signed[n], start + 1) if n < 128 else decode(body, start)
            position = content + length
            if position > size or length < 6:
                raise RecordError(INVALID_RECORD, f"A record of {length} bytes does not fit into its batch")
            n = body[content + 1]
            timestamp_delta, after = (signed[n], content + 2) if n < 128 else decode(body, content + 1)
            n = body[after]
            offset_delta, at = (signed[n], after + 1) if n < 128 else decode(body, after)
            n = body[at]
            key_size, at = (signed[n], at + 1) if n < 128 else decode(body, at)
            key = None
            if key_size >= 0:
                key, at = body[at : at + key_size], at + key_size
            if at >= position:
                raise RecordError(INVALID_RECORD, f"A record of {length} bytes ends before its value")
            has_value = not body[at] & 1  # a negative length: null
            yield new(Slice, (start, position, content, after, base + offset_delta, timestamp_delta, key, has_value))
    except IndexError:
        raise RecordError(INVALID_RECORD, "The records end before their declared count") from None


def with_records(head: Header, body: bytes, kept: list[Slice], horizon: int | None = None) -> bytes:
    """The batch of `head` with only the records `kept` of its `body`; at least one.

    Base offset, last offset and producer fields stay. `horizon` (ms): set the delete horizon, which replaces the base
    timestamp, so that all deltas change. Errors as codecs.compress.
    """
    attributes, base_timestamp = head.attributes, head.base_timestamp
    if horizon is not None:
        attributes, base_timestamp = attributes | DELETE_HORIZON, horizon
    shift = head.base_timestamp - base_timestamp
    content = b"".join(_moved(body, kept, shift) if shift else (body[one.start : one.end] for one in kept))
    highest = head.max_timestamp
    if not attributes & TIMESTAMP_TYPE:
        highest = max(head.base_timestamp + one.timestamp_delta for one in kept)
    span = batch_v2.RecordsSpan(head.base_offset, head.last_offset_delta, base_timestamp, highest, len(kept))
    return batch_v2.assemble(codecs.compress(head.codec, content, None), span, attributes, **_producer(head))


def _moved(body: bytes, kept: Iterable[Slice], shift: int) -> Iterator[bytes]:
    """The records with `shift` added to their timestamp deltas."""
    for one in kept:
        delta = varint.encode(one.timestamp_delta + shift)
        yield varint.encode(1 + len(delta) + one.end - one.after)
        yield body[one.content : one.content + 1]
        yield delta
        yield body[one.after : one.end]


def emptied(head: Header) -> bytes:
    """The batch of `head` without records, uncompressed: it still has its producer's last sequence and offset."""
    kept = TIMESTAMP_TYPE | TRANSACTIONAL | CONTROL
    times = (NO_TIMESTAMP, head.max_timestamp)
    span = batch_v2.RecordsSpan(head.base_offset, head.last_offset_delta, *times, 0)
    return batch_v2.assemble(b"", span, head.attributes & kept, **_producer(head))


def _producer(head: Header) -> dict[str, int]:
    return {
        "producer_id": head.producer_id,
        "producer_epoch": head.producer_epoch,
        "base_sequence": head.base_sequence,
        "leader_epoch": head.leader_epoch,
    }
