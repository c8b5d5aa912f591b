"""Records of Kafka's internal topics as text for `odradek dump-log`, in the words of its DumpLogSegments.

`__consumer_offsets`: JSON of type or version and data, fields named as in Kafka's schemas.
`__transaction_state`: key `transaction_metadata::transactionalId=…`, value a line of fields.
"""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

from odradek.groups import records

Text = tuple[str | None, str | None]

TRANSACTION_STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)


def offsets(offset: int, key: bytes | None, value: bytes | None) -> Text:
    """A record of `__consumer_offsets`."""
    try:
        known = records.decode_key(key or b"")
        if known is None:
            return f"Unknown record type {_version(key)} at offset {offset}, skipping.", None
        fields = _offset_key(known) if isinstance(known, records.OffsetKey) else {"group": known.group}
        return _json(type=str(_version(key)), data=fields), _offset_value(known, value)
    except (records.RecordError, struct.error) as problem:
        return f"Error at offset {offset}, skipping. {problem}", None


def _offset_key(key: records.OffsetKey) -> dict[str, Any]:
    return {"group": key.group, "topic": key.topic, "partition": key.partition}


def _offset_value(key: records.OffsetKey | records.GroupKey, value: bytes | None) -> str:
    if value is None:
        return "<DELETE>"
    version = _version(value)
    data = _commit(value, version) if isinstance(key, records.OffsetKey) else _group(value, version)
    return _json(version=str(version), data=data)


def _commit(value: bytes, version: int) -> dict[str, Any]:
    commit = records.decode_offset_value(value)
    fields: dict[str, Any] = {"offset": commit.offset}
    if version >= 3:
        fields["leaderEpoch"] = commit.leader_epoch
    fields |= {"metadata": commit.metadata, "commitTimestamp": commit.commit_ms}
    if version == 1:
        fields["expireTimestamp"] = commit.expire_ms
    return fields


def _group(value: bytes, version: int) -> dict[str, Any]:
    group = records.decode_group_value(value)
    fields: dict[str, Any] = {
        "protocolType": group.protocol_type,
        "generation": group.generation,
        "protocol": group.protocol,
        "leader": group.leader,
    }
    if version >= 2:
        fields["currentStateTimestamp"] = group.state_since_ms
    consumer = group.protocol_type == "consumer"
    return fields | {"members": [_member(member, version, consumer) for member in group.members]}


def _member(member: records.MemberValue, version: int, consumer: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {"memberId": member.member_id}
    if version >= 3:
        fields["groupInstanceId"] = member.instance_id
    fields |= {"clientId": member.client_id, "clientHost": member.client_host}
    if version >= 1:
        fields["rebalanceTimeout"] = member.rebalance_timeout_ms
    return fields | {
        "sessionTimeout": member.session_timeout_ms,
        "subscription": _embedded(member.subscription, subscription) if consumer else _base64(member.subscription),
        "assignment": _embedded(member.assignment, assignment) if consumer else _base64(member.assignment),
    }


def _embedded(data: bytes, decode: Any) -> Any:
    """What a consumer's client wrote; the bytes as they are when it wrote something else."""
    try:
        return decode(_Reader(data))
    except (struct.error, ValueError):
        return _base64(data)


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


# --- the consumers' embedded protocol (KIP-429, KIP-792, KIP-881) ---


class _Reader:
    """Numbers, strings and arrays of Kafka's plain (not flexible) encoding, one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def number(self, kind: str) -> int:
        (value,) = struct.unpack_from(">" + kind, self.data, self.at)
        self.at += struct.calcsize(">" + kind)
        return value

    def _take(self, length: int) -> bytes | None:
        if length < 0:
            return None
        if length > len(self.data) - self.at:
            raise ValueError(f"{length} bytes are wanted, {len(self.data) - self.at} are left")
        self.at += length
        return self.data[self.at - length : self.at]

    def string(self) -> str | None:
        data = self._take(self.number("h"))
        return None if data is None else data.decode()

    def blob(self) -> bytes | None:
        return self._take(self.number("i"))

    def many(self, read: Any) -> list[Any]:
        return [read() for _ in range(min(max(self.number("i"), 0), len(self.data)))]

    def int32(self) -> int:
        return self.number("i")

    def topic_partitions(self) -> dict[str, Any]:
        return {"topic": self.string(), "partitions": self.many(self.int32)}


def subscription(reader: _Reader) -> dict[str, Any]:
    version = reader.number("h")
    fields: dict[str, Any] = {"topics": reader.many(reader.string), "userData": _base64(reader.blob())}
    if version >= 1:
        fields["ownedPartitions"] = reader.many(reader.topic_partitions)
    if version >= 2:
        fields["generationId"] = reader.int32()
    if version >= 3:
        fields["rackId"] = reader.string()
    return fields


def assignment(reader: _Reader) -> dict[str, Any]:
    reader.number("h")
    return {"assignedPartitions": reader.many(reader.topic_partitions), "userData": _base64(reader.blob())}


# --- transactions ---


def transactions(offset: int, key: bytes | None, value: bytes | None) -> Text:
    """A record of `__transaction_state` (value version 0, which all Kafka brokers up to 3.9 write)."""
    try:
        reader = _Reader(key or b"")
        if (version := reader.number("h")) != 0:
            return f"unknown::version={version}", None
        return f"transaction_metadata::transactionalId={reader.string()}", _transaction(value)
    except (struct.error, ValueError) as problem:
        return f"Error at offset {offset}, skipping. {problem}", None


def _transaction(value: bytes | None) -> str:
    if value is None:
        return "<DELETE>"
    reader = _Reader(value)
    if (version := reader.number("h")) != 0:
        raise ValueError(f"a transaction of version {version}, known is 0")
    producer_id, epoch, timeout, state = (reader.number(kind) for kind in "qhib")
    topics = reader.many(reader.topic_partitions)
    partitions = ",".join(f"{topic['topic']}-{index}" for topic in topics for index in topic["partitions"])
    name = TRANSACTION_STATES[state] if 0 <= state < len(TRANSACTION_STATES) else str(state)
    return (
        f"producerId:{producer_id},producerEpoch:{epoch},state={name},partitions=[{partitions}],"
        f"txnLastUpdateTimestamp={reader.number('q')},txnTimeoutMs={timeout}"
    )


def _version(data: bytes | None) -> int:
    (version,) = struct.unpack_from(">h", data or b"")
    return version


def _json(**fields: Any) -> str:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
