"""The answer with one error to any request: a client can read it, and finds the error at all that it asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from odradek.protocol import requests
from odradek.protocol.errors import Error
from odradek.protocol.library import message_class
from odradek.workers.apis import table
from odradek.workers.dispatch import refusals
from odradek.workers.faults import error_answers

STRICT = (18, 38, 39, 40, 41)  # whose responses the library reads as version 0, or does not have
NO_ID = UUID(int=0)
PRODUCE = 0  # workers.faults.faulty_parts answers it
NAMES = ("name", "topic", "topic_name", "group_id", "transactional_id", "topic_id", "resource_name")
CASES = [
    pytest.param(row, version, id=f"{row.name} v{version}")
    for row in table.served(False).values()
    for version in range(row.versions[0], row.versions[1] + 1)
    if row.key != PRODUCE and not refusals.has_fields(row)  # tests/security/acls compares these with Kafka's
]


def filled(kind: Any, version: int) -> Any:
    """An object of a request with one element in each list, and the schema's defaults elsewhere."""
    values: dict[str, Any] = {}
    for field in kind._struct.fields.values():
        if field.for_version_q(version) and not field.tagged_field_q(version):
            if field.is_struct_array():
                values[field.name] = [filled(field.data_class, version)]
            elif field.is_array():
                values[field.name] = ["one"] if "string" in field.type_str else [5]
            elif field.is_struct():
                values[field.name] = filled(field.data_class, version)
            elif field.name in NAMES and "string" in field.type_str:
                values[field.name] = "one"
            else:
                values[field.name] = field.default
    return kind(**values)


def codes(message: Any) -> Iterator[int]:
    """All error codes of a response."""
    for field in message._struct.fields.values():
        value = getattr(message, field.name)
        if field.name in ("error_code", "partition_error_code"):
            yield value
        elif field.is_struct_array():
            for one in value or ():
                yield from codes(one)


def answered(key: int, version: int, request: Any, error: Error) -> Any:
    """The response to a request, as a client decodes it."""
    row = table.served(False)[key]
    answer = error_answers.answer(row, version, memoryview(request.encode(version=version)), error)
    response = message_class(f"{row.name}Response")
    if key in STRICT:
        return requests.decode(response, version, memoryview(answer))
    return response.decode(answer, version=version)


@pytest.mark.parametrize(("row", "version"), CASES)
def test_client_finds_the_error(row: Any, version: int) -> None:
    request = filled(message_class(f"{row.name}Request"), version)
    found = answered(row.key, version, request, Error.NOT_CONTROLLER)
    assert set(codes(found)) - {0} == {Error.NOT_CONTROLLER}, found


@pytest.mark.parametrize("version", range(13))
def test_metadata_names_the_topics_that_were_asked_for(version: int) -> None:
    kind = message_class("MetadataRequest")
    request = kind(topics=[kind.MetadataRequestTopic(name=name, topic_id=NO_ID) for name in ("a", "b")])
    found = answered(3, version, request, Error.LEADER_NOT_AVAILABLE)
    assert [(one.name, one.error_code) for one in found.topics] == [("a", 5), ("b", 5)]


def test_metadata_of_all_topics_has_none_of_them() -> None:
    request = message_class("MetadataRequest")(topics=None)
    assert answered(3, 9, request, Error.LEADER_NOT_AVAILABLE).topics == []


def test_partitions_are_those_of_the_request() -> None:
    kind = message_class("OffsetCommitRequest")
    topic = kind.OffsetCommitRequestTopic
    parts = [topic.OffsetCommitRequestPartition(partition_index=at) for at in (3, 5)]
    request = kind(group_id="g", member_id="", topics=[topic(name="clicks", partitions=parts)])
    (only,) = answered(8, 8, request, Error.NOT_COORDINATOR).topics
    assert only.name == "clicks"
    assert [(one.partition_index, one.error_code) for one in only.partitions] == [(3, 16), (5, 16)]
