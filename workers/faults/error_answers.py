"""The answer to a whole request with one error code, for every API, from the schemas of request and response.

The response has the error in each of its error code fields, at the top and in each element that the request names.
Lists of elements with an error follow the list of the request that has the same elements; other lists are empty.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from odradek.protocol import requests
from odradek.protocol.library import message_class
from odradek.protocol.responses import encoded
from odradek.workers.dispatch import refusals
from odradek.workers.dispatch.api import Api

_CODES = {"error_code", "partition_error_code"}
# What one element is called in requests and in responses.
_SAME = (
    {"name", "topic", "topic_name"},
    {"partition", "partition_index", "partition_id", "index"},
)
# Numbers whose absence is -1, where the schema's default is 0.
_ABSENT = {
    "base_offset", "committed_offset", "committed_leader_epoch", "end_offset", "generation_id", "high_watermark",
    "last_stable_offset", "leader_epoch", "leader_id", "log_append_time_ms", "log_start_offset", "low_watermark",
    "node_id", "offset", "producer_epoch", "producer_id", "timestamp",
}  # fmt: skip


def answer(row: Api, version: int, body: memoryview, error: int) -> bytes:
    """The body of the answer with this error to the request in `body`. What `Api.decode` raises for a malformed one."""
    if refusals.has_fields(row):
        return row.encode(version, refusals.refusal(row, row.decode(version, body), error))
    request = requests.decode(message_class(f"{row.name}Request"), version, body)
    return encoded(_filled(message_class(f"{row.name}Response"), request, version, error), version)


def _filled(kind: Any, source: Any, version: int, error: int) -> Any:
    """An object of the response: `source` is the corresponding part of the request, or one value of a list."""
    struct = kind._struct
    values: dict[str, Any] = {}
    named = hasattr(source, "_struct")
    for field in struct.fields.values():
        if not field.for_version_q(version) or field.tagged_field_q(version):
            continue
        if not named and not values.keys() - _CODES and field.name not in _CODES:
            values[field.name] = source  # the first field names the element
        else:
            values[field.name] = _value(field, source if named else None, version, error)
    return kind(**values)


def _value(field: Any, source: Any, version: int, error: int) -> Any:
    if field.name in _CODES:
        return error
    if field.is_struct_array():
        kind = field.data_class
        elements = _list_for(field.name, source) if _has_code(kind) else ()
        return [_filled(kind, element, version, error) for element in elements]
    if field.is_array():
        return []
    if field.is_struct():
        return _filled(field.data_class, source, version, error)
    return _copied(field, source, version)


def _list_for(name: str, source: Any) -> Any:
    """The list of the request that has the elements of the response's list `name`; empty if it has none, or null."""
    lists = (
        {one.name: getattr(source, one.name) for one in source._struct.fields.values() if one.is_array()}
        if source
        else {}
    )
    filled = [elements for elements in lists.values() if elements]
    return lists.get(name) or (filled[0] if filled else ())


@cache
def _has_code(kind: Any) -> bool:
    fields = list(kind._struct.fields.values())
    inner = [one.data_class for one in fields if one.is_struct_array()]
    return any(one.name in _CODES for one in fields) or any(map(_has_code, inner))


def _copied(field: Any, source: Any, version: int) -> Any:
    """The value of the request's field of that name, else one that says nothing."""
    there = {one.name for one in source._struct.fields.values()} if source is not None else set()
    names = next((names for names in _SAME if field.name in names), {field.name})
    for name in there & names:
        return getattr(source, name)
    if field.nullable_for_version_q(version):
        return None
    return -1 if field.name in _ABSENT else field.default
