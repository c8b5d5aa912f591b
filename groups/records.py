"""The records of `__consumer_offsets`, byte for byte as Apache Kafka writes them.

Each key and value starts with an int16 version. Strings are int16 length + UTF-8 (-1: null), bytes are int32
length + data, all big-endian; from version 4 on values are flexible (varint lengths plus one, tagged fields).

    OffsetCommitKey   0-1  group, topic, partition
    OffsetCommitValue 0-4  offset i64, leader epoch i32 (3+), metadata, commit ts i64, expire ts i64 (1 only)
    GroupMetadataKey  2    group
    GroupMetadataValue 0-4 protocol type, generation i32, protocol?, leader?, state ts i64 (2+), members:
                           member id, instance id? (3+), client id, client host, rebalance ms i32 (1+),
                           session ms i32, subscription bytes, assignment bytes

Written are key 1 and 2 and value 3 (1 for a commit with an expiry of its own, as of OffsetCommit v2-v4); all
versions are read. A null value is a tombstone. Source: the JSON schemas in kafka-group-coordinator.jar.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

OFFSET_KEY = 1
GROUP_KEY = 2
_HIGHEST_VALUE = 4
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")


class RecordError(ValueError):
    """A record that this version of the format does not explain."""


class OffsetKey(NamedTuple):
    group: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    group: str


class OffsetValue(NamedTuple):
    """A committed offset; `expire_ms` is -1 when the broker's retention decides, timestamps are epoch ms."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = -1


