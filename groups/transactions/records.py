"""The records of `__transaction_state`, byte for byte as Apache Kafka writes them.

    key    version i16 (0), transactional id (i16 length + UTF-8)
    value  version i16 (0 or 1), producer id i64, producer epoch i16, timeout ms i32, state i8,
           partitions (null when Empty): topic, partition ids i32…; last update ms i64, start ms i64
    v1     is flexible (varint lengths plus one) and has tags: 0 previous producer id i64, 1 next producer id i64,
           2 client transaction version i16

Version 0 is written, as by Kafka while the feature `transaction.version` is 0; both are read. A null value is a
tombstone. Source: TransactionLogKey.json and TransactionLogValue.json.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import groupby

from odradek.groups.records import RecordError, java_hash
from odradek.groups.transactions.states import NEVER_WRITTEN, State
from odradek.groups.transactions.transaction import Metadata, TopicPartition

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_HEAD = struct.Struct(">hqhib")
_TAIL = struct.Struct(">qq")
_PREVIOUS, _NEXT, _CLIENT_VERSION = range(3)


def partition_for(transactional_id: str, partitions: int) -> int:
    """The partition of `__transaction_state` that holds `transactional_id`; the smallest hash counts as 0."""
    value = java_hash(transactional_id)
    return (0 if value == -(1 << 31) else abs(value)) % partitions


# -- writing ----------------------------------------------------------------------------------------------------


def _string(text: str) -> bytes:
    data = text.encode("utf-8", "surrogateescape")
    return _I16.pack(len(data)) + data


def key(transactional_id: str) -> bytes:
    """The key of a transactional id's record."""
    return _I16.pack(0) + _string(transactional_id)


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
        return _I32.pack(-1)
    topics = [(topic, [index for _, index in rows]) for topic, rows in groupby(sorted(partitions), lambda tp: tp[0])]
    out = [_I32.pack(len(topics))]
    for topic, indexes in topics:
        out += _string(topic), struct.pack(f">i{len(indexes)}i", len(indexes), *indexes)
    return b"".join(out)


# -- reading ----------------------------------------------------------------------------------------------------


class _Reader:
    """Fields one after the other; struct.error or IndexError where the data ends too early."""

    def __init__(self, data: bytes, flexible: bool = False) -> None:
        self._data = data
        self._at = 0
        self._flexible = flexible

    def take(self, layout: struct.Struct) -> tuple:
        fields = layout.unpack_from(self._data, self._at)
        self._at += layout.size
        return fields

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def bytes_of(self, length: int) -> bytes:
        if not 0 <= length <= len(self._data) - self._at:
            raise RecordError(f"a field of {length} bytes does not fit the record")
        self._at += length
        return self._data[self._at - length : self._at]

    def string(self) -> str:
        length = self.varint() - 1 if self._flexible else self.take(_I16)[0]
        return self.bytes_of(length).decode("utf-8", "surrogateescape")

    def count(self) -> int:
        """An array's length, -1 for null."""
        return self.varint() - 1 if self._flexible else int(self.take(_I32)[0])

    def tags(self) -> dict[int, bytes]:
        if not self._flexible:
            return {}
        return {self.varint(): self.bytes_of(self.varint()) for _ in range(self.varint())}


def decode_key(data: bytes) -> str | None:
    """The transactional id; None for a version that is not ours to read. RecordError when cut."""
    try:
        (version,) = _I16.unpack_from(data)
        return _Reader(data[2:]).string() if version == 0 else None
    except struct.error as error:
        raise RecordError(f"a key of __transaction_state ends too early: {error}") from None


def decode_value(data: bytes) -> Metadata:
    """A transactional id's state; RecordError for an unknown version or state, or when cut."""
    try:
        version, producer_id, epoch, timeout_ms, state = _HEAD.unpack_from(data)
        if version not in (0, 1):
            raise RecordError(f"value version {version}: only 0 and 1 are known")
        if state in NEVER_WRITTEN:
            raise RecordError(f"state {State(state).title} is never written")
        reader = _Reader(data[_HEAD.size :], version == 1)
        partitions = frozenset(_read_partitions(reader))
        updated_ms, started_ms = reader.take(_TAIL)
        tags = reader.tags()
        return Metadata(
            producer_id, epoch, timeout_ms, State(state), partitions, started_ms, updated_ms,
            previous_producer_id=_tag(tags, _PREVIOUS, _I64, -1),
            next_producer_id=_tag(tags, _NEXT, _I64, -1),
            client_version=_tag(tags, _CLIENT_VERSION, _I16, 0),
        )  # fmt: skip
    except (struct.error, IndexError) as error:
        raise RecordError(f"a value of __transaction_state ends too early: {error}") from None
    except ValueError as error:
        raise RecordError(str(error)) from None


def _read_partitions(reader: _Reader) -> Iterator[TopicPartition]:
    for _ in range(reader.count()):
        topic = reader.string()
        for _ in range(reader.count()):
            yield topic, reader.take(_I32)[0]
        reader.tags()


def _tag(tags: dict[int, bytes], tag: int, layout: struct.Struct, default: int) -> int:
    return int(layout.unpack(tags[tag])[0]) if tag in tags else default
