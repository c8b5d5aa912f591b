"""The elected controller's state of every partition, and its decisions when brokers start, stop or fail.

The caller records facts (`put`, `died`, `written`, …); decisions change nothing: each is a list of `StateChange`, at
most one per partition, for a conditional write (by version) to its state node. After a successful write, call
`written`; after a refused one, read the node again (`put`) and repeat the decision. Decisions depend on facts alone, so
a repeated decision returns nothing for changes that were written.

The rules are those of kafka.controller.PartitionStateMachine and ReplicaStateMachine, in one step instead of two: a
new leader starts with the live members of the isr. Where Kafka's result varies (which members stay in an isr that dies
all at once), all members stay, because each has all committed records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from odradek.cluster.decisions import elections
from odradek.cluster.decisions.broker_epochs import BrokerEpochs
from odradek.cluster.decisions.elections import NO_LEADER
from odradek.cluster.tree.znodes import Partition, PartitionState, TopicNode

Unclean = Callable[[str], bool]  # unclean.leader.election.enable of a topic


class LeaderIsrAndControllerEpoch(NamedTuple):
    """A partition's leader (or NO_LEADER) and isr; `version` is its state node's, -1 while there is none."""

    leader: int
    isr: tuple[int, ...]
    leader_epoch: int
    controller_epoch: int
    version: int = -1

    @classmethod
    def read(cls, state: PartitionState, version: int) -> LeaderIsrAndControllerEpoch:
        """The contents of a state node of that version."""
        return cls(state.leader, tuple(state.isr), state.leader_epoch, state.controller_epoch, version)

    @property
    def state(self) -> PartitionState:
        """The contents for the state node."""
        return PartitionState(self.leader, self.leader_epoch, list(self.isr), self.controller_epoch)


class StateChange(NamedTuple):
    """A decision to write: create the node when `before` is None, else replace it if it has `before.version`."""

    partition: Partition
    before: LeaderIsrAndControllerEpoch | None
    after: LeaderIsrAndControllerEpoch

    @property
    def is_unclean(self) -> bool:
        """Whether it elects a leader that was not in sync: records that it lacks are lost."""
        leader, before = self.after.leader, self.before
        return before is not None and leader not in (NO_LEADER, before.leader) and leader not in before.isr


class Shutdown(NamedTuple):
    """A controlled shutdown's decisions: `changes`, and partitions whose follower on that broker must stop."""

    changes: list[StateChange]
    stopped: list[Partition]


