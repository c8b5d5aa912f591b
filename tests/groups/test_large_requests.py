"""Large requests to the coordinator: each step of their handlers is short."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from odradek.groups.offsets import CommittedOffset
from odradek.groups.records import OffsetValue
from odradek.protocol.library import message_class
from odradek.workers.apis.table import load_rows
from odradek.workers.dispatch.context import Context

from ..harness import effort
from .test_apis import DELETE, FETCH
from .test_apis import DESCRIBE as DESCRIBE_GROUPS
from .test_apis import LIST as LIST_GROUPS
from .test_transaction_apis import DESCRIBE as DESCRIBE_TRANSACTIONS
from .test_transaction_apis import LIST as LIST_TRANSACTIONS
from .test_transaction_apis import Coordinator

MANY = 2000
NAMES = [f"g{n}" for n in range(MANY)]
COMMIT, FIND, COMMIT_IN_TRANSACTION = 8, 10, 28
LEAVE, ADD, MARKERS, OFFSET_DELETE = 13, 24, 27, 47


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


def describe_groups() -> Any:
    return message_class("DescribeGroupsRequest")(groups=NAMES)


def delete_groups() -> Any:
    return message_class("DeleteGroupsRequest")(groups_names=NAMES)


def describe_transactions() -> Any:
    return message_class("DescribeTransactionsRequest")(transactional_ids=NAMES)


def list_transactions() -> Any:
    request = message_class("ListTransactionsRequest")
    return request(state_filters=[], producer_id_filters=[], transactional_id_pattern="x.*")


def fetch_groups() -> Any:
    request = message_class("OffsetFetchRequest")
    group = request.OffsetFetchRequestGroup
    topics = [group.OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])]
    return request(groups=[group(group_id=name, topics=topics) for name in NAMES])


def fetch_nothing() -> Any:
    request = message_class("OffsetFetchRequest")
    return request(groups=[request.OffsetFetchRequestGroup(group_id=name, topics=[]) for name in NAMES])


def fetch_topics() -> Any:
    request = message_class("OffsetFetchRequest")
    topics = [request.OffsetFetchRequestTopic(name=name, partition_indexes=[0]) for name in NAMES]
    return request(group_id="g", topics=topics)


def fetch_partitions() -> Any:
    request = message_class("OffsetFetchRequest")
    topics = [request.OffsetFetchRequestTopic(name="t", partition_indexes=list(range(MANY)))]
    return request(group_id="g", topics=topics)


def fetch_all() -> Any:
    return message_class("OffsetFetchRequest")(group_id="g", topics=None)


def find_coordinators() -> Any:
    return message_class("FindCoordinatorRequest")(key_type=0, coordinator_keys=NAMES)


def commit(api: str, names: list[str], partitions: int, **fields: Any) -> Any:
    """OffsetCommit or TxnOffsetCommit: their topics have the same fields."""
    request = message_class(api + "Request")
    topic = getattr(request, api + "RequestTopic")
    part = getattr(topic, api + "RequestPartition")
    parts = [part(partition_index=at, committed_offset=5, committed_metadata="") for at in range(partitions)]
    return request(group_id="g", member_id="", topics=[topic(name=name, partitions=parts) for name in names], **fields)


def commit_topics() -> Any:
    return commit("OffsetCommit", NAMES, 1)


def commit_partitions() -> Any:
    return commit("OffsetCommit", ["no"], MANY)


def commit_in_transaction() -> Any:
    return commit("TxnOffsetCommit", NAMES, 1, transactional_id="x", producer_id=1, producer_epoch=0)


def commit_partitions_in_transaction() -> Any:
    return commit("TxnOffsetCommit", ["no"], MANY, transactional_id="x", producer_id=1, producer_epoch=0)


def add_to_transaction() -> Any:
    request = message_class("AddPartitionsToTxnRequest")
    topics = [request.AddPartitionsToTxnTopic(name="no", partitions=list(range(MANY)))]
    return request(
        v3_and_below_transactional_id="x", v3_and_below_producer_id=1, v3_and_below_producer_epoch=0,
        v3_and_below_topics=topics,
    )  # fmt: skip


def add_to_transactions(verify: bool) -> Any:
    request = message_class("AddPartitionsToTxnRequest")
    row = request.AddPartitionsToTxnTransaction
    topics = [row.AddPartitionsToTxnTopic(name="t", partitions=[0])]
    rows = [
        row(transactional_id=name, producer_id=1, producer_epoch=0, verify_only=verify, topics=topics) for name in NAMES
    ]
    return request(transactions=rows)


def write_markers(markers: int, partitions: int, producer_id: int = 1) -> Any:
    request = message_class("WriteTxnMarkersRequest")
    marker = request.WritableTxnMarker
    topics = [marker.WritableTxnMarkerTopic(name="no", partition_indexes=list(range(partitions)))]
    one = marker(
        producer_id=producer_id, producer_epoch=0, transaction_result=True, topics=topics, coordinator_epoch=0
    )  # fmt: skip
    return request(markers=[one] * markers)


def leave() -> Any:
    request = message_class("LeaveGroupRequest")
    members = [request.MemberIdentity(member_id=name, group_instance_id=None) for name in NAMES]
    return request(group_id="g", members=members)


def forget_offsets(names: list[str], partitions: int) -> Any:
    request = message_class("OffsetDeleteRequest")
    topic = request.OffsetDeleteRequestTopic
    parts = [topic.OffsetDeleteRequestPartition(partition_index=at) for at in range(partitions)]
    return request(group_id="g", topics=[topic(name=name, partitions=parts) for name in names])


def steps(coordinator: Coordinator, key: int, version: int, request: Any) -> tuple[list[int], Any]:
    """The lines of code of each step, and the answer."""
    answers: list[Any] = []
    begun: list[Any] = []
    context = Context(key, version, "c", "127.0.0.1", "PLAINTEXT", answers.append, begin=begun.append)
    returned: list[Any] = []
    handle = load_rows()[key].handle
    assert handle is not None
    lines = [effort.lines(lambda: returned.append(handle(coordinator, request, context)))]
    (response,) = returned
    if isinstance(response, Generator):
        begun.insert(0, response)
    elif response is not None:
        answers.append(response)
    while begun:
        ended: list[bool] = []
        work = begun.pop(0)
        while not any(ended):
            lines.append(effort.lines(lambda: ended.append(next(work, work) is work)))  # noqa: B023 (called at once)
        coordinator.settle()
    coordinator.settle()
    (answer,) = answers
    return lines, answer


@pytest.mark.parametrize(
    ("key", "version", "make"),
    [
        (DESCRIBE_GROUPS, 5, describe_groups),
        (DELETE, 2, delete_groups),
        (DESCRIBE_TRANSACTIONS, 0, describe_transactions),
        (LIST_GROUPS, 5, message_class("ListGroupsRequest")),
        (LIST_TRANSACTIONS, 2, list_transactions),
        (FETCH, 9, fetch_groups),
        (FETCH, 9, fetch_nothing),
        (ADD, 3, add_to_transaction),
        (ADD, 5, lambda: add_to_transactions(True)),
        (ADD, 5, lambda: add_to_transactions(False)),
        (MARKERS, 1, lambda: write_markers(MANY, 1)),
        (MARKERS, 1, lambda: write_markers(1, MANY)),
        (MARKERS, 1, lambda: write_markers(1, MANY, -1)),
        (LEAVE, 5, leave),
        (OFFSET_DELETE, 0, lambda: forget_offsets(NAMES, 1)),
        (OFFSET_DELETE, 0, lambda: forget_offsets(["no"], MANY)),
        (FETCH, 7, fetch_topics),
        (FETCH, 7, fetch_partitions),
        (FETCH, 7, fetch_all),
        (FIND, 4, find_coordinators),
        (COMMIT, 7, commit_topics),
        (COMMIT, 7, commit_partitions),
        (COMMIT_IN_TRANSACTION, 3, commit_in_transaction),
        (COMMIT_IN_TRANSACTION, 3, commit_partitions_in_transaction),
    ],
)
def test_no_step_is_a_large_part_of_a_request(coordinator: Coordinator, key: int, version: int, make: Any) -> None:
    """The largest step reads a group's offsets or a list, which must be of one moment."""
    coordinator.commit(9, 0)
    offsets = coordinator.world.group().offsets
    for index in range(MANY):
        offsets.load(("t", index), CommittedOffset(OffsetValue(index, -1, "", 0), 0))
    for name in NAMES if key == LIST_GROUPS else ():
        coordinator.groups._create(name)
    for name in NAMES if key == LIST_TRANSACTIONS else ():
        coordinator.ids.started(f"x{name}")
    lines, answer = steps(coordinator, key, version, make())
    assert max(lines) * 5 < sum(lines)
    assert len(named(answer)) in (MANY, MANY + 1)


def named(answer: Any) -> list[Any]:
    """The largest list in an answer, at any depth."""
    lists = [getattr(answer, field.name) or [] for field in answer._struct._fields if field.is_array()]
    within = [named(one) for rows in lists for one in rows if hasattr(one, "_struct")]
    return max([*lists, *within], key=len, default=[])


@pytest.mark.parametrize("count", [0, 1, 128, 129, 300])
def test_delete_groups_answers_once_for_all_groups(coordinator: Coordinator, count: int) -> None:
    coordinator.commit(9, 0, group="g1")
    _, answer = steps(coordinator, DELETE, 2, message_class("DeleteGroupsRequest")(groups_names=NAMES[:count]))
    assert [row.group_id for row in answer.results] == NAMES[:count]
    errors = {row.group_id: row.error_code for row in answer.results}
    assert {name for name in errors if not errors[name]} == {"g1"}.intersection(errors)
    assert coordinator.groups.get("g1") is None or count < 2
