"""Partition reassignments (KIP-455) as steps of the elected controller; pure, like `controller_state`.

    plan     the assignment that AlterPartitionReassignments requests, or its error
    begin    add the new replicas to the old ones; remove the replicas that an earlier plan added
    finish   once the whole target is in the isr: the old replicas leave it, one of the target leads, the move ends
    resume   either step again, for a newly elected controller or when brokers of the target have started

Facts are from kafka.controller.KafkaController.onPartitionReassignment; its steps between two writes are one step here.
A plan that would leave no in-sync replica is refused, as with KRaft, because it would lose committed records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from odradek.cluster.decisions import elections
from odradek.cluster.decisions.broker_request_batch import Replica
from odradek.cluster.decisions.controller_state import ControllerContext, LeaderIsrAndControllerEpoch, StateChange
from odradek.cluster.decisions.elections import NO_LEADER
from odradek.cluster.rules.errors import ApiError
from odradek.cluster.rules.validation import MOST_REPLICAS
from odradek.cluster.tree.znodes import Partition, TopicNode
from odradek.protocol.errors import INVALID_REPLICA_ASSIGNMENT, NO_REASSIGNMENT_IN_PROGRESS, UNKNOWN_TOPIC_OR_PARTITION


class Assignment(NamedTuple):
    """A partition's replicas, those of the target first, and the replicas that a move adds and removes."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @classmethod
    def of(cls, node: TopicNode, index: int) -> Assignment:
        """The assignment of one partition in a topic's node; without replicas when there is no such partition."""
        lists = (node.replicas, node.adding, node.removing)
        return cls(*(tuple(replicas.get(index, ())) for replicas in lists))

    def into(self, node: TopicNode, index: int) -> TopicNode:
        """The topic's node with this assignment."""
        adding = {**node.adding, index: list(self.adding)}
        removing = {**node.removing, index: list(self.removing)}
        return TopicNode(
            node.id,
            {**node.replicas, index: list(self.replicas)},
            {moving: replicas for moving, replicas in adding.items() if replicas},
            {moving: replicas for moving, replicas in removing.items() if replicas},
        )

    @property
    def moving(self) -> bool:
        """Whether a move is under way."""
        return bool(self.adding or self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas before the move."""
        return _except(self.replicas, self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the move."""
        return _except(self.replicas, self.removing)

    def towards(self, target: Sequence[int]) -> Assignment:
        """The assignment during a move from the origin to `target`; replaces any move under way."""
        replicas = tuple(dict.fromkeys([*target, *self.origin]))
        return Assignment(replicas, _except(replicas, self.origin), _except(replicas, target))


class Step(NamedTuple):
    """The next step for a moving partition: write, record the writes (`put_topic`, `written`), send requests.

    `assignment` goes into the topic's node (None: it is there already) and `change` into the state node (None: there is
    none yet). The topic's node comes first, or last when this `completes` the move, so that a controller elected
    between the two writes finds the move unfinished. `new` and `stop` are for broker_request_batch.requests.
    """

    partition: Partition
    assignment: Assignment | None
    change: StateChange | None
    new: set[Replica]
    stop: dict[Replica, bool]
    completes: bool = False


def current(state: ControllerContext, partition: Partition) -> Assignment:
    """The assignment of a partition; without replicas when there is none."""
    node = state.topics.get(partition[0])
    return Assignment.of(node, partition[1]) if node else Assignment(())


def moving(state: ControllerContext) -> dict[Partition, Assignment]:
    """All moves under way, as ListPartitionReassignments shows them."""
    under_way = {}
    for name, node in state.topics.items():
        for index in sorted({*node.adding, *node.removing}):
            under_way[name, index] = Assignment.of(node, index)
    return under_way


def plan(state: ControllerContext, partition: Partition, target: Sequence[int] | None) -> Assignment:
    """The assignment that moves a partition to `target`, or back (None); ApiError with Kafka's codes."""
    now = current(state, partition)
    if target is None:
        if not now.moving:
            raise ApiError(NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
        target = now.origin
    else:
        _check_target(state, now, target)
    if not now.replicas or partition[0] in state.deleting:
        raise ApiError(UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
    planned, partition_state = now.towards(target), state.partition_states.get(partition)
    _check_number(planned, now)
    if partition_state and set(partition_state.isr).isdisjoint(planned.replicas):
        message = "No in-sync replica would remain: only replicas that this change drops are in sync."
        raise ApiError(INVALID_REPLICA_ASSIGNMENT, message)
    return planned


def _check_number(planned: Assignment, now: Assignment) -> None:
    """Leaving replicas count until the new ones are in sync. A partition with too many replicas may get fewer."""
    number = len(planned.replicas)
    if number > max(MOST_REPLICAS, len(now.replicas)):
        message = f"The partition would have {number} replicas during the reassignment: more than the {MOST_REPLICAS}"
        raise ApiError(INVALID_REPLICA_ASSIGNMENT, f"{message} that a partition may have.")


def _check_target(state: ControllerContext, now: Assignment, target: Sequence[int]) -> None:
    if not target:
        raise ApiError(INVALID_REPLICA_ASSIGNMENT, "Empty replica list specified in partition reassignment.")
    text = ", ".join(map(str, target))
    if len(set(target)) != len(target):
        message = f"Duplicate replica ids in partition reassignment replica list: {text}"
        raise ApiError(INVALID_REPLICA_ASSIGNMENT, message)
    if min(target) < 0:
        raise ApiError(INVALID_REPLICA_ASSIGNMENT, f"Invalid broker id in replica list: {text}")
    dead = [broker for broker in now.towards(target).adding if broker not in state.live.keys() - state.shutting_down]
    if dead:
        message = f"Replica assignment has brokers that are not alive: {', '.join(map(str, dead))}"
        raise ApiError(INVALID_REPLICA_ASSIGNMENT, message)


def begin(state: ControllerContext, partition: Partition, planned: Assignment) -> Step:
    """Start a planned move (or its reversal): all replicas learn of it through a new leader epoch."""
    before, partition_state = current(state, partition), state.partition_states.get(partition)
    given_up = _except(before.replicas, planned.replicas)
    change = _compared(state, partition, planned, partition_state) if partition_state else None
    new = {(partition, broker) for broker in planned.adding}
    return Step(partition, planned if planned != before else None, change, new, _deleted(partition, given_up))


def _compared(
    state: ControllerContext, partition: Partition, planned: Assignment, now: LeaderIsrAndControllerEpoch
) -> StateChange | None:
    isr = tuple(broker for broker in now.isr if broker in planned.replicas) or now.isr
    leader = now.leader
    if leader not in planned.replicas:
        elected = elections.reassignment(planned.replicas, isr, state.online_replicas(partition, planned.replicas))
        leader = elected.leader if elected else NO_LEADER
    return state.change(partition, leader, isr, new_epoch=True)


def finish(state: ControllerContext, partition: Partition) -> Step | None:
    """The last step of a move whose target is in sync; call it after `begin` and when an isr has changed.

    None while the target is not in sync, or while no replica of it can lead.
    """
    now, partition_state = current(state, partition), state.partition_states.get(partition)
    if partition_state is None or not now.moving or not set(now.target) <= set(partition_state.isr):
        return None
    leader = partition_state.leader
    if leader not in state.live_replicas(partition, now.target):
        elected = elections.reassignment(now.target, partition_state.isr, state.online_replicas(partition, now.target))
        if elected is None:
            return None
        leader = elected.leader
    isr = [broker for broker in partition_state.isr if broker in now.target]
    change = state.change(partition, leader, isr, new_epoch=True)
    gone = _deleted(partition, now.removing)
    return Step(partition, Assignment(now.target), change, set(), gone, completes=True) if change else None


def resume(state: ControllerContext, partition: Partition) -> Step | None:
    """Continue a move that is under way; None for a partition that does not move."""
    now = current(state, partition)
    if not now.moving:
        return None
    return finish(state, partition) or begin(state, partition, now)


def _except(replicas: Sequence[int], others: Sequence[int]) -> tuple[int, ...]:
    return tuple(broker for broker in replicas if broker not in others)


def _deleted(partition: Partition, brokers: Sequence[int]) -> dict[Replica, bool]:
    return {(partition, broker): True for broker in brokers}