class ControllerContext:
    """All topics, partitions and brokers as known to the controller of `controller_epoch`."""

    def __init__(self, controller_epoch: int, broker_epochs: BrokerEpochs | None = None) -> None:
        """`broker_epochs`: what this controller knew of them before it reloaded the state."""
        self.controller_epoch = controller_epoch
        self.broker_epochs = BrokerEpochs() if broker_epochs is None else broker_epochs
        self.topics: dict[str, TopicNode] = {}
        self.partition_states: dict[Partition, LeaderIsrAndControllerEpoch] = {}
        self.live: dict[int, int] = {}  # registered brokers, also those shutting down, and their epochs
        self.shutting_down: set[int] = set()
        self.suspected: set[int] = set()  # registered, but not in `live`: they refuse connections
        self.offline: dict[int, set[Partition]] = {}  # by broker: replicas in failed log directories
        self.deleting: set[str] = set()  # topics that decisions skip
        self.recreated: set[str] = set()  # topics that reuse the name of another one; brokers may still have its logs
        self.malformed_states: set[Partition] = set()  # malformed state nodes: no decision until they parse
        self.malformed_topics: set[str] = set()  # topics with malformed nodes: any broker may have logs of them
        self._removed: dict[str, TopicNode] = {}  # topics that were deleted from the tree by hand

    # -- facts

    def put_topic(self, name: str, node: TopicNode) -> None:
        """Record a topic's node: a new topic, more partitions, another assignment.

        With another id it is another topic, created after the former one's nodes were deleted from the tree by hand.
        """
        former = self._removed.pop(name, None) or self.topics.get(name)
        if former is not None and former.id and node.id and former.id != node.id:
            self.recreated.add(name)
            self._forget(name, former)
        self.topics[name] = node

    def drop_topic(self, name: str) -> None:
        """Record that a topic is gone."""
        node = self.topics.pop(name, None)
        if node is not None:
            self._forget(name, node)
        if node is not None and name not in self.deleting:
            self._removed[name] = node
        self.deleting.discard(name)

    def _forget(self, name: str, node: TopicNode) -> None:
        """Drop its partitions' state. Another topic of that name may have replicas where this one's were offline."""
        partitions = [(name, index) for index in node.replicas]
        self.broker_epochs.forget(partitions)
        for partition in partitions:
            self.partition_states.pop(partition, None)
        for replicas in self.offline.values():
            replicas.difference_update(partitions)

    def put(self, partition: Partition, state: LeaderIsrAndControllerEpoch) -> None:
        """Record the contents of a state node."""
        self.partition_states[partition] = state

    def written(self, change: StateChange, version: int) -> LeaderIsrAndControllerEpoch:
        """Record that `change` is in the tree, as `version` of its node; returns the new state."""
        state = change.after._replace(version=version)
        self.partition_states[change.partition] = state
        if change.before is None or change.before.leader_epoch < state.leader_epoch:
            receivers = self.live.keys() - self.shutting_down
            self.broker_epochs.epoch_begun(change.partition, set(self.replicas(change.partition)) - receivers)
        return state

    def started(self, brokers: Mapping[int, int]) -> None:
        """Record registrations: broker ids and epochs. Call `died` first for a broker known with another epoch."""
        self.live.update(brokers)
        self.suspected.difference_update(brokers)
        unheard = {broker: self.broker_epochs.take_unsent(broker) for broker in brokers}
        again = [broker for broker, epoch in brokers.items() if self.broker_epochs.begin(broker, epoch)]
        for partition, now in self.partition_states.items() if again else ():
            for broker in set(again).intersection(self.replicas(partition)).difference(now.isr):
                if partition not in unheard[broker]:
                    self.broker_epochs.mark_stale(partition, now.leader_epoch, broker)

    def died(self, brokers: Iterable[int], suspected: bool = False) -> None:
        """Record lost registrations; or, if `suspected`, brokers that are registered but seem dead.

        On a suspicion other ISR members take over. It never causes an unclean election, which loses records for good.
        """
        for broker in brokers:
            (self.suspected.add if suspected else self.suspected.discard)(broker)
            self.live.pop(broker, None)
            self.offline.pop(broker, None)
            self.shutting_down.discard(broker)

    def log_dirs(self, broker: int, failed: Collection[Partition], fine: Collection[Partition]) -> set[Partition]:
        """Record a broker's report on its replicas' log directories; returns newly failed replicas."""
        before = self.offline.get(broker, set())
        self.offline[broker] = (before - set(fine)) | set(failed)
        return self.offline[broker] - before

    # -- questions

    def partitions(self, topics: Iterable[str] | None = None) -> Iterator[Partition]:
        """All partitions that are not being deleted, or only those of `topics`."""
        for name in self.topics if topics is None else topics:
            if name in self.topics and name not in self.deleting:
                yield from ((name, index) for index in self.topics[name].replicas)

    def replicas(self, partition: Partition) -> Sequence[int]:
        """The assignment, preferred leader first; () for an unknown partition."""
        node = self.topics.get(partition[0])
        return node.replicas.get(partition[1], ()) if node else ()

    def topic_name(self, topic_id: bytes) -> str | None:
        """The topic that has this id."""
        return next((name for name, node in self.topics.items() if node.id == topic_id), None)

    def live_replicas(self, partition: Partition, replicas: Sequence[int] | None = None) -> set[int]:
        """Live brokers with a working replica, of the assignment or of `replicas`; includes those shutting down."""
        return {
            broker
            for broker in (self.replicas(partition) if replicas is None else replicas)
            if broker in self.live and partition not in self.offline.get(broker, ())
        }

    def online_replicas(self, partition: Partition, replicas: Sequence[int] | None = None) -> set[int]:
        """Brokers that may lead: they have a working replica and are not shutting down."""
        return self.live_replicas(partition, replicas) - self.shutting_down

    def allows_unclean(self, partition: Partition) -> bool:
        """Whether an unclean election is possible: no ISR member is merely suspected to be dead."""
        now = self.partition_states.get(partition)
        return now is None or self.suspected.isdisjoint(now.isr)

    def registered(self, broker: int) -> int | None:
        """The epoch of a registered broker, even if it is suspected to be dead; None if it is unknown."""
        return self.broker_epochs.epoch(broker) if broker in self.suspected else self.live.get(broker)

    def has_live_leader(self, partition: Partition) -> bool:
        """Whether it has a live leader (a leader that shuts down counts until another can take over)."""
        now = self.partition_states.get(partition)
        return now is not None and now.leader in self.live_replicas(partition)

    def partitions_led_by(self, broker: int) -> list[Partition]:
        """Replicated partitions that `broker` leads: they block its controlled shutdown."""
        return [
            partition
            for partition in self.partitions()
            if len(self.replicas(partition)) > 1 and self._leader(partition) == broker
        ]

    def _leader(self, partition: Partition) -> int:
        now = self.partition_states.get(partition)
        return now.leader if now else NO_LEADER

    # -- decisions

    def new_partitions(self, topic: str) -> list[StateChange]:
        """First states for a topic's partitions without one; skips partitions without a live replica."""
        return _not_none(self._first_state(partition) for partition in self.partitions([topic]))

    def brokers_failed(self, unclean: Unclean) -> list[StateChange]:
        """After `died`, `log_dirs`, or a controller election: replace lost leaders, and remove lost brokers from isrs.

        If no broker can lead, the leader becomes NO_LEADER, and the last isr members stay in it.
        """
        return _not_none(self._after_loss(partition, unclean) for partition in self.partitions())

    def brokers_started(self, unclean: Unclean, topics: Iterable[str] | None = None) -> list[StateChange]:
        """After `started`, or when `unclean` has changed for `topics`: elect leaders for partitions without one, and
        raise the leader epoch where a late write may add a started broker to the isr by its former fetches.
        """
        return _not_none(self._election(one, unclean) or self._epoch_bump(one) for one in self.partitions(topics))

    def raise_epochs(self, epochs: Mapping[Partition, int]) -> list[StateChange]:
        """Raise the leader epoch, under the same leader, of each partition that still has the epoch in `epochs`."""
        states = {one: now for one, now in self.partition_states.items() if epochs.get(one) == now.leader_epoch}
        return _not_none(self.change(one, now.leader, now.isr, new_epoch=True) for one, now in states.items())

    def controlled_shutdown(self, broker: int) -> Shutdown:
        """Move leadership from `broker` to other replicas that can lead, and remove it from isrs as a follower."""
        changes, stopped = [], []
        for partition in self.partitions():
            replicas, now = self.replicas(partition), self.partition_states.get(partition)
            if broker not in replicas or len(replicas) < 2 or now is None:
                continue
            if now.leader != broker:
                stopped.append(partition)
            changes.append(self._shutdown_change(partition, now, broker))
        return Shutdown(_not_none(changes), stopped)

    def _first_state(self, partition: Partition) -> StateChange | None:
        online = self.online_replicas(partition)
        isr = tuple(broker for broker in self.replicas(partition) if broker in online)
        if partition in self.partition_states or partition in self.malformed_states or not isr:
            return None
        return StateChange(partition, None, LeaderIsrAndControllerEpoch(isr[0], isr, 0, self.controller_epoch))

    def _after_loss(self, partition: Partition, unclean: Unclean) -> StateChange | None:
        change, now = self._election(partition, unclean), self.partition_states.get(partition)
        if change or now is None:
            return change
        there, replicas, members = (
            self.live_replicas(partition),
            self.replicas(partition),
            self._current_isr(partition, now),
        )
        isr = [broker for broker in members if broker in there] or [broker for broker in members if broker in replicas]
        change = self.change(partition, now.leader if now.leader in there else NO_LEADER, isr or members)
        return change or self._epoch_bump(partition)

    def _election(self, partition: Partition, unclean: Unclean) -> StateChange | None:
        now = self.partition_states.get(partition)
        if now is None:
            return self._first_state(partition)
        if self.has_live_leader(partition):
            return None
        replicas, online = self.replicas(partition), self.online_replicas(partition)
        lossy = unclean(partition[0]) and self.allows_unclean(partition)
        elected = elections.offline(replicas, self._current_isr(partition, now), online, lossy)
        return self.change(partition, elected.leader, elected.isr) if elected else None

    def _epoch_bump(self, partition: Partition) -> StateChange | None:
        """Raise the leader epoch where followers may be about to join the isr by fetches before their restart."""
        now = self.partition_states.get(partition)
        if now is None or not self.has_live_leader(partition):
            return None
        if not self.broker_epochs.stale_followers(partition, now.leader_epoch):
            return None
        return self.change(partition, now.leader, self._current_isr(partition, now), new_epoch=True)

    def _current_isr(self, partition: Partition, now: LeaderIsrAndControllerEpoch) -> Sequence[int]:
        """The isr without members that joined by fetches before their restart; the full isr if no others are in it."""
        stale = self.broker_epochs.stale_followers(partition, now.leader_epoch) - {now.leader}
        return tuple(broker for broker in now.isr if broker not in stale) or now.isr

    def _shutdown_change(
        self, partition: Partition, now: LeaderIsrAndControllerEpoch, broker: int
    ) -> StateChange | None:
        if now.leader != broker:
            isr = tuple(other for other in now.isr if other != broker)
            return self.change(partition, now.leader, isr or now.isr)
        leaving = self.shutting_down | {broker}
        elected = elections.controlled_shutdown(
            self.replicas(partition), now.isr, self.live_replicas(partition), leaving
        )
        return self.change(partition, elected.leader, elected.isr) if elected else None

    def change(
        self, partition: Partition, leader: int, isr: Sequence[int], new_epoch: bool = False
    ) -> StateChange | None:
        """The next state, with the next leader epoch; None when nothing changes, except with `new_epoch`.

        None, too, for a state that a later controller wrote: this controller was superseded without noticing.
        """
        now = self.partition_states[partition]
        if now.controller_epoch > self.controller_epoch:
            return None
        after = LeaderIsrAndControllerEpoch(
            leader, tuple(isr), now.leader_epoch + 1, self.controller_epoch, now.version
        )
        return StateChange(partition, now, after) if new_epoch or after[:2] != now[:2] else None


def _not_none(changes: Iterable[StateChange | None]) -> list[StateChange]:
    return [change for change in changes if change is not None]
