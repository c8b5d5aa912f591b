"""Reassignments: invariants under any order of events, and Kafka's arithmetic, example and errors."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from odradek.broker.controller.elected.reassignment import Reassignments
from odradek.cluster.decisions import reassignment
from odradek.cluster.decisions.controller_state import ControllerContext, StateChange
from odradek.cluster.decisions.reassignment import Assignment
from odradek.cluster.rules.errors import ApiError
from odradek.cluster.rules.validation import MOST_REPLICAS
from odradek.cluster.tree.znodes import Partition, TopicNode
from odradek.protocol import errors

from ..controller_world import World
from .test_controller_state import BROKERS, Cluster, choice, world
from .test_elections import ids, lines

P = ("t", 0)
targets = st.none() | st.permutations(BROKERS).flatmap(lambda p: st.integers(1, 4).map(lambda n: p[:n]))


class Moving(Cluster):
    """The cluster of test_controller_state, with reassignments."""

    @precondition(lambda self: self.world.nodes)
    @rule(which=choice, to=targets)
    def move(self, which: int, to: Sequence[int] | None) -> None:
        partition = self.pick(which)
        planned = self.planned(partition, to)
        if planned is None:
            return
        step = reassignment.begin(self.state, partition, planned)
        done = self.world.follow(step)
        while not done:
            again = reassignment.begin(self.state, partition, planned)
            done = self.world.follow(again)
        self.world.delete(step)
        assert set(self.world.nodes[partition].isr) <= set(planned.replicas)
        self.finish(partition)

    def planned(self, partition: Partition, target: Sequence[int] | None) -> Assignment | None:
        try:
            return reassignment.plan(self.state, partition, target)
        except ApiError as error:
            assert error.code in (errors.INVALID_REPLICA_ASSIGNMENT, errors.NO_REASSIGNMENT_IN_PROGRESS)
            return None

    def finish(self, partition: Partition) -> None:
        while (step := reassignment.finish(self.state, partition)) is not None:
            if self.world.follow(step):
                assert not reassignment.current(self.state, partition).moving
                assert set(self.world.nodes[partition].isr) == set(self.state.replicas(partition))

    @precondition(lambda self: bool(reassignment.moving(self.state)))
    @rule(which=choice)
    def catch_up(self, which: int) -> None:
        moves = sorted(reassignment.moving(self.state))
        partition = moves[which % len(moves)]
        self.change_isr(sorted(self.world.nodes).index(partition), set(BROKERS), seen=True)
        self.finish(partition)

    @precondition(lambda self: self.world.nodes)
    @rule(which=choice, to=targets, first=st.booleans())
    def controller_dies(self, which: int, to: Sequence[int] | None, first: bool) -> None:
        partition = self.pick(which)
        step = reassignment.finish(self.state, partition)
        planned = self.planned(partition, to)
        if step is None and planned is not None:
            step = reassignment.begin(self.state, partition, planned)
        if step is None or not self.world.follow(step, dies_between=first):
            self.failover()
            for each in reassignment.moving(self.state):
                while (again := reassignment.resume(self.state, each)) and not self.world.follow(again):
                    pass


Moving.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
TestAnyOrderOfEvents = Moving.TestCase


@pytest.mark.live
@pytest.mark.needs("java-3.9.1")
def test_assignments_equal_kafkas() -> None:
    cases = lines("assignments")
    assert len(cases) == 40 * 40 * 65
    for origin, first, second, *theirs in cases:
        one = Assignment(ids(origin)).towards(ids(first))
        two = one.towards(ids(second))
        assert [text(one), text(two)] == theirs
        assert set(one.origin) == set(two.origin) == set(ids(origin))


def text(assignment: Assignment) -> str:
    lists = (assignment.replicas, assignment.adding, assignment.removing, assignment.target)
    return "/".join("." + "".join(map(str, brokers)) for brokers in lists)


def moved(target: Sequence[int] | None, *replicas: int, alive: int = 7) -> tuple[World, reassignment.Step]:
    """A partition on `replicas` whose reassignment has begun."""
    world = World(range(1, alive))
    world.create("t", list(replicas))
    step = reassignment.begin(world.state, P, reassignment.plan(world.state, P, target))
    assert world.follow(step)
    return world, step


def test_kafkas_example_from_123_to_456() -> None:
    world, step = moved([4, 5, 6], 1, 2, 3)
    assert reassignment.moving(world.state) == {P: Assignment((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))}
    assert (world.nodes[P].leader, world.nodes[P].isr, world.nodes[P].leader_epoch) == (1, (1, 2, 3), 1)
    assert (step.new, step.stop, step.completes) == ({(P, 4), (P, 5), (P, 6)}, {}, False)
    assert reassignment.finish(world.state, P) is None
    world.leader_writes(P, [1, 2, 3, 4, 5], seen=True)
    assert reassignment.finish(world.state, P) is None
    world.leader_writes(P, [1, 2, 3, 4, 5, 6], seen=True)
    last = reassignment.finish(world.state, P)
    assert last is not None and world.follow(last)
    assert world.state.topics["t"] == TopicNode(None, {0: [4, 5, 6]}, {}, {})
    assert (world.nodes[P].leader, world.nodes[P].isr, world.nodes[P].leader_epoch) == (4, (4, 5, 6), 2)
    assert last.stop == {(P, 1): True, (P, 2): True, (P, 3): True}
    assert reassignment.resume(world.state, P) is None


def test_cancelled_reassignment_deletes_added_replicas() -> None:
    world, _ = moved([4, 2], 1, 2)
    world.leader_writes(P, [1, 2, 4], seen=True)
    back = reassignment.begin(world.state, P, reassignment.plan(world.state, P, None))
    assert back.stop == {(P, 4): True} and world.follow(back)
    assert world.state.topics["t"] == TopicNode(None, {0: [2, 1]}, {}, {})  # the target's order, as with Kafka
    assert world.nodes[P].isr == (1, 2)
    assert reassignment.finish(world.state, P) is None


def test_cancelled_reassignment_of_leader_elects_isr_member() -> None:
    world, _ = moved([4], 1, 2)
    world.leader_writes(P, [1, 2, 4], seen=True)
    world.state.died([1])
    world.after_loss()
    assert world.nodes[P].leader == 4
    back = reassignment.begin(world.state, P, reassignment.plan(world.state, P, None))
    assert world.follow(back)
    assert (world.nodes[P].leader, world.nodes[P].isr) == (2, (2,))


def test_replaced_reassignment_removes_only_replicas_it_lacks() -> None:
    world, _ = moved([4, 5], 1, 2)
    step = reassignment.begin(world.state, P, reassignment.plan(world.state, P, [5, 6]))
    assert (step.stop, step.new) == ({(P, 4): True}, {(P, 5), (P, 6)})
    assert step.assignment == Assignment((5, 6, 1, 2), (5, 6), (1, 2))


def test_reassignment_to_fewer_replicas_completes_at_once() -> None:
    world, step = moved([2], 1, 2, 3)
    assert step.assignment == Assignment((2, 1, 3), (), (1, 3))
    last = reassignment.finish(world.state, P)
    assert last is not None and world.follow(last)
    assert (world.nodes[P].leader, world.nodes[P].isr) == (2, (2,))


def test_reassignment_waits_until_a_target_can_lead() -> None:
    world, _ = moved([4], 1)
    world.leader_writes(P, [1, 4], seen=True)
    world.state.shutting_down.add(4)
    assert reassignment.finish(world.state, P) is None


def test_dead_broker_does_not_lead_after_reassignment() -> None:
    world, _ = moved([1, 2], 1, 2, 3)
    world.state.died([1])
    last = reassignment.finish(world.state, P)
    assert last is not None and last.change is not None and last.change.after.leader == 2


def test_new_controller_resends_requests_of_reassignment() -> None:
    world, first = moved([3], 1, 2)
    world.failover()
    step = reassignment.resume(world.state, P)
    assert step is not None and step.change is not None
    assert (step.assignment, step.new, step.stop) == (None, first.new, {})
    assert step.change.after[:4] == (1, (1, 2), 2, 2)


def test_only_complete_replica_is_not_removed() -> None:
    world, _ = moved([4], 1)
    world.leader_writes(P, [1, 4], seen=True)
    world.state.died([1])
    world.after_loss()
    assert world.nodes[P].isr == (4,)
    assert refused(world.state, None).code == errors.INVALID_REPLICA_ASSIGNMENT
    last = reassignment.finish(world.state, P)
    assert last is not None and world.follow(last)


def test_partition_without_state_moves_once_it_has_one() -> None:
    world = World([2])
    world.create("t", [1])
    step = reassignment.begin(world.state, P, reassignment.plan(world.state, P, [2]))
    assert step.change is None and world.follow(step)
    world.settle(lambda: world.state.new_partitions("t"))
    last = reassignment.finish(world.state, P)
    assert last is not None and last.assignment == Assignment((2,)) and world.follow(last)


def refused(state: ControllerContext, target: Sequence[int] | None, partition: Partition = P) -> ApiError:
    with pytest.raises(ApiError) as error:
        reassignment.plan(state, partition, target)
    return error.value


def test_adding_and_removing_replicas_count_together() -> None:
    world = World(range(20))
    world.create("t", list(range(5)))
    error = refused(world.state, list(range(5, 10)))
    assert (error.code, "10 replicas" in str(error.message)) == (errors.INVALID_REPLICA_ASSIGNMENT, True)
    assert len(reassignment.plan(world.state, P, list(range(5, 9))).replicas) == MOST_REPLICAS
    world.create("many", list(range(12)))  # written by another tool; it can be reduced
    assert reassignment.plan(world.state, ("many", 0), [0, 1]).target == (0, 1)


@pytest.mark.parametrize(
    ("target", "partition", "code", "says"),
    [
        ([], P, errors.INVALID_REPLICA_ASSIGNMENT, "Empty replica list"),
        ([1, 1], P, errors.INVALID_REPLICA_ASSIGNMENT, "Duplicate replica ids"),
        ([1, -1], P, errors.INVALID_REPLICA_ASSIGNMENT, "Invalid broker id"),
        ([1, 9], P, errors.INVALID_REPLICA_ASSIGNMENT, "not alive: 9"),
        ([1, 3], P, errors.INVALID_REPLICA_ASSIGNMENT, "not alive: 3"),
        (None, P, errors.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment"),
        (None, ("nope", 0), errors.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment"),
        ([1], ("nope", 0), errors.UNKNOWN_TOPIC_OR_PARTITION, "does not exist"),
        ([1], ("t", 1), errors.UNKNOWN_TOPIC_OR_PARTITION, "does not exist"),
        ([9], ("nope", 0), errors.INVALID_REPLICA_ASSIGNMENT, "not alive"),
        ([1], ("gone", 0), errors.UNKNOWN_TOPIC_OR_PARTITION, "does not exist"),
    ],
)
def test_invalid_reassignments_are_refused(
    target: list[int] | None, partition: tuple[str, int], code: int, says: str
) -> None:
    world = World([1, 2, 3])
    world.create("t", [1, 2])
    world.create("gone", [1, 2])
    world.state.deleting.add("gone")
    world.state.shutting_down.add(3)
    error = refused(world.state, target, partition)
    assert error.code == code
    assert says in (error.message or "")


def test_dead_replicas_may_stay_in_assignment() -> None:
    world = World([1])
    world.create("t", [1, 2])
    assert reassignment.plan(world.state, P, [2, 1]) == Assignment((2, 1))


def test_replica_of_replaced_plan_is_stopped_after_stale_state() -> None:
    """The assignment without the replica was written before the controller read the leader's last ISR change."""
    made = world([1, 2])
    told: list[Any] = []
    made.follow(reassignment.begin(made.state, P, reassignment.plan(made.state, P, [2, 3])))
    made.leader_writes(P, [1, 2, 3], seen=False)

    def refused(changes: list[StateChange]) -> list[Partition]:
        return [] if made.write(changes) else [P]

    broker_requests = SimpleNamespace(send_changes=lambda *of: told.append(of))
    elected: Any = SimpleNamespace(context=made.state, refused=refused, broker_requests=broker_requests)
    moves = Reassignments(elected)

    def assign(partition: Partition, assignment: Assignment) -> None:
        made.state.put_topic("t", assignment.into(made.state.topics["t"], 0))

    moves._assign = assign  # type: ignore[method-assign]  # a test double
    assert moves.request({P: [2, 1]}) == {}
    assert 3 not in made.nodes[P].isr
    assert {replica for _, _, stop in told for replica in stop} == {(P, 3)}
