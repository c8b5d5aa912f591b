"""A well-formed request for any API and version, filled in from kafka-python's schemas by the names of fields."""

from __future__ import annotations

import uuid
from typing import Any

from .batches import batch, message

Values = dict[str, Any]

# Values of fields wherever they appear; other fields have the default of their schema.
COMMON: Values = {
    "acks": -1,
    "timeout_ms": 10_000,
    "max_wait_ms": 0,
    "max_bytes": 1_000_000,
    "partition_max_bytes": 1_000_000,
    "timestamp": -1,
    "max_num_offsets": 1,
    "replica_id": -1,
    "session_epoch": -1,
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "transaction_timeout_ms": 60_000,
    "protocol_type": "consumer",
    "generation_id": -1,
    "generation_id_or_member_epoch": -1,
    "member_id": "",
    "member_epoch": -1,
    "metadata": b"",
    "commit_timestamp": -1,
    "retention_time_ms": -1,
    "replication_factor": 1,
    "num_partitions": 1,
    "assignments": [],
    "configs": [],
    "count": 1,
    "offset": 0,
    "fetch_offset": 0,
    "current_leader_epoch": -1,
    "last_fetched_epoch": -1,
    "key_type": 0,
    "resource_type": 2,
    "config_names": None,
    "configuration_keys": None,
    "validate_only": True,
    "client_software_name": "harness",
    "client_software_version": "1.0",
    "resource_type_filter": 2,
    "pattern_type_filter": 3,
    "operation": 1,
    "permission_type": 1,
    "response_partition_limit": 100,
    "cursor": None,
    "forgotten_topics_data": [],
    "endpoint_type": 1,
    "states_filter": [],
    "types_filter": [],
    "transactional_id": None,
    "producer_id": -1,
    "producer_epoch": -1,
}


def request(request_class: Any, version: int, topic: str, number: uuid.UUID, group: str) -> Any:
    """`request_class` at `version`, about `topic` (whose id is `number`) and `group`."""
    key = request_class.API_KEY
    values = {**COMMON, **_about(key, version, topic, number, group)}
    return request_class[version](**_fields(request_class._struct.fields, version, values))


def _about(key: int, version: int, topic: str, number: uuid.UUID, group: str) -> Values:
    values: Values = {"topic": topic, "topic_id": number, "topics_names": [topic], "group_id": group}
    values |= {"name": topic, "key": group, "resource_name": topic, "topic_names": [topic]}
    values |= {"groups_names": [group], "coordinator_keys": [group], "partitions": [0], "partition_indexes": [0]}
    values["records"] = batch([b"x"]) if version > 2 else message(b"x", magic=version // 2)
    if key == 11:  # JoinGroup's protocols and GroupMembership's names are no topics
        values["name"] = "range"
    if key in (19, 20):  # made for this call, or not there: neither may harm the topic in use
        values["name"] = f"made-{key}-{version}-{uuid.uuid4().hex[:8]}"
        values |= {"topic_names": [values["name"]], "topic_id": uuid.UUID(int=0)}
    if key == 3:
        values["topic_id"] = uuid.UUID(int=0)  # name and id together are an error
    if key in (24, 25, 26, 28):
        values["transactional_id"] = f"tx-{group}"
    if key == 42:
        values["groups_names"] = [f"none-{uuid.uuid4().hex[:8]}"]
    if key == 33:
        values |= {"configs": [], "resource_type": 2}
    return values


def _fields(fields: Any, version: int, values: Values) -> Values:
    return {
        name: _value(field, version, values)
        for name, field in fields.items()
        if field.for_version_q(version) and not field.tagged_field_q(version)
    }


def _value(field: Any, version: int, values: Values) -> Any:
    if field.is_struct_array():
        if field.name in values and values[field.name] in ([], None):
            return values[field.name]
        return [field.data_class(version=version, **_fields(field.fields, version, values))]
    if field.is_struct():
        if values.get(field.name, field) is None:
            return None
        return field.data_class(version=version, **_fields(field.fields, version, values))
    if field.name in values:
        return values[field.name]
    return field.default


def codes(response: Any) -> list[int]:
    """Every error code anywhere in a response."""
    found: list[int] = []
    _collect(response.to_dict(), found)
    return found


def _collect(part: Any, found: list[int]) -> None:
    if isinstance(part, dict):
        for name, value in part.items():
            if name == "error_code":
                found.append(value)
            _collect(value, found)
    elif isinstance(part, list):
        for value in part:
            _collect(value, found)
