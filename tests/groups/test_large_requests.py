"""Large requests to the coordinator: each step of their handlers and answers is short, whatever they name."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from odradek.broker.coordinator import LONG_ANSWERS
from odradek.groups.offsets import Committed
from odradek.groups.records import OffsetValue
from odradek.workers.api import PIECE, load_rows, message_class
from odradek.workers.context import Context

from ..harness import effort
from .test_apis import DELETE, FETCH
from .test_apis import DESCRIBE as DESCRIBE_GROUPS
from .test_apis import LIST as LIST_GROUPS
from .test_transaction_apis import DESCRIBE as DESCRIBE_TRANSACTIONS
from .test_transaction_apis import LIST as LIST_TRANSACTIONS
from .test_transaction_apis import Coordinator

MANY = 2000
NAMES = [f"g{n}" for n in range(MANY)]


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


def steps(coordinator: Coordinator, key: int, version: int, request: Any) -> tuple[list[int], Any]:
    """The lines of code of each step, and the answer."""
    answers: list[Any] = []
    context = Context(key, version, "c", "127.0.0.1", "PLAINTEXT", answers.append)
    returned: list[Any] = []
    lines = [effort.lines(lambda: returned.append(load_rows()[key].handle(coordinator, request, context)))]
    (response,) = returned
    if isinstance(response, Generator):
        ended: list[bool] = []
        while not any(ended):
            lines.append(effort.lines(lambda: ended.append(next(response, response) is response)))
    elif response is not None:
        answers.append(response)
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
        (FETCH, 7, fetch_topics),
        (FETCH, 7, fetch_partitions),
        (FETCH, 7, fetch_all),
    ],
)
def test_no_step_is_much_of_a_large_request(coordinator: Coordinator, key: int, version: int, make: Any) -> None:
    """A group's offsets, and lists, are read in one step, since they are those of one moment: that is the largest."""
    coordinator.commit(9, 0)
    offsets = coordinator.groups.get("g").offsets
    for index in range(MANY):
        offsets.load(("t", index), Committed(OffsetValue(index, -1, "", 0), 0))
    for name in NAMES if key == LIST_GROUPS else ():
        coordinator.groups._create(name)
    for name in NAMES if key == LIST_TRANSACTIONS else ():
        coordinator.ids.started(f"x{name}")
    lines, answer = steps(coordinator, key, version, make())
    assert max(lines) * 5 < sum(lines)
    assert len(named(answer)) in (MANY, MANY + 1)


def named(answer: Any) -> list[Any]:
    """The largest list in an answer."""
    lists = [getattr(answer, name, None) or [] for name in ("groups", "results", "transaction_states", "topics")]
    found = max(lists, key=len)
    return found[0].partitions if len(found) == 1 else found


@pytest.mark.parametrize("count", [0, 1, 128, 129, 300])
def test_delete_groups_answers_once_for_all(coordinator: Coordinator, count: int) -> None:
    coordinator.commit(9, 0, group="g1")
    _, answer = steps(coordinator, DELETE, 2, message_class("DeleteGroupsRequest")(groups_names=NAMES[:count]))
    assert [row.group_id for row in answer.results] == NAMES[:count]
    errors = {row.group_id: row.error_code for row in answer.results}
    assert {name for name in errors if not errors[name]} == {"g1"}.intersection(errors)
    assert coordinator.groups.get("g1") is None or count < 2


ROWS = {  # key: (first version, rows' class, its name's field, other fields)
    FETCH: (8, "OffsetFetchResponseGroup", "group_id", {"topics": []}),
    DESCRIBE_GROUPS: (0, "DescribedGroup", "group_id", {"members": []}),
    LIST_GROUPS: (0, "ListedGroup", "group_id", {}),
    DELETE: (0, "DeletableGroupResult", "group_id", {}),
    DESCRIBE_TRANSACTIONS: (0, "TransactionState", "transactional_id", {"topics": []}),
    LIST_TRANSACTIONS: (0, "TransactionState", "transactional_id", {}),
}


def test_every_api_with_long_answers_is_encoded_in_steps() -> None:
    assert {key for key, row in load_rows().items() if row.rows} == ROWS.keys() == {*LONG_ANSWERS, DELETE}


@pytest.mark.parametrize("key", ROWS)
@pytest.mark.parametrize("count", [0, 1, PIECE, PIECE + 1, 20_000])
def test_a_long_answer_is_the_same_in_steps(key: int, count: int) -> None:
    api = load_rows()[key]
    response = message_class(api.name + "Response")
    first, row, name, fields = ROWS[key]
    rows = [getattr(response, row)(**{name: "x" * (n % 300)}, **fields) for n in range(count)]
    for version in range(first, api.versions[1] + 1):
        made = response(**{api.rows: rows}, throttle_time_ms=7)
        whole = api.encode(version, made)
        steps, body = taken(api.encoding(version, made))
        assert (body == whole, steps) == (True, 0 if count <= PIECE else -(-count // PIECE))


def test_what_stands_before_a_long_list_is_encoded_once() -> None:
    """ListTransactions hands back the names of states that nobody knows, however many."""
    api = load_rows()[LIST_TRANSACTIONS]
    response = message_class("ListTransactionsResponse")
    row = response.TransactionState
    rows = [row(transactional_id=name, producer_id=1, transaction_state="Empty") for name in NAMES]
    made = response(error_code=3, unknown_state_filters=NAMES, transaction_states=rows)
    bodies = [api.encode(2, made)]
    at_once = effort.lines(lambda: api.encode(2, made))
    in_steps = effort.lines(lambda: bodies.append(taken(api.encoding(2, made))[1]))
    assert bodies[0] == bodies[1]
    assert in_steps < at_once * 1.5


def taken(work: Generator[None, None, bytes]) -> tuple[int, bytes]:
    """How often work yields, and what it returns."""
    for steps in range(1 << 20):
        try:
            next(work)
        except StopIteration as end:
            return steps, end.value
    raise AssertionError
