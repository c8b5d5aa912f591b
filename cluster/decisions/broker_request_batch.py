"""The requests that brokers get after decisions are written (kafka.controller.ControllerBrokerRequestBatch).

The brokers of a partition's replicas get LeaderAndIsr, all brokers get UpdateMetadata, and brokers whose replica must
stop get StopReplica. Fields have the names and meanings of Kafka's requests; the caller encodes them and sends them in
this order (LeaderAndIsr, UpdateMetadata, StopReplica).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from odradek.cluster.decisions.controller_state import ControllerContext, LeaderIsrAndControllerEpoch
from odradek.cluster.tree.znodes import Partition

DURING_DELETE = -2  # leader, and epoch in StopReplica, of a topic that is being deleted
NO_EPOCH = -1
Replica = tuple[Partition, int]  # partition, broker


class LeaderAndIsr(NamedTuple):
    """A partition of a LeaderAndIsr request; `is_new`: the broker need not have a log of it yet."""

    partition: Partition
    topic_id: bytes | None
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    is_new: bool


class UpdateMetadata(NamedTuple):
    """A partition of an UpdateMetadata request, which calls `partition_epoch` zk_version."""

    partition: Partition
    topic_id: bytes | None
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]


class StopReplica(NamedTuple):
    """A partition of a StopReplica request; `delete`: delete the log too."""

    partition: Partition
    leader_epoch: int
    delete: bool


class BrokerRequestBatch(NamedTuple):
    """The requests to one broker; an UpdateMetadata request without partitions only updates the live brokers."""

    leader_and_isr: list[LeaderAndIsr]
    metadata: list[UpdateMetadata]
    stop: list[StopReplica]


def requests(
    state: ControllerContext,
    changed: Iterable[Partition] = (),
    *,
    new: Collection[Partition | Replica] = (),
    stop: Mapping[Replica, bool] | None = None,
    shown: Iterable[Partition] = (),
) -> dict[int, BrokerRequestBatch]:
    """The requests by broker, for all live brokers, from the current `state`.

    `changed`: partitions for LeaderAndIsr and UpdateMetadata; `new` marks those, or single replicas of them, that were
    just created. `stop`: replicas that must stop, and whether to delete them; they get no LeaderAndIsr.
    `shown`: partitions for UpdateMetadata only, as when a leader has changed its isr.
    """
    stop, changed = stop or {}, list(changed)
    metadata = [_metadata(state, each) for each in dict.fromkeys([*changed, *shown]) if each in state.partition_states]
    batches = {broker: BrokerRequestBatch([], metadata, []) for broker in state.live}
    for partition in changed:
        for broker in _replicated_on(state, partition, stop):
            is_new = partition in new or (partition, broker) in new
            batches[broker].leader_and_isr.append(_leader_and_isr(state, partition, is_new))
    for (partition, broker), delete in stop.items():
        if broker in batches:
            batches[broker].stop.append(_stop(state, partition, delete))
    return batches


def full_state(state: ControllerContext, brokers: Collection[int]) -> dict[int, BrokerRequestBatch]:
    """The requests after `brokers` have started: the full state for them, for the others their replicas' return."""
    known = [each for each in state.partitions() if each in state.partition_states]
    theirs = [each for each in known if not set(brokers).isdisjoint(state.replicas(each))]
    batches = requests(state, theirs)
    everything = [_metadata(state, partition) for partition in known]
    return {
        broker: BrokerRequestBatch(of.leader_and_isr, everything + _deleting(state, broker), [])
        if broker in brokers
        else BrokerRequestBatch([], of.metadata, [])
        for broker, of in batches.items()
    }


def log_dir_probe(state: ControllerContext, broker: int) -> BrokerRequestBatch:
    """LeaderAndIsr for every replica of `broker`, in any state: the response shows which are offline.

    UpdateMetadata for all partitions goes with it: a broker shows a topic to clients when it has metadata of all its
    partitions, and the topic may be new to it. This happens when the controller's process died before it sent the
    metadata, and the next one could not parse the topic's node at first.
    """
    known = [each for each in state.partitions() if each in state.partition_states]
    theirs = [_leader_and_isr(state, each, False) for each in known if broker in state.replicas(each)]
    return BrokerRequestBatch(theirs, [_metadata(state, partition) for partition in known], [])


def is_full(state: ControllerContext, broker: int) -> bool:
    """Whether `full_state` names every partition that `broker` may have a log of: any other log is a stray.

    False while a topic's node cannot be parsed: the replicas of that topic are unknown.
    """
    if state.malformed_topics:
        return False
    topics = state.topics.keys() - state.deleting
    return all(partition in state.partition_states for partition in _replicas_on(state, topics, broker))


def _deleting(state: ControllerContext, broker: int) -> list[UpdateMetadata]:
    """Partitions that wait for deletion: the broker keeps them until StopReplica."""
    there = (each for each in _replicas_on(state, state.deleting, broker) if each in state.partition_states)
    return [_metadata_of(state, partition, state.partition_states[partition]) for partition in there]


def _replicas_on(state: ControllerContext, topics: Iterable[str], broker: int) -> Iterator[Partition]:
    for name in topics:
        for index, replicas in state.topics[name].replicas.items():
            if broker in replicas:
                yield name, index


def _replicated_on(state: ControllerContext, partition: Partition, stop: Mapping[Replica, bool]) -> list[int]:
    """Brokers for LeaderAndIsr; none when the leader is unknown or the topic is being deleted."""
    if partition not in state.partition_states or partition[0] in state.deleting:
        return []
    there = state.live_replicas(partition)
    return [broker for broker in state.replicas(partition) if broker in there and (partition, broker) not in stop]


def _leader_and_isr(state: ControllerContext, partition: Partition, is_new: bool) -> LeaderAndIsr:
    topic, index = partition
    node, now = state.topics[topic], state.partition_states[partition]
    moving = tuple(node.adding.get(index, ())), tuple(node.removing.get(index, ()))
    epochs = now.controller_epoch, now.leader, now.leader_epoch
    replicas = tuple(state.replicas(partition))
    return LeaderAndIsr(partition, node.id, *epochs, now.isr, now.version, replicas, *moving, is_new)


def _metadata(state: ControllerContext, partition: Partition) -> UpdateMetadata:
    now = state.partition_states[partition]
    if partition[0] in state.deleting:
        now = now._replace(leader=DURING_DELETE, leader_epoch=0, version=0)
    return _metadata_of(state, partition, now)


def _metadata_of(state: ControllerContext, partition: Partition, now: LeaderIsrAndControllerEpoch) -> UpdateMetadata:
    replicas = state.replicas(partition)
    online = state.online_replicas(partition)
    gone = tuple(broker for broker in replicas if broker not in online)
    node = state.topics.get(partition[0])
    epochs = now.controller_epoch, now.leader, now.leader_epoch
    topic_id = node.id if node else None
    return UpdateMetadata(partition, topic_id, *epochs, now.isr, now.version, tuple(replicas), gone)


def _stop(state: ControllerContext, partition: Partition, delete: bool) -> StopReplica:
    now = state.partition_states.get(partition)
    epoch = now.leader_epoch if now else NO_EPOCH
    return StopReplica(partition, DURING_DELETE if partition[0] in state.deleting else epoch, delete)
