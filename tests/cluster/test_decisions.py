"""Names, assignments and plans: pure functions, with Kafka's codes and messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cluster.configs import configdef
from odradek.cluster.decisions import alter, planning
from odradek.cluster.decisions.alter import APPEND, DELETE, SET, SUBTRACT, ConfigChange
from odradek.cluster.decisions.assignment import assign
from odradek.cluster.decisions.planning import TopicDefaults, TopicPlan, TopicRequest, plan_partitions, plan_topic
from odradek.cluster.free_slots import FreeSlots, SlotsExhausted
from odradek.cluster.metadata.snapshot import Snapshot, raw_snapshot
from odradek.cluster.rules import topicnames
from odradek.cluster.rules.errors import ApiError
from odradek.cluster.rules.validation import MOST_PARTITIONS, MOST_REPLICAS
from odradek.protocol import errors


def cluster(brokers: dict[int, str | None], topics: dict[str, list[list[int]]] | None = None) -> Snapshot:
    described: list[dict[str, Any]] = [{"id": b, "rack": rack, "endpoints": {}} for b, rack in brokers.items()]
    raw_topics = {
        name: {
            "id": f"{number + 1:032x}",
            "internal": False,
            "config": {},
            "partitions": [[-1, 0, r[0] if r else -1, 0, r, r, 0] for r in rows],
        }
        for number, (name, rows) in enumerate((topics or {}).items())
    }
    return Snapshot(raw_snapshot(1, "c", 0, described, raw_topics, {}))


def refused(call: Callable[[], object]) -> ApiError:
    with pytest.raises(ApiError) as error:
        call()
    return error.value


ONE = cluster({0: None}, {"old": [[0], [0]], "a.b": [[0]]})


# -- names


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "__consumer_offsets", "..."])
def test_valid_topic_names_are_accepted(name: str) -> None:
    assert topicnames.problem(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\0", "a\n", "a:b"])
def test_invalid_topic_names_are_refused(name: str) -> None:
    assert refused(lambda: topicnames.validate(name)).code == errors.INVALID_TOPIC_EXCEPTION


@given(st.text(alphabet="ab._", min_size=1, max_size=6), st.text(alphabet="ab._", min_size=1, max_size=6))
def test_names_collide_when_their_metrics_do(left: str, right: str) -> None:
    same = left.replace(".", "_") == right.replace(".", "_")
    assert (topicnames.collision(left, [right]) == right) == (same and left != right)


# -- assignment


def test_round_robin_equals_kafkas_example() -> None:
    """The table in the documentation of AdminUtils: 5 brokers, 10 partitions, 3 replicas, start 0."""
    assert assign(dict.fromkeys(range(5)), 10, 3, start=0) == {
        0: [0, 1, 2],
        1: [1, 2, 3],
        2: [2, 3, 4],
        3: [3, 4, 0],
        4: [4, 0, 1],
        5: [0, 2, 3],
        6: [1, 3, 4],
        7: [2, 4, 0],
        8: [3, 0, 1],
        9: [4, 1, 2],
    }


def test_rack_aware_assignment_equals_kafkas_example() -> None:
    racks = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}
    assert assign(racks, 7, 3, start=0) == {
        0: [0, 3, 1],
        1: [3, 1, 5],
        2: [1, 5, 4],
        3: [5, 4, 2],
        4: [4, 2, 0],
        5: [2, 0, 3],
        6: [0, 4, 2],
    }


@given(
    brokers=st.lists(st.integers(0, 50), min_size=1, max_size=12, unique=True),
    racked=st.booleans(),
    partitions=st.integers(1, 40),
    start=st.integers(-1, 12),
    data=st.data(),
)
def test_assignments_are_even_and_without_repetition(
    brokers: list[int], racked: bool, partitions: int, start: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, min(len(brokers), MOST_REPLICAS)))
    racks = {b: f"r{b % 3}" if racked else None for b in brokers}
    assigned = assign(racks, partitions, factor, start % len(brokers) if start >= 0 else -1)
    assert list(assigned) == list(range(partitions))
    for replicas in assigned.values():
        assert len(set(replicas)) == factor == len(replicas)
        assert set(replicas) <= set(brokers)
        if racked:
            assert len({racks[b] for b in replicas}) == min(factor, len(set(racks.values())))
    leaders = Counter(replicas[0] for replicas in assigned.values())
    assert max(leaders.values()) - min([leaders.get(b, 0) for b in brokers]) <= 1


def test_too_many_replicas_are_refused() -> None:
    brokers = dict.fromkeys(range(MOST_REPLICAS + 1))
    many = cluster(brokers, {"t": [list(range(MOST_REPLICAS))], "u": [list(brokers)]})
    factor, assignment = errors.INVALID_REPLICATION_FACTOR, errors.INVALID_REPLICA_ASSIGNMENT
    given_: list[tuple[int, Callable[[], object]]] = [
        (factor, lambda: assign(brokers, 1, len(brokers))),
        (factor, lambda: plan_topic(TopicRequest("n", 1, len(brokers)), many, TopicDefaults())),
        (assignment, lambda: plan_topic(TopicRequest("n", -1, -1, {0: list(brokers)}), many, TopicDefaults())),
        (factor, lambda: plan_partitions("u", 2, None, many)),
        (assignment, lambda: plan_partitions("u", 2, [list(brokers)], many)),
    ]
    for number, (code, call) in enumerate(given_):
        error = refused(call)
        assert error.code == code, number
        assert f"the {MOST_REPLICAS}" in (error.message or "")
    assert len(plan_topic(TopicRequest("n", 1, MOST_REPLICAS), many, TopicDefaults()).replicas[0]) == MOST_REPLICAS


def test_number_of_partitions_is_bounded_by_the_size_of_a_node() -> None:
    error = refused(lambda: plan_partitions("old", MOST_PARTITIONS + 1, None, ONE))
    assert error.code == errors.INVALID_PARTITIONS
    assert str(MOST_PARTITIONS) in (error.message or "")


def test_assignment_with_some_racks_unknown_is_refused() -> None:
    assert refused(lambda: assign({0: "a", 1: None}, 1, 1)).code == errors.UNKNOWN_SERVER_ERROR


# -- CreateTopics


@pytest.mark.parametrize(
    ("request_", "code", "says"),
    [
        (TopicRequest("old"), errors.TOPIC_ALREADY_EXISTS, "Topic 'old' already exists."),
        (TopicRequest("a_b"), errors.INVALID_TOPIC_EXCEPTION, "collides with existing topics: a.b"),
        (TopicRequest("a b"), errors.INVALID_TOPIC_EXCEPTION, "Topic name is invalid"),
        (TopicRequest("n", 0), errors.INVALID_PARTITIONS, "larger than 0"),
        (TopicRequest("n", -2), errors.INVALID_PARTITIONS, "larger than 0"),
        (TopicRequest("n", 1, 0), errors.INVALID_REPLICATION_FACTOR, "larger than 0"),
        (TopicRequest("n", 1, 2), errors.INVALID_REPLICATION_FACTOR, "larger than available brokers: 1"),
        (TopicRequest("n", 1, -1, {0: [0]}), errors.INVALID_REQUEST, "Both"),
        (TopicRequest("n", -1, -1, {0: [0], 2: [0]}), errors.INVALID_REPLICA_ASSIGNMENT, "consecutive"),
        (TopicRequest("n", -1, -1, {1: [0]}), errors.INVALID_REPLICA_ASSIGNMENT, "consecutive"),
        (TopicRequest("n", -1, -1, {0: [0, 0]}), errors.INVALID_REPLICA_ASSIGNMENT, "Duplicate"),
        (TopicRequest("n", -1, -1, {0: [7]}), errors.INVALID_REPLICA_ASSIGNMENT, "Unknown broker"),
        (TopicRequest("n", -1, -1, {0: []}), errors.INVALID_REPLICA_ASSIGNMENT, "replica"),
        (TopicRequest("n", -1, -1, {0: [0], 1: [0, 0]}), errors.INVALID_REPLICA_ASSIGNMENT, "same number"),
        (TopicRequest("n", configs={"nope": "1"}), errors.INVALID_CONFIG, "Unknown topic config name: nope"),
        (TopicRequest("n", configs={"retention.ms": "x"}), errors.INVALID_CONFIG, "retention.ms"),
        (TopicRequest("n", configs={"retention.ms": None}), errors.INVALID_CONFIG, "Null value"),
    ],
)
def test_invalid_topics_are_refused(request_: TopicRequest, code: int, says: str) -> None:
    error = refused(lambda: plan_topic(request_, ONE, TopicDefaults()))
    assert error.code == code
    assert says in (error.message or "")


def test_plans_use_defaults_or_the_given_assignment() -> None:
    assert plan_topic(TopicRequest("n"), ONE, TopicDefaults(4, 1)).replicas == {i: [0] for i in range(4)}
    plan = plan_topic(TopicRequest("n", -1, -1, {1: [0], 0: [0]}, {"retention.ms": "5"}), ONE, TopicDefaults())
    assert (plan.replicas, plan.configs, plan.factor) == ({0: [0], 1: [0]}, {"retention.ms": "5"}, 1)


def test_compaction_lags_that_conflict_with_the_brokers_are_refused() -> None:
    """As in Kafka, but the broker's lags do not fail a topic without its own."""
    wrong = {"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "5"}
    broker: dict[str, Any] = {"id": 0, "rack": None, "endpoints": {}}
    there = Snapshot(raw_snapshot(1, "c", 0, [broker], {}, {"": wrong}), {"broker.id": 0})

    def plan(**lags: str) -> TopicPlan:
        configs = {f"{name}.compaction.lag.ms": value for name, value in lags.items()}
        return plan_topic(TopicRequest("n", 1, 1, {}, configs), there, TopicDefaults())

    for lags in ({"min": "6"}, {"max": "8"}, {"min": "2", "max": "1"}):
        error = refused(lambda lags=lags: plan(**lags))  # type: ignore[misc]  # a default in a lambda
        assert error.code == errors.INVALID_CONFIG and "conflict topic config setting" in (error.message or "")
    for lags in ({}, {"min": "5"}, {"max": "9"}, {"min": "1", "max": "2"}):
        plan(**lags)


def test_unregistered_broker_uses_its_dynamic_configs() -> None:
    topic = {"t": {"id": "0" * 32, "internal": False, "config": {}, "partitions": []}}
    other: dict[str, Any] = {"id": 1, "rack": None, "endpoints": {}}
    dynamic = {"1": {"log.retention.ms": "1"}, "2": {"log.retention.ms": "2"}}
    there = Snapshot(raw_snapshot(1, "c", 1, [other], topic, dynamic), {"broker.id": 2})
    assert there.topic_config("t")["retention.ms"] == 2


def test_default_partition_count_obeys_request_limit() -> None:
    """A list of 2**31 partitions would block the controller, also if num.partitions requests it."""
    error = refused(lambda: plan_topic(TopicRequest("n"), ONE, TopicDefaults(planning.MOST_PARTITIONS + 1, 1)))
    assert error.code == errors.POLICY_VIOLATION


def test_internal_topics_use_live_brokers() -> None:
    config = {name: configdef.broker_default(name) for name in configdef.BROKER}
    request = planning.automatic("__consumer_offsets", 1, config)
    plan = plan_topic(request, ONE, TopicDefaults())
    assert (len(plan.replicas), plan.factor, plan.configs["cleanup.policy"]) == (50, 1, "compact")
    state = planning.automatic("__transaction_state", 2, config)
    assert (state.factor, state.configs["min.insync.replicas"]) == (2, "2")
    assert planning.automatic("x", 1, config) == TopicRequest("x")


# -- CreatePartitions


@pytest.mark.parametrize(
    ("topic", "count", "given_", "code", "says"),
    [
        ("nope", 3, None, errors.UNKNOWN_TOPIC_OR_PARTITION, "does not exist"),
        ("old", 2, None, errors.INVALID_PARTITIONS, "already has 2 partitions"),
        ("old", 1, None, errors.INVALID_PARTITIONS, "higher than the requested 1"),
        ("old", 3, [[0], [0]], errors.INVALID_REPLICA_ASSIGNMENT, "by 1 but 2 assignments"),
        ("old", 3, [[9]], errors.INVALID_REPLICA_ASSIGNMENT, "Unknown broker(s) in replica assignment: 9."),
        ("old", 3, [[0, 0]], errors.INVALID_REPLICA_ASSIGNMENT, "Duplicate brokers"),
        ("old", 3, [[]], errors.INVALID_REPLICA_ASSIGNMENT, "Inconsistent"),
    ],
)
def test_invalid_partition_counts_are_refused(
    topic: str, count: int, given_: list[list[int]] | None, code: int, says: str
) -> None:
    error = refused(lambda: plan_partitions(topic, count, given_, ONE))
    assert error.code == code
    assert says in (error.message or "")


def test_no_partitions_are_added_to_incomplete_topic() -> None:
    """The metadata has its second partition, not its first."""
    error = refused(lambda: plan_partitions("t", 3, None, cluster({0: None}, {"t": [[], [0]]})))
    assert error.code == errors.UNKNOWN_TOPIC_OR_PARTITION


def test_long_error_message_is_cut() -> None:
    error = ApiError(errors.INVALID_REQUEST, "Ω" * 32_767)
    assert len((error.message or "").encode()) < 1 << 12


def test_added_partitions_continue_assignment() -> None:
    assert plan_partitions("old", 4, None, ONE) == {2: [0], 3: [0]}
    assert plan_partitions("old", 3, [[0]], ONE) == {2: [0]}
    three = cluster(dict.fromkeys(range(3)), {"t": [[1, 2]]})
    whole = assign(dict.fromkeys(range(3)), 6, 2, start=1)
    assert plan_partitions("t", 6, None, three) == {i: whole[i] for i in range(1, 6)}


# -- configs


def test_incremental_changes_set_append_subtract_and_delete() -> None:
    now = {"retention.ms": "5", "cleanup.policy": "delete"}
    changes = [
        ConfigChange("retention.ms", DELETE, None),
        ConfigChange("cleanup.policy", APPEND, "compact,delete"),
        ConfigChange("segment.bytes", SET, "100"),
        ConfigChange("follower.replication.throttled.replicas", APPEND, "0:1"),
    ]
    after = alter.apply_changes(now, changes, configdef.TOPIC)
    assert after == {
        "cleanup.policy": "delete,compact",
        "segment.bytes": "100",
        "follower.replication.throttled.replicas": "0:1",
    }
    assert now["retention.ms"] == "5"
    less = alter.apply_changes(after, [ConfigChange("cleanup.policy", SUBTRACT, "delete")], configdef.TOPIC)
    assert less["cleanup.policy"] == "compact"
    assert alter.apply_changes({}, [ConfigChange("cleanup.policy", SUBTRACT, "delete")], configdef.TOPIC) == {
        "cleanup.policy": ""
    }


@pytest.mark.parametrize(
    ("changes", "code", "says"),
    [
        ([ConfigChange("a", SET, "1"), ConfigChange("a", DELETE, None)], errors.INVALID_REQUEST, "duplicate"),
        ([ConfigChange("a", SET, None)], errors.INVALID_REQUEST, "Null value not supported for : a"),
        ([ConfigChange("a", 7, "x")], errors.INVALID_REQUEST, "Unknown operations type 7"),
    ],
)
def test_malformed_changes_are_refused(changes: list[ConfigChange], code: int, says: str) -> None:
    error = refused(lambda: alter.check_changes(changes))
    assert error.code == code
    assert says in (error.message or "")


def test_only_lists_can_be_appended_to() -> None:
    for operation, word in ((APPEND, "append"), (SUBTRACT, "subtract")):
        error = refused(
            lambda operation=operation: alter.apply_changes(  # type: ignore[misc]  # a default in a lambda
                {}, [ConfigChange("retention.ms", operation, "1")], configdef.TOPIC
            )
        )
        assert error.code == errors.INVALID_CONFIG
        assert word in (error.message or "")


def test_broker_resource_is_a_registered_id_or_empty() -> None:
    assert alter.broker_of("", {0: 0}) is None
    assert alter.broker_of("0", {0: 0}) == 0
    for name in ("x", "5", "-1"):
        assert refused(lambda name=name: alter.broker_of(name, {0: 0})).code == errors.INVALID_REQUEST  # type: ignore[misc]  # a default in a lambda


# -- slots


@given(st.lists(st.integers(0, 9), max_size=30), st.integers(1, 5))
def test_slots_are_reused_and_incarnations_are_not(operations: list[int], start: int) -> None:
    allocator = FreeSlots(6, start)
    held: list[int] = []
    seen: set[int] = set()
    for operation in operations:
        if operation < 6:
            if len(held) == 6:
                with pytest.raises(SlotsExhausted, match="all 6 partition slots"):
                    allocator.allocate()
                continue
            slot = allocator.allocate()
            assert slot not in held
            held.append(slot)
            incarnation = allocator.incarnation()
            assert incarnation not in seen
            seen.add(incarnation)
        elif held:
            allocator.release(held.pop())
    later = FreeSlots(6, start + 1, held)
    assert all(later.incarnation() > before for before in seen)
    assert later.free == 6 - len(held)
    later.grow(9)
    assert sorted(later.allocate() for _ in range(9 - len(held))) == sorted(set(range(9)) - set(held))
