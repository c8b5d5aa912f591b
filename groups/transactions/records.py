"""The records of `__transaction_state`, byte for byte as Apache Kafka writes them.

    key    version i16 (0), transactional id
    value  version i16 (0 or 1), producer id i64, producer epoch i16, timeout ms i32, state i8,
           partitions (null when Empty): topic, partition ids i32…; last update ms i64, start ms i64
    v1     is flexible (odradek.groups.fields) and has tags: 0 previous producer id i64, 1 next producer id i64,
           2 client transaction version i16

This module writes version 0, as Kafka does while the feature `transaction.version` is 0, and reads both. A null value
is a tombstone. Source: TransactionLogKey.json and TransactionLogValue.json.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import groupby

from odradek.groups.fields import TOO_SHORT, Reader, RecordError, string
from odradek.groups.transactions.states import NEVER_WRITTEN, State
from odradek.groups.transactions.transaction import Metadata, TopicPartition
from odradek.protocol.wire import I16, I32, I64

_HEAD = struct.Struct(">hqhib")
_TAIL = struct.Struct(">qq")
_PREVIOUS, _NEXT, _CLIENT_VERSION = range(3)


# -- writing ----------------------------------------------------------------------------------------------------


def key(transactional_id: str) -> bytes:
    """The key of a transactional id's record."""
    return I16.pack(0) + string(transactional_id)


def value(metadata: Metadata) -> bytes:
    """A transactional id's state."""
    m = metadata
    partitions = None if m.state is State.EMPTY else m.partitions
    return b"".join(
        (
            _HEAD.pack(0, m.producer_id, m.epoch, m.timeout_ms, m.state),
            _partitions(partitions),
            _TAIL.pack(m.updated_ms, m.started_ms),
        )
    )


def _partitions(partitions: Iterable[TopicPartition] | None) -> bytes:
    if partitions is None:
        return I32.pack(-1)
    topics = [(topic, [index for _, index in rows]) for topic, rows in groupby(sorted(partitions), lambda tp: tp[0])]
    out = [I32.pack(len(topics))]
    for topic, indexes in topics:
        out += string(topic), struct.pack(f">i{len(indexes)}i", len(indexes), *indexes)
    return b"".join(out)


# -- reading ----------------------------------------------------------------------------------------------------


def decode_key(data: bytes) -> str | None:
    """The transactional id; None for an unknown version. RecordError when truncated."""
    try:
        (version,) = I16.unpack_from(data)
        return Reader(data[2:]).string() if version == 0 else None
    except TOO_SHORT as error:
        raise RecordError(f"a key of __transaction_state ends too early: {error}") from None


def decode_value(data: bytes) -> Metadata:
    """A transactional id's state; RecordError for an unknown version or state, or when truncated."""
    try:
        version, producer_id, epoch, timeout_ms, state = _HEAD.unpack_from(data)
        if version not in (0, 1):
            raise RecordError(f"value version {version}: only 0 and 1 are known")
        if state in NEVER_WRITTEN:
            raise RecordError(f"state {State(state).title} is never written")
        reader = Reader(data[_HEAD.size :], version == 1)
        partitions = frozenset(_read_partitions(reader))
        updated_ms, started_ms = reader.take(_TAIL)
        tags = reader.tags()
        return Metadata(
            producer_id, epoch, timeout_ms, State(state), partitions, started_ms, updated_ms,
            previous_producer_id=_tag(tags, _PREVIOUS, I64, -1),
            next_producer_id=_tag(tags, _NEXT, I64, -1),
            client_version=_tag(tags, _CLIENT_VERSION, I16, 0),
        )  # fmt: skip
    except TOO_SHORT as error:
        raise RecordError(f"a value of __transaction_state ends too early: {error}") from None
    except ValueError as error:
        raise RecordError(str(error)) from None


def _read_partitions(reader: Reader) -> Iterator[TopicPartition]:
    for _ in range(reader.count()):
        topic = reader.string()
        for _ in range(reader.count()):
            yield topic, reader.i32()
        reader.tags()


def _tag(tags: dict[int, bytes], tag: int, layout: struct.Struct, default: int) -> int:
    return int(layout.unpack(tags[tag])[0]) if tag in tags else default
