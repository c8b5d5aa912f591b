"""The records of `__consumer_offsets`, byte for byte as Apache Kafka writes them.

Each key and value starts with an int16 version; from version 4 on values are flexible (odradek.groups.fields).

    OffsetCommitKey   0-1  group, topic, partition
    OffsetCommitValue 0-4  offset i64, leader epoch i32 (3+), metadata, commit ts i64, expire ts i64 (1 only)
    GroupMetadataKey  2    group
    GroupMetadataValue 0-4 protocol type, generation i32, protocol?, leader?, state ts i64 (2+), members:
                           member id, instance id? (3+), client id, client host, rebalance ms i32 (1+),
                           session ms i32, subscription bytes, assignment bytes

This module writes keys 1 and 2 and value 3 (1 for a commit with an expiry of its own, from OffsetCommit v2-v4) and
reads all versions. A null value is a tombstone. Source: the JSON schemas in kafka-group-coordinator.jar.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from odradek.groups.fields import TOO_SHORT, Reader, RecordError, blob, string
from odradek.protocol.wire import I16, I32, I64

OFFSET_KEY = 1
GROUP_KEY = 2
_HIGHEST_VALUE = 4


class OffsetKey(NamedTuple):
    group: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    group: str


class OffsetValue(NamedTuple):
    """A committed offset; `expire_ms` is -1 when the broker's retention applies; timestamps are epoch ms."""

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
    """Java's String.length: UTF-16 code units; a character beyond the first 65,536 has two."""
    return len(text) if text.isascii() else len(text.encode("utf-16-be", "surrogatepass")) // 2


def java_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 code units, 32 bits, signed."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for unit in struct.unpack(f">{len(data) // 2}H", data):
        value = (value * 31 + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def partition_for(key: str, partitions: int) -> int:
    """The partition of a group in `__consumer_offsets`, or of a transactional id in `__transaction_state`.

    Kafka's abs returns 0 for the smallest int.
    """
    value = java_hash(key)
    return (0 if value == -(1 << 31) else abs(value)) % partitions


# -- writing ----------------------------------------------------------------------------------------------------


def offset_key(group: str, topic: str, partition: int) -> bytes:
    """The key of a committed offset."""
    return I16.pack(OFFSET_KEY) + string(group) + string(topic) + I32.pack(partition)


def group_key(group: str) -> bytes:
    """The key of a group's generation."""
    return I16.pack(GROUP_KEY) + string(group)


def offset_value(value: OffsetValue) -> bytes:
    """The value of a committed offset; a commit's own expiry needs version 1, which has no leader epoch."""
    metadata, commit = string(value.metadata), I64.pack(value.commit_ms)
    if value.expire_ms != -1:
        return b"".join((I16.pack(1), I64.pack(value.offset), metadata, commit, I64.pack(value.expire_ms)))
    return b"".join((I16.pack(3), I64.pack(value.offset), I32.pack(value.leader_epoch), metadata, commit))


def group_value(value: GroupValue) -> bytes:
    """The value of a group's generation with its members and their assignments."""
    head = (
        I16.pack(3),
        string(value.protocol_type),
        I32.pack(value.generation),
        string(value.protocol),
        string(value.leader),
        I64.pack(value.state_since_ms),
        I32.pack(len(value.members)),
    )
    return b"".join((*head, *map(_member, value.members)))


def _member(member: MemberValue) -> bytes:
    return b"".join(
        (
            string(member.member_id),
            string(member.instance_id),
            string(member.client_id),
            string(member.client_host),
            I32.pack(member.rebalance_timeout_ms),
            I32.pack(member.session_timeout_ms),
            blob(member.subscription),
            blob(member.assignment),
        )
    )


# -- reading ----------------------------------------------------------------------------------------------------


def decode_key(key: bytes | memoryview) -> OffsetKey | GroupKey | None:
    """The decoded key; None for versions that this broker does not use (KIP-848 and later groups, say)."""
    try:
        reader = Reader(key)
        version = reader.i16()
        if version == GROUP_KEY:
            return GroupKey(reader.string())
        if version in (0, OFFSET_KEY):
            return OffsetKey(reader.string(), reader.string(), reader.i32())
        return None
    except TOO_SHORT as error:
        raise RecordError(f"a key of __consumer_offsets ends too early: {error}") from None


def decode_offset_value(value: bytes | memoryview) -> OffsetValue:
    """A committed offset; RecordError for a version above 4 or a value that ends too early."""
    reader, version = _open_value(value)
    try:
        offset = reader.i64()
        epoch = reader.i32() if version >= 3 else -1
        metadata, commit = reader.string(), reader.i64()
        return OffsetValue(offset, epoch, metadata, commit, reader.i64() if version == 1 else -1)
    except TOO_SHORT as error:
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
    except TOO_SHORT as error:
        raise RecordError(f"a group value ends too early: {error}") from None


def _open_value(value: bytes | memoryview) -> tuple[Reader, int]:
    if len(value) < 2:
        raise RecordError("a value without a version")
    reader = Reader(value)
    version = reader.i16()
    if not 0 <= version <= _HIGHEST_VALUE:
        raise RecordError(f"value version {version}: only 0 to {_HIGHEST_VALUE} are known")
    reader.flexible = version >= 4
    return reader, version


def _read_member(reader: Reader, version: int) -> MemberValue:
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
    reader.tags()
    return member
