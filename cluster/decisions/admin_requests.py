"""Decisions that the elected controller is asked for: ElectLeaders, the rebalancing of leaders, AlterPartition.

Functions of the state that change nothing, as those of `Leadership`; refusals are Kafka's codes and messages
(kafka.controller.KafkaController: processReplicaLeaderElection, checkAndTriggerAutoLeaderRebalance,
tryProcessAlterPartition).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from odradek.cluster.decisions import elections
from odradek.cluster.decisions.controller_state import Change, LeaderIsrAndControllerEpoch, Leadership
from odradek.cluster.decisions.elections import Elected
from odradek.cluster.rules.errors import ApiError
from odradek.cluster.tree.znodes import Partition
from odradek.protocol.errors import (
    BROKER_NOT_AVAILABLE,
    ELECTION_NOT_NEEDED,
    ELIGIBLE_LEADERS_NOT_AVAILABLE,
    FENCED_LEADER_EPOCH,
    INELIGIBLE_REPLICA,
    INVALID_REQUEST,
    INVALID_TOPIC_EXCEPTION,
    INVALID_UPDATE_VERSION,
    NOT_CONTROLLER,
    PREFERRED_LEADER_NOT_AVAILABLE,
    STALE_BROKER_EPOCH,
    UNKNOWN_TOPIC_OR_PARTITION,
)

UNKNOWN_EPOCH = -1  # of a broker that speaks a request's version from before broker epochs (KIP-380)


class Elections(NamedTuple):
    """What becomes of each partition asked for: a change, or the error for who asked."""

    changes: list[Change]
    refused: dict[Partition, ApiError]


class NewIsr(NamedTuple):
    """A partition of an AlterPartition request: what its leader wants, and what it believes to be so."""

    partition: Partition
    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    recovering: bool = False


def preferred(state: Leadership, partitions: Iterable[Partition]) -> Elections:
    """Leadership back to the first replica of each."""
    return _elections(state, partitions, _preferred)


def unclean(state: Leadership, partitions: Iterable[Partition]) -> Elections:
    """A leader for each that has none, though it may lack what was committed."""
    return _elections(state, partitions, _unclean)


def _elections(
    state: Leadership, partitions: Iterable[Partition], elect: Callable[[Leadership, Partition], Elected]
) -> Elections:
    done = Elections([], {})
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


def _check_electable(state: Leadership, partition: Partition) -> None:
    if not state.replicas(partition):
        raise ApiError(UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
    if partition[0] in state.deleting:
        raise ApiError(INVALID_TOPIC_EXCEPTION, "The topic is being deleted")


def _preferred(state: Leadership, partition: Partition) -> Elected:
    now, replicas = state.standings.get(partition), state.replicas(partition)
    if now is not None and now.leader == replicas[0]:
        raise ApiError(ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    elected = elections.preferred(replicas, now.isr, state.online(partition)) if now else None
    if elected is None:
        raise ApiError(PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")
    return elected


def _unclean(state: Leadership, partition: Partition) -> Elected:
    if state.led(partition):
        raise ApiError(ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    now, online = state.standings.get(partition), state.online(partition)
    lossy = state.may_lose(partition)
    elected = elections.offline(state.replicas(partition), now.isr, online, lossy) if now else None
    if elected is None:
        raise ApiError(ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available.")
    return elected


def imbalanced(state: Leadership, percent: int, only: Collection[int] | None = None) -> list[Partition]:
    """Partitions that can go back to their preferred leader, of brokers that lack more than `percent` of theirs.

    For auto.leader.rebalance.enable and leader.imbalance.per.broker.percentage; `only`: of these brokers.
    """
    preferring: dict[int, list[Partition]] = defaultdict(list)
    for partition in state.partitions():
        preferring[state.replicas(partition)[0]].append(partition)
    moves: list[Partition] = []
    for broker, partitions in preferring.items():
        elsewhere = [each for each in partitions if each in state.standings and state.standings[each].leader != broker]
        if (only is None or broker in only) and 100 * len(elsewhere) > percent * len(partitions):
            moves += [each for each in elsewhere if _can_prefer(state, each)]
    return moves


def _can_prefer(state: Leadership, partition: Partition) -> bool:
    isr, online = state.standings[partition].isr, state.online(partition)
    return elections.preferred(state.replicas(partition), isr, online) is not None


def check_shutdown(state: Leadership, broker: int, epoch: int) -> None:
    """ApiError unless `broker`, registered with `epoch` or later, may ask for a controlled shutdown.

    So may one that is taken for dead, as it refuses connections: who stops closes its listeners, and it is registered.
    """
    registered = state.registered(broker)
    if registered is None:
        raise ApiError(BROKER_NOT_AVAILABLE, f"Broker id {broker} does not exist.")
    if epoch not in (UNKNOWN_EPOCH, registered) and epoch < registered:
        raise ApiError(STALE_BROKER_EPOCH, f"Broker {broker} has registered anew since epoch {epoch}.")


def check_sender(state: Leadership, broker: int, epoch: int) -> None:
    """ApiError unless an AlterPartition request is from a broker that is registered with that epoch."""
    if state.live.get(broker) != epoch:
        raise ApiError(STALE_BROKER_EPOCH, "Broker epoch has changed.")


def isr_from_leader(state: Leadership, broker: int, asked: NewIsr) -> Change | LeaderIsrAndControllerEpoch:
    """A leader's new isr: the change to be written, or what stands if it is so already; ApiError with Kafka's codes.

    The leader epoch stays. A write that is refused is INVALID_UPDATE_VERSION. Before version 2 of the request
    INELIGIBLE_REPLICA was called OPERATION_NOT_ATTEMPTED.
    """
    now = state.standings.get(asked.partition)
    if now is None or asked.partition[0] in state.deleting:
        raise ApiError(UNKNOWN_TOPIC_OR_PARTITION)
    if asked.partition_epoch > now.version or asked.leader_epoch > now.leader_epoch:
        raise ApiError(NOT_CONTROLLER)  # the leader knows more than we do: there must be another controller
    if asked.leader_epoch < now.leader_epoch:
        raise ApiError(FENCED_LEADER_EPOCH)
    if (broker, asked.isr, asked.recovering) == (now.leader, now.isr, False):
        return now  # it asks again, not having heard the answer
    if asked.partition_epoch < now.version:
        raise ApiError(INVALID_UPDATE_VERSION)
    _check_isr(state, broker, asked, now)
    return Change(asked.partition, now, now._replace(isr=asked.isr, controller_epoch=state.controller_epoch))


def _check_isr(state: Leadership, broker: int, asked: NewIsr, now: LeaderIsrAndControllerEpoch) -> None:
    """Kafka in ZooKeeper mode trusts a leader to be one and to be in its isr; with KRaft it looks, and so do we."""
    members = set(asked.isr)
    lasting = members <= set(state.replicas(asked.partition)) and len(members) == len(asked.isr)
    if asked.recovering or broker != now.leader or broker not in members or not lasting:
        raise ApiError(INVALID_REQUEST)
    if not members <= set(state.live) - state.shutting_down:
        raise ApiError(INELIGIBLE_REPLICA)
