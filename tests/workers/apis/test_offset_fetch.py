"""OffsetFetch while the group has no coordinator here: aiokafka reads only the errors of partitions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from odradek.protocol.errors import Error
from odradek.protocol.library import message_class
from odradek.workers.apis import k09_offset_fetch as offset_fetch


def answered(version: int, error: Error, topics: bool = True) -> Any:
    """The decoded answer to a request for partitions 0 and 3 of a topic, or for all."""
    request: Any = message_class("OffsetFetchRequest")
    asked = [request.OffsetFetchRequestTopic(name="t", partition_indexes=[0, 3])] if topics else None
    coordinator: Any = SimpleNamespace(
        groups=SimpleNamespace(fetch=lambda *_: (error, {})), snapshot=SimpleNamespace(topics={})
    )
    replies: list[Any] = []
    context: Any = SimpleNamespace(version=version, allows=lambda *_: True, reply=replies.append)
    for _ in offset_fetch._fetch_group(coordinator, request(group_id="g", topics=asked), context):
        pass
    return message_class("OffsetFetchResponse").decode(replies[0].encode(version=version), version=version)


@pytest.mark.parametrize("error", [Error.COORDINATOR_LOAD_IN_PROGRESS, Error.NOT_COORDINATOR])
@pytest.mark.parametrize("version", range(1, 8))
def test_partitions_have_the_error_of_a_coordinator_elsewhere(version: int, error: Error) -> None:
    found = answered(version, error)
    assert [(one.partition_index, one.committed_offset, one.error_code) for one in found.topics[0].partitions] == [
        (0, -1, error.value),
        (3, -1, error.value),
    ]
    assert version < 2 or found.error_code == error.value


@pytest.mark.parametrize("version", range(2, 8))
def test_other_errors_have_no_partitions_as_in_kafka(version: int) -> None:
    assert answered(version, Error.INVALID_GROUP_ID).topics == []
    found = answered(version, Error.NOT_COORDINATOR, topics=False)
    assert (found.error_code, found.topics) == (Error.NOT_COORDINATOR.value, [])
