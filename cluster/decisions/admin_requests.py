"""Decisions of the elected controller on request: ElectLeaders, leader rebalancing, ControlledShutdown.

Functions of the state that change nothing, like those of `ControllerContext`; errors are Kafka's codes and messages
(kafka.controller.KafkaController: processReplicaLeaderElection, checkAndTriggerAutoLeaderRebalance).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from odradek.cluster.decisions import elections
from odradek.cluster.decisions.controller_state import ControllerContext, StateChange
from odradek.cluster.decisions.elections import ElectionResult
from odradek.cluster.rules.errors import ApiError
from odradek.cluster.tree.znodes import Partition
from odradek.protocol.errors import (
    BROKER_NOT_AVAILABLE,
    ELECTION_NOT_NEEDED,
    ELIGIBLE_LEADERS_NOT_AVAILABLE,
    INVALID_TOPIC_EXCEPTION,
    NOT_CONTROLLER,
    PREFERRED_LEADER_NOT_AVAILABLE,
    STALE_BROKER_EPOCH,
    UNKNOWN_TOPIC_OR_PARTITION,
)

UNKNOWN_EPOCH = -1  # in request versions before broker epochs (KIP-380)


class ElectionResults(NamedTuple):
    """The outcome for each requested partition: a change, or the error for the client."""

    changes: list[StateChange]
    refused: dict[Partition, ApiError]


def preferred(state: ControllerContext, partitions: Iterable[Partition]) -> ElectionResults:
    """Elect the first replica of each partition."""
    return _elections(state, partitions, _preferred)


def unclean(state: ControllerContext, partitions: Iterable[Partition]) -> ElectionResults:
    """Elect a leader for each partition without one, even if it lacks committed records."""
    return _elections(state, partitions, _unclean)


def _elections(
    state: ControllerContext,
    partitions: Iterable[Partition],
    elect: Callable[[ControllerContext, Partition], ElectionResult],
) -> ElectionResults:
    done = ElectionResults([], {})
    for partition in dict.fromkeys(partitions):
        try:
            _check_electable(state, partition)
            elected = elect(state, partition)
            change = state.change(partition, elected.leader, elected.isr)
            if change is None:
                raise ApiError(NOT_CONTROLLER, "This is not the correct controller for this cluster.")
            done.changes.append(change)
        except ApiError as error:
            done.refused[partition] = error
    return done


def _check_electable(state: ControllerContext, partition: Partition) -> None:
    if not state.replicas(partition):
        raise ApiError(UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
    if partition[0] in state.deleting:
        raise ApiError(INVALID_TOPIC_EXCEPTION, "The topic is being deleted")


def _preferred(state: ControllerContext, partition: Partition) -> ElectionResult:
    now, replicas = state.partition_states.get(partition), state.replicas(partition)
    if now is not None and now.leader == replicas[0]:
        raise ApiError(ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    elected = elections.preferred(replicas, now.isr, state.online_replicas(partition)) if now else None
    if elected is None:
        raise ApiError(PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")
    return elected


def _unclean(state: ControllerContext, partition: Partition) -> ElectionResult:
    if state.has_live_leader(partition):
        raise ApiError(ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    now, online = state.partition_states.get(partition), state.online_replicas(partition)
    lossy = state.allows_unclean(partition)
    elected = elections.offline(state.replicas(partition), now.isr, online, lossy) if now else None
    if elected is None:
        raise ApiError(ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available.")
    return elected


def imbalanced(state: ControllerContext, percent: int, only: Collection[int] | None = None) -> list[Partition]:
    """Partitions that can go back to their preferred leader, for brokers that lead too few of theirs.

    A broker leads too few when it lacks more than `percent` of its preferred partitions. For
    auto.leader.rebalance.enable and leader.imbalance.per.broker.percentage; `only`: consider only these brokers.
    """
    preferring: dict[int, list[Partition]] = defaultdict(list)
    for partition in state.partitions():
        preferring[state.replicas(partition)[0]].append(partition)
    moves: list[Partition] = []
    for broker, partitions in preferring.items():
        elsewhere = [
            each
            for each in partitions
            if each in state.partition_states and state.partition_states[each].leader != broker
        ]
        if (only is None or broker in only) and 100 * len(elsewhere) > percent * len(partitions):
            moves += [each for each in elsewhere if _can_prefer(state, each)]
    return moves


def _can_prefer(state: ControllerContext, partition: Partition) -> bool:
    isr, online = state.partition_states[partition].isr, state.online_replicas(partition)
    return elections.preferred(state.replicas(partition), isr, online) is not None


def check_shutdown(state: ControllerContext, broker: int, epoch: int) -> None:
    """ApiError unless `broker` may request a controlled shutdown; `epoch` must not be older than its registration.

    A broker suspected to be dead may too: a stopping broker closes its listeners while it is still registered.
    """
    registered = state.registered(broker)
    if registered is None:
        raise ApiError(BROKER_NOT_AVAILABLE, f"Broker id {broker} does not exist.")
    if epoch not in (UNKNOWN_EPOCH, registered) and epoch < registered:
        raise ApiError(STALE_BROKER_EPOCH, f"Broker {broker} has registered again since epoch {epoch}.")