class MemberValue(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupValue(NamedTuple):
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_since_ms: int
    members: tuple[MemberValue, ...]


def java_length(text: str) -> int:
    """Java's String.length: UTF-16 code units, of which a character beyond the first 65,536 has two."""
    return len(text) if text.isascii() else len(text.encode("utf-16-be", "surrogatepass")) // 2


def java_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 code units, 32 bits, signed."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for unit in struct.unpack(f">{len(data) // 2}H", data):
        value = (value * 31 + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def partition_for(group: str, partitions: int) -> int:
    """The partition of `__consumer_offsets` that holds `group`; Kafka's abs makes the smallest int 0."""
    value = java_hash(group)
    return (0 if value == -(1 << 31) else abs(value)) % partitions


# -- writing ----------------------------------------------------------------------------------------------------


def _string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    data = text.encode("utf-8", "surrogateescape")
    return _I16.pack(len(data)) + data


def _bytes(data: bytes) -> bytes:
    return _I32.pack(len(data)) + data


def offset_key(group: str, topic: str, partition: int) -> bytes:
    """The key of a committed offset."""
    return _I16.pack(OFFSET_KEY) + _string(group) + _string(topic) + _I32.pack(partition)


def group_key(group: str) -> bytes:
    """The key of a group's generation."""
    return _I16.pack(GROUP_KEY) + _string(group)


def offset_value(value: OffsetValue) -> bytes:
    """The value of a committed offset; an expiry of its own needs version 1, which has no leader epoch."""
    metadata, commit = _string(value.metadata), _I64.pack(value.commit_ms)
    if value.expire_ms != -1:
        return b"".join((_I16.pack(1), _I64.pack(value.offset), metadata, commit, _I64.pack(value.expire_ms)))
    return b"".join((_I16.pack(3), _I64.pack(value.offset), _I32.pack(value.leader_epoch), metadata, commit))


def group_value(value: GroupValue) -> bytes:
    """The value of a group's generation with its members and their assignments."""
    head = (
        _I16.pack(3),
        _string(value.protocol_type),
        _I32.pack(value.generation),
        _string(value.protocol),
        _string(value.leader),
        _I64.pack(value.state_since_ms),
        _I32.pack(len(value.members)),
    )
    return b"".join((*head, *map(_member, value.members)))


def _member(member: MemberValue) -> bytes:
    return b"".join(
        (
            _string(member.member_id),
            _string(member.instance_id),
            _string(member.client_id),
            _string(member.client_host),
            _I32.pack(member.rebalance_timeout_ms),
            _I32.pack(member.session_timeout_ms),
            _bytes(member.subscription),
            _bytes(member.assignment),
        )
    )


# -- reading ----------------------------------------------------------------------------------------------------


class _Reader:
    """A cursor over one key or value; `flexible` switches strings, bytes and arrays to varint lengths."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = memoryview(data)
        self._at = 0
        self.flexible = False

    def _number(self, kind: struct.Struct) -> int:
        (value,) = kind.unpack_from(self._data, self._at)
        self._at += kind.size
        return value

    def i16(self) -> int:
        return self._number(_I16)

    def i32(self) -> int:
        return self._number(_I32)

    def i64(self) -> int:
        return self._number(_I64)

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def _take(self, length: int) -> bytes:
        if not 0 <= length <= len(self._data) - self._at:
            raise RecordError(f"a field of {length} bytes does not fit the record")
        self._at += length
        return bytes(self._data[self._at - length : self._at])

    def nullable(self) -> str | None:
        length = self.varint() - 1 if self.flexible else self.i16()
        return None if length < 0 else self._take(length).decode("utf-8", "surrogateescape")

    def string(self) -> str:
        return self.nullable() or ""

    def blob(self) -> bytes:
        return self._take(self.count())

    def count(self) -> int:
        return self.varint() - 1 if self.flexible else self.i32()

    def skip_tags(self) -> None:
        if self.flexible:
            for _ in range(self.varint()):
                self.varint()
                self._take(self.varint())


def decode_key(key: bytes | memoryview) -> OffsetKey | GroupKey | None:
    """The key's meaning; None for versions that are not ours to read (KIP-848 and later groups, say)."""
    try:
        reader = _Reader(key)
        version = reader.i16()
        if version == GROUP_KEY:
            return GroupKey(reader.string())
        if version in (0, OFFSET_KEY):
            return OffsetKey(reader.string(), reader.string(), reader.i32())
        return None
    except (struct.error, IndexError) as error:
        raise RecordError(f"a key of __consumer_offsets ends too early: {error}") from None


def decode_offset_value(value: bytes | memoryview) -> OffsetValue:
    """A committed offset; RecordError for a version above 4 or a value that ends too early."""
    reader, version = _open_value(value)
    try:
        offset = reader.i64()
        epoch = reader.i32() if version >= 3 else -1
        metadata, commit = reader.string(), reader.i64()
        return OffsetValue(offset, epoch, metadata, commit, reader.i64() if version == 1 else -1)
    except (struct.error, IndexError) as error:
        raise RecordError(f"an offset value ends too early: {error}") from None


def decode_group_value(value: bytes | memoryview) -> GroupValue:
    """A group's generation; RecordError for a version above 4 or a value that ends too early."""
    reader, version = _open_value(value)
    try:
        kind, generation = reader.string(), reader.i32()
        protocol, leader = reader.nullable(), reader.nullable()
        since = reader.i64() if version >= 2 else -1
        members = tuple(_read_member(reader, version) for _ in range(reader.count()))
        return GroupValue(kind, generation, protocol, leader, since, members)
    except (struct.error, IndexError) as error:
        raise RecordError(f"a group value ends too early: {error}") from None


def _open_value(value: bytes | memoryview) -> tuple[_Reader, int]:
    if len(value) < 2:
        raise RecordError("a value without a version")
    reader = _Reader(value)
    version = reader.i16()
    if not 0 <= version <= _HIGHEST_VALUE:
        raise RecordError(f"value version {version}: only 0 to {_HIGHEST_VALUE} are known")
    reader.flexible = version >= 4
    return reader, version


def _read_member(reader: _Reader, version: int) -> MemberValue:
    member_id = reader.string()
    instance_id = reader.nullable() if version >= 3 else None
    client_id, client_host = reader.string(), reader.string()
    rebalance = reader.i32() if version >= 1 else -1
    session = reader.i32()
    member = MemberValue(
        member_id,
        instance_id,
        client_id,
        client_host,
        rebalance if version >= 1 else session,
        session,
        reader.blob(),
        reader.blob(),
    )
    reader.skip_tags()
    return member
