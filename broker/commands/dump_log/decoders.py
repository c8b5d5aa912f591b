"""Records of Kafka's internal topics as text for `odradek dump-log`, in the format of Kafka's DumpLogSegments.

`__consumer_offsets`: JSON of type or version and data, with the field names of Kafka's schemas.
`__transaction_state`: key `transaction_metadata::transactionalId=…`, value a line of fields.
"""

from __future__ import annotations

import base64
import json
import struct
from functools import partial
from typing import Any

from odradek.groups import records
from odradek.groups.fields import Reader, RecordError
from odradek.groups.transactions import records as transaction_records

Text = tuple[str | None, str | None]


def offsets(offset: int, key: bytes | None, value: bytes | None) -> Text:
    """A record of `__consumer_offsets`."""
    try:
        known = records.decode_key(key or b"")
        if known is None:
            return f"Unknown record type {_version(key)} at offset {offset}, skipping.", None
        fields = _offset_key(known) if isinstance(known, records.OffsetKey) else {"group": known.group}
        return _json(type=str(_version(key)), data=fields), _offset_value(known, value)
    except (RecordError, struct.error) as problem:
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
    """The decoded data of a consumer client, or the raw bytes when they have another format."""
    try:
        return decode(Reader(data, errors="strict"))
    except (struct.error, ValueError):
        return _base64(data)


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


# --- the consumers' embedded protocol (KIP-429, KIP-792, KIP-881), which is not flexible ---


def _many(reader: Reader, read: Any) -> list[Any]:
    return [read() for _ in range(reader.count())]


def _topic_partitions(reader: Reader) -> dict[str, Any]:
    return {"topic": reader.nullable(), "partitions": _many(reader, reader.i32)}


def subscription(reader: Reader) -> dict[str, Any]:
    version = reader.i16()
    fields: dict[str, Any] = {
        "topics": _many(reader, reader.nullable), "userData": _base64(reader.nullable_blob()),
    }  # fmt: skip
    if version >= 1:
        fields["ownedPartitions"] = _many(reader, partial(_topic_partitions, reader))
    if version >= 2:
        fields["generationId"] = reader.i32()
    if version >= 3:
        fields["rackId"] = reader.nullable()
    return fields


def assignment(reader: Reader) -> dict[str, Any]:
    reader.i16()
    return {
        "assignedPartitions": _many(reader, partial(_topic_partitions, reader)),
        "userData": _base64(reader.nullable_blob()),
    }


# --- transactions ---


def transactions(offset: int, key: bytes | None, value: bytes | None) -> Text:
    """A record of `__transaction_state`."""
    try:
        name = transaction_records.decode_key(key or b"")
        if name is None:
            return f"unknown::version={_version(key)}", None
        return f"transaction_metadata::transactionalId={name}", _transaction(value)
    except ValueError as problem:
        return f"Error at offset {offset}, skipping. {problem}", None


def _transaction(value: bytes | None) -> str:
    if value is None:
        return "<DELETE>"
    known = transaction_records.decode_value(value)
    partitions = ",".join(f"{topic}-{index}" for topic, index in sorted(known.partitions))
    return (
        f"producerId:{known.producer_id},producerEpoch:{known.epoch},state={known.state.title},"
        f"partitions=[{partitions}],txnLastUpdateTimestamp={known.updated_ms},txnTimeoutMs={known.timeout_ms}"
    )


def _version(data: bytes | None) -> int:
    version: int = struct.unpack_from(">h", data or b"")[0]
    return version


def _json(**fields: Any) -> str:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
