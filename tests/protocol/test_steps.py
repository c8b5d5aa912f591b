"""Requests decoded and responses encoded in steps: equal to those of one call, and each step is short."""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import Any

import pytest

from odradek.protocol import interbroker, requests, responses
from odradek.protocol.interbroker import strict
from odradek.protocol.wire import WireError
from odradek.workers.apis import table

from ..fuzz.valid import OddValues, is_ours, valid_body
from ..harness import effort

ROWS = [
    (row.name, version)
    for row in table.load_rows().values()
    for version in range(
        row.versions[0], min(row.versions[1], interbroker.message_class(row.name + "Request").max_version) + 1
    )
    if row.handle is not None
]

OURS = ("LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown", "ApiVersions")  # in one call


class Many(OddValues):
    """`count` elements in each array at `depth`, one in the others."""

    def __init__(self, count: int, depth: int) -> None:
        super().__init__(random.Random(1), {}, 0.0)
        self._many = count, depth

    def null(self, name: str) -> bool:
        return False

    def count(self, name: str, depth: int) -> int:
        count, where = self._many
        return count if depth == where else 1


def taken(work: Generator[None, None, Any]) -> tuple[int, Any]:
    """How often work yields, and what it returns."""
    for steps in range(1 << 20):
        try:
            next(work)
        except StopIteration as end:
            return steps, end.value
    raise AssertionError


def efforts(work: Generator[None, None, Any]) -> list[int]:
    """The lines of code of each step."""
    found: list[int] = []
    ended: list[bool] = []
    while not any(ended):
        found.append(effort.lines(lambda: ended.append(next(work, ended) is ended)))
    return found


@pytest.mark.parametrize(("name", "version"), ROWS)
def test_request_decoded_in_steps_is_the_same(name: str, version: int) -> None:
    kind = interbroker.message_class(name + "Request")
    for seed in range(5):
        body = memoryview(valid_body(kind, version, OddValues(random.Random(seed), {}, spice=0.05)))
        try:
            whole = requests.decode(kind, version, body)
        except WireError as error:
            with pytest.raises(WireError) as caught:
                taken(requests.decoding(kind, version, body))
            assert str(caught.value) == str(error)
            continue
        assert repr(taken(requests.decoding(kind, version, body))[1]) == repr(whole)  # a NaN is not equal to itself


@pytest.mark.parametrize(("name", "version"), [(name, version) for name, version in ROWS if name not in OURS])
def test_response_encoded_in_steps_is_the_same(name: str, version: int) -> None:
    kind = interbroker.message_class(name + "Response")
    for seed in range(5):
        made = _decoded(kind, version, OddValues(random.Random(seed), {}, spice=0.02))
        whole = bytes(made.encode(version=version))
        assert taken(responses.encoding(made, version))[1] == whole


def _decoded(kind: Any, version: int, values: OddValues) -> Any:
    body = valid_body(kind, version, values)
    if is_ours(kind):
        return strict.decode(kind, version, memoryview(body))
    made = kind.decode(body, version=version)
    made._header = None  # the encoder reads it
    return made


@pytest.mark.slow
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_no_step_is_a_large_part_of_a_message(depth: int) -> None:
    """The long array is that of topics, of their partitions, or of the replicas of a partition."""
    kind = interbroker.message_class("AlterPartitionReassignmentsRequest")
    body = memoryview(valid_body(kind, 1, Many(20_000, depth)))
    steps = efforts(requests.decoding(kind, 1, body))
    assert max(steps) * 20 < sum(steps)
    kind = interbroker.message_class("MetadataResponse")
    made = _decoded(kind, 13, Many(20_000, depth))
    steps = efforts(responses.encoding(made, 13))
    assert max(steps) * 20 < sum(steps)


def test_two_responses_are_encoded_at_once() -> None:
    """Each response has its own buffer."""
    kind = interbroker.message_class("ListGroupsResponse")
    made = [_decoded(kind, 5, Many(count, 0)) for count in (5_000, 7_000)]
    works = [responses.encoding(one, 5) for one in made]
    bodies: list[bytes] = []
    while works:
        for work in list(works):
            try:
                next(work)
            except StopIteration as end:
                bodies.append(end.value)
                works.remove(work)
    assert bodies == [bytes(one.encode(version=5)) for one in made]


@pytest.mark.parametrize("name", sorted({name for name, _ in ROWS}))
def test_buffer_of_a_large_response_is_freed(name: str) -> None:
    """A StopReplica of 124 KB for 30,000 partitions of a long name once left the controller process 128 MiB larger."""
    from kafka.protocol.schemas.fields.codecs import EncodeBufferPool

    row = next(row for row in table.load_rows().values() if row.name == name)
    kind, version = interbroker.message_class(name + "Response"), row.versions[0]
    pool: Any = EncodeBufferPool
    for encode in (row.encode, lambda version, made: taken(row.encoding(version, made))[1]):
        pool._local.buf = None
        assert encode(version, _decoded(kind, version, Many(2_000, 0)))
        assert pool._local.buf is None
