"""The answer of every group API and version when the coordinator died: it decodes and has the error everywhere."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.protocol import errors
from odradek.protocol.library import message_class
from odradek.workers.apis.table import load_rows
from odradek.workers.dispatch import unavailable

LOADING = errors.COORDINATOR_LOAD_IN_PROGRESS
_ONE_CODE = (11, 12, 13, 14, 16, 22, 25, 26)
_TOP = [(key, version) for key in _ONE_CODE for version in range(load_rows()[key].versions[1] + 1)]


@pytest.mark.parametrize(("key", "version"), _TOP)
def test_apis_with_one_error_code_answer_not_coordinator(key: int, version: int) -> None:
    row = load_rows()[key]
    body = unavailable.answer(row, version, b"")
    assert body is not None
    assert message_class(row.name + "Response").decode(body, version=version).error_code == errors.NOT_COORDINATOR


@pytest.mark.parametrize("version", range(10))
def test_offset_commit_answers_not_coordinator_for_each_partition(version: int) -> None:
    request: Any = message_class("OffsetCommitRequest")
    topic = request.OffsetCommitRequestTopic
    parts = [topic.OffsetCommitRequestPartition(partition_index=n, committed_offset=5) for n in (0, 3)]
    body = request(group_id="g", topics=[topic(name="t", partitions=parts)]).encode(version=version)
    answer = unavailable.answer(load_rows()[8], version, bytes(body))
    assert answer is not None
    (found,) = message_class("OffsetCommitResponse").decode(answer, version=version).topics
    codes = [(part.partition_index, part.error_code) for part in found.partitions]
    assert (found.name, codes) == ("t", [(0, errors.NOT_COORDINATOR), (3, errors.NOT_COORDINATOR)])


@pytest.mark.parametrize("version", range(10))
def test_offset_fetch_answers_that_the_coordinator_loads(version: int) -> None:
    request: Any = message_class("OffsetFetchRequest")
    if version >= 8:
        body = request(groups=[request.OffsetFetchRequestGroup(group_id="g", topics=None)]).encode(version=version)
    else:
        topics = [request.OffsetFetchRequestTopic(name="t", partition_indexes=[1])]
        body = request(group_id="g", topics=topics).encode(version=version)
    answer = unavailable.answer(load_rows()[9], version, bytes(body))
    assert answer is not None
    found = message_class("OffsetFetchResponse").decode(answer, version=version)
    if version >= 8:
        assert [(group.group_id, group.error_code) for group in found.groups] == [("g", LOADING)]
        return
    assert found.topics[0].partitions[0].error_code == LOADING, "all that aiokafka reads, also where there is"
    if version >= 2:
        assert found.error_code == LOADING


@pytest.mark.parametrize("version", range(2, 8))
def test_offset_fetch_of_all_offsets_answers_that_the_coordinator_loads(version: int) -> None:
    body = message_class("OffsetFetchRequest")(group_id="g", topics=None).encode(version=version)
    answer = unavailable.answer(load_rows()[9], version, bytes(body))
    assert answer is not None
    found = message_class("OffsetFetchResponse").decode(answer, version=version)
    assert (found.error_code, found.topics) == (LOADING, [])


def test_other_requests_are_not_answered() -> None:
    assert unavailable.answer(load_rows()[15], 0, b"") is None
    assert unavailable.answer(load_rows()[8], 2, b"garbage") is None
