"""The records of KRaft's metadata log that a take-over needs.

Layout of a record's value (Kafka's MetadataRecordSerde; its schemas: metadata/src/main/resources/common/metadata):

    frame version (1) | api key | record version, each an unsigned varint | fields in the flexible encoding

Control records of the log (the key has the type) have no frame: their fields begin with an i16 version.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from odradek.protocol import wire
from odradek.protocol.wire import WireError

FRAME_VERSION = 1
LEADER_CHANGE, KRAFT_VOTERS = 2, 6  # types of control records
_MOST_KEY = 28  # the last api key of Kafka 4.1; records without a reader here change nothing that a take-over needs


class MetadataRecordError(ValueError):
    """Bytes that are not a record of this log, or a record of an unknown version. Never contains their contents."""


class TopicRecord(NamedTuple):
    """A topic is created."""

    name: str
    id: bytes


class PartitionRecord(NamedTuple):
    """A partition is created."""

    topic_id: bytes
    partition: int
    replicas: list[int]
    isr: list[int]
    leader_epoch: int


class PartitionChangeRecord(NamedTuple):
    """A partition changes: None means unchanged; `elected` means that the leader epoch rises by one."""

    topic_id: bytes
    partition: int
    replicas: list[int] | None
    isr: list[int] | None
    elected: bool


class ConfigRecord(NamedTuple):
    """A config is set, or unset (None). Types are Kafka's ConfigResource types. Broker values may be secrets."""

    resource_type: int
    resource: str
    name: str
    value: str | None


class RemoveTopicRecord(NamedTuple):
    """A topic is deleted."""

    id: bytes


class ZkMigrationStateRecord(NamedTuple):
    """The state of a migration from ZooKeeper: 0 none, 1 under way, 2 copy not finished, 3 done."""

    state: int


class KeptRecord(NamedTuple):
    """State that only the KRaft log holds: a SCRAM "user", an "ACL" or a "quota", set or removed by its `key`."""

    kind: str
    key: bytes
    removed: bool


class TransactionRecord(NamedTuple):
    """Records between BEGIN and END are applied together; ABORT drops them (KIP-868)."""

    action: str


class UnknownRecord(NamedTuple):
    """A record that is unknown to Kafka 4.1."""

    api_key: int


Record = (
    TopicRecord
    | PartitionRecord
    | PartitionChangeRecord
    | ConfigRecord
    | RemoveTopicRecord
    | ZkMigrationStateRecord
    | KeptRecord
    | TransactionRecord
    | UnknownRecord
)
BEGIN, END, ABORT = "begin", "end", "abort"
PRE_MIGRATION = 2


class _Fields:
    """Fields of the flexible encoding, one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data = memoryview(data)
        self.at = 0

    def uvarint(self) -> int:
        value, self.at = wire.uvarint(self.data, self.at)
        return value

    def number(self, kind: str) -> int:
        (value,) = struct.unpack_from(">" + kind, self.data, self.at)
        self.at += struct.calcsize(">" + kind)
        return int(value)

    def uuid(self) -> bytes:
        return bytes.fromhex(f"{self.number('Q'):016x}{self.number('Q'):016x}")

    def nullable(self) -> str | None:
        value, self.at = wire.string(self.data, self.at, len(self.data), True)
        return None if value is None else value.decode()

    def string(self) -> str:
        value = self.nullable()
        if value is None:
            raise MetadataRecordError("a string is null that may not be")
        return value

    def ints(self) -> list[int]:
        length, self.at = wire.count(self.data, self.at, len(self.data), True)
        return [self.number("i") for _ in range(length)]

    def tags(self) -> dict[int, _Fields]:
        found, self.at = wire.tags(self.data, self.at, len(self.data))
        return {tag: _Fields(bytes(self.data[start:end])) for tag, start, end in found}

    def since(self, start: int) -> bytes:
        return bytes(self.data[start : self.at])


def _topic(fields: _Fields) -> Record:
    return TopicRecord(fields.string(), fields.uuid())


def _partition(fields: _Fields) -> Record:
    partition, topic_id = fields.number("i"), fields.uuid()
    replicas, isr, _removing, _adding = (fields.ints() for _ in range(4))
    _leader = fields.number("i")
    return PartitionRecord(topic_id, partition, replicas, isr, fields.number("i"))


def _partition_change(fields: _Fields) -> Record:
    partition, topic_id = fields.number("i"), fields.uuid()
    tags = fields.tags()
    isr, replicas = (tags[tag].ints() if tag in tags else None for tag in (0, 2))
    return PartitionChangeRecord(topic_id, partition, replicas, isr, elected=1 in tags)


def _config(fields: _Fields) -> Record:
    return ConfigRecord(fields.number("b"), fields.string(), fields.string(), fields.nullable())


def _remove_topic(fields: _Fields) -> Record:
    return RemoveTopicRecord(fields.uuid())


def _migration(fields: _Fields) -> Record:
    return ZkMigrationStateRecord(fields.number("b"))


def _user(removed: bool) -> Callable[[_Fields], Record]:
    def read(fields: _Fields) -> Record:
        start = fields.at
        fields.string()
        fields.number("b")
        return KeptRecord("user", fields.since(start), removed)

    return read


def _acl(removed: bool) -> Callable[[_Fields], Record]:
    return lambda fields: KeptRecord("ACL", fields.uuid(), removed)


def _quota(fields: _Fields) -> Record:
    start = fields.at
    for _ in range(fields.uvarint() - 1):
        fields.string()
        fields.nullable()
        fields.tags()
    fields.string()
    key = fields.since(start)
    fields.number("q")  # the value, a float64
    return KeptRecord("quota", key, bool(fields.number("b")))


_READERS: dict[int, tuple[int, Callable[[_Fields], Record]]] = {  # by api key: the newest version, the reader
    2: (0, _topic),
    3: (2, _partition),
    4: (0, _config),
    5: (2, _partition_change),
    9: (0, _remove_topic),
    11: (0, _user(removed=False)),
    14: (0, _quota),
    18: (0, _acl(removed=False)),
    19: (0, _acl(removed=True)),
    21: (0, _migration),
    22: (0, _user(removed=True)),
    23: (0, lambda fields: TransactionRecord(BEGIN)),
    24: (0, lambda fields: TransactionRecord(END)),
    25: (0, lambda fields: TransactionRecord(ABORT)),
}


def decode(value: bytes | None) -> Record | None:
    """The record in a value; None for a record that a take-over does not need. Raises MetadataRecordError."""
    try:
        return _decode(_Fields(value or b""))
    except (WireError, struct.error, IndexError, UnicodeDecodeError) as error:
        raise MetadataRecordError(f"a metadata record is not whole ({type(error).__name__})") from None


def _decode(fields: _Fields) -> Record | None:
    frame, api_key, version = fields.uvarint(), fields.uvarint(), fields.uvarint()
    if frame != FRAME_VERSION:
        raise MetadataRecordError(f"frame version {frame} of a metadata record; known is {FRAME_VERSION}")
    if api_key not in _READERS:
        return None if api_key <= _MOST_KEY else UnknownRecord(api_key)
    newest, read = _READERS[api_key]
    if version > newest:
        raise MetadataRecordError(f"version {version} of metadata record {api_key}; known are 0 to {newest}")
    return read(fields)


def voters(kind: int, value: bytes | None) -> int | None:
    """The number of voters in a control record of type `kind`; None when the record does not contain it."""
    fields = _Fields(value or b"")
    try:
        fields.number("h")
        if kind == LEADER_CHANGE:
            fields.number("i")
        return fields.uvarint() - 1 if kind in (LEADER_CHANGE, KRAFT_VOTERS) else None
    except (WireError, struct.error, IndexError):
        return None
