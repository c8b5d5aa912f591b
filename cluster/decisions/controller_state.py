"""What the elected controller knows of every partition, and what it decides when brokers come, go or fail.

Facts are entered (`put`, `died`, `written`, …); decisions are asked for and change nothing: each is a list of `Change`,
at most one for a partition, to be written to its state node on condition of the version. One that was written is
entered with `written`; one that was refused means that the node is to be read again (`put`) and the decision asked
for again: decisions follow from facts alone, so that asking twice for what was written gives nothing.

Rules are those of kafka.controller.PartitionStateMachine and ReplicaStateMachine, in one step instead of two: a new
leader begins with those of the isr that live. Where Kafka differs between runs (which of an isr that dies at once
stays in it) all of it stays, for each of them has all that was committed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from odradek.cluster.decisions import elections
from odradek.cluster.decisions.elections import NO_LEADER
from odradek.cluster.decisions.lives import Lives
from odradek.cluster.tree.znodes import Partition, PartitionState, TopicNode

Unclean = Callable[[str], bool]  # unclean.leader.election.enable of a topic


class LeaderIsrAndControllerEpoch(NamedTuple):
    """A partition's leader (or NO_LEADER) and isr; `version` is that of its state node, -1 while there is none."""

    leader: int
    isr: tuple[int, ...]
    leader_epoch: int
    controller_epoch: int
    version: int = -1

    @classmethod
    def read(cls, state: PartitionState, version: int) -> LeaderIsrAndControllerEpoch:
        """What a state node of that version says."""
        return cls(state.leader, tuple(state.isr), state.leader_epoch, state.controller_epoch, version)

    @property
    def state(self) -> PartitionState:
        """For the state node."""
        return PartitionState(self.leader, self.leader_epoch, list(self.isr), self.controller_epoch)


class Change(NamedTuple):
    """A decision to be written: a node to be made when `before` is None, else replaced if it has `before.version`."""

    partition: Partition
    before: LeaderIsrAndControllerEpoch | None
    after: LeaderIsrAndControllerEpoch


class Shutdown(NamedTuple):
    """What a controlled shutdown takes: `changes`, and partitions whose follower on that broker shall stop."""

    changes: list[Change]
    stopped: list[Partition]


class Leadership:
    """All topics, partitions and brokers, as the controller of `controller_epoch` knows them."""

    def __init__(self, controller_epoch: int, lives: Lives | None = None) -> None:
        """`lives`: what this controller knows of brokers' lives from before it read everything again."""
        self.controller_epoch = controller_epoch
        self.lives = Lives() if lives is None else lives
        self.topics: dict[str, TopicNode] = {}
        self.standings: dict[Partition, LeaderIsrAndControllerEpoch] = {}
        self.live: dict[int, int] = {}  # registered brokers and their epochs, with those that shut down
        self.shutting_down: set[int] = set()
        self.suspected: set[int] = set()  # not among `live`, but registered: they refuse connections
        self.offline: dict[int, set[Partition]] = {}  # by broker: replicas in log directories that failed
        self.deleting: set[str] = set()  # topics about which nothing is decided any more
        self.remade: set[str] = set()  # topics whose names were others', of which brokers may still have logs
        self.unreadable: set[Partition] = set()  # whose state nodes make no sense: nothing is decided before they do
        self.unread: set[str] = set()  # topics whose nodes make no sense: brokers may have logs of any of them
        self._removed: dict[str, TopicNode] = {}  # topics that were taken out of the tree by hand

    # -- facts

    def put_topic(self, name: str, node: TopicNode) -> None:
        """What a topic's node says: a new topic, more partitions, another assignment.

        Of another id it is another topic, made after the nodes of the former were taken out of the tree by hand.
        """
        former = self._removed.pop(name, None) or self.topics.get(name)
        if former is not None and former.id and node.id and former.id != node.id:
            self.remade.add(name)
            self._forget(name, former)
        self.topics[name] = node

    def drop_topic(self, name: str) -> None:
        """A topic is gone."""
        node = self.topics.pop(name, None)
        if node is not None:
            self._forget(name, node)
        if node is not None and name not in self.deleting:
            self._removed[name] = node
        self.deleting.discard(name)

    def _forget(self, name: str, node: TopicNode) -> None:
        """How its partitions stood. Another topic of that name may have replicas where this one's were offline."""
        partitions = [(name, index) for index in node.replicas]
        self.lives.forget(partitions)
        for partition in partitions:
            self.standings.pop(partition, None)
        for replicas in self.offline.values():
            replicas.difference_update(partitions)

    def put(self, partition: Partition, standing: LeaderIsrAndControllerEpoch) -> None:
        """What a state node says."""
        self.standings[partition] = standing

    def written(self, change: Change, version: int) -> LeaderIsrAndControllerEpoch:
        """`change` is in the tree, as `version` of its node; what stands now."""
        standing = change.after._replace(version=version)
        self.standings[change.partition] = standing
        if change.before is None or change.before.leader_epoch < standing.leader_epoch:
            told = self.live.keys() - self.shutting_down
            self.lives.begun(change.partition, set(self.replicas(change.partition)) - told)
        return standing

    def started(self, brokers: Mapping[int, int]) -> None:
        """Brokers have registered: ids and epochs. One known with another epoch must have `died` before."""
        self.live.update(brokers)
        self.suspected.difference_update(brokers)
        unheard = {broker: self.lives.unheard(broker) for broker in brokers}
        again = [broker for broker, epoch in brokers.items() if self.lives.begin(broker, epoch)]
        for partition, now in self.standings.items() if again else ():
            for broker in set(again).intersection(self.replicas(partition)).difference(now.isr):
                if partition not in unheard[broker]:
                    self.lives.outlive(partition, now.leader_epoch, broker)

    def died(self, brokers: Iterable[int], suspected: bool = False) -> None:
        """Registrations are gone; or `suspected`: they are there, but their brokers seem not to be.

        On a suspicion others of the ISR lead. It is no reason to elect out of the ISR, which loses records for good.
        """
        for broker in brokers:
            (self.suspected.add if suspected else self.suspected.discard)(broker)
            self.live.pop(broker, None)
            self.offline.pop(broker, None)
            self.shutting_down.discard(broker)

    def log_dirs(self, broker: int, failed: Collection[Partition], fine: Collection[Partition]) -> set[Partition]:
        """A broker's answers about its replicas' directories; those that `failed` and were not known to have."""
        before = self.offline.get(broker, set())
        self.offline[broker] = (before - set(fine)) | set(failed)
        return self.offline[broker] - before

    # -- questions

    def partitions(self, topics: Iterable[str] | None = None) -> Iterator[Partition]:
        """All partitions that are not being deleted, or those of some topics."""
        for name in self.topics if topics is None else topics:
            if name in self.topics and name not in self.deleting:
                yield from ((name, index) for index in self.topics[name].replicas)

    def replicas(self, partition: Partition) -> Sequence[int]:
        """The assignment, preferred leader first; () for a partition that there is not."""
        node = self.topics.get(partition[0])
        return node.replicas.get(partition[1], ()) if node else ()

    def named(self, topic_id: bytes) -> str | None:
        """The topic that has this id."""
        return next((name for name, node in self.topics.items() if node.id == topic_id), None)

    def there(self, partition: Partition, replicas: Sequence[int] | None = None) -> set[int]:
        """Brokers that have a replica (or would, of others than now) in working order, with those that shut down."""
        return {
            broker
            for broker in (self.replicas(partition) if replicas is None else replicas)
            if broker in self.live and partition not in self.offline.get(broker, ())
        }

    def online(self, partition: Partition, replicas: Sequence[int] | None = None) -> set[int]:
        """Brokers that have a replica in working order and are there to stay: who may lead."""
        return self.there(partition, replicas) - self.shutting_down

    def may_lose(self, partition: Partition) -> bool:
        """Whether an unclean election is possible: nobody in the ISR is only suspected to be dead."""
        now = self.standings.get(partition)
        return now is None or self.suspected.isdisjoint(now.isr)

    def registered(self, broker: int) -> int | None:
        """The epoch of a broker that is registered, also if it is suspected to be dead; None where it is not known."""
        return self.lives.epoch(broker) if broker in self.suspected else self.live.get(broker)

    def led(self, partition: Partition) -> bool:
        """Whether it has a leader that is there (one that shuts down leads until another can)."""
        now = self.standings.get(partition)
        return now is not None and now.leader in self.there(partition)

    def led_by(self, broker: int) -> list[Partition]:
        """Replicated partitions that `broker` leads: what keeps it from a controlled shutdown."""
        return [
            partition
            for partition in self.partitions()
            if len(self.replicas(partition)) > 1 and self._leader(partition) == broker
        ]

    def _leader(self, partition: Partition) -> int:
        now = self.standings.get(partition)
        return now.leader if now else NO_LEADER

    # -- decisions

    def new_partitions(self, topic: str) -> list[Change]:
        """First standings of a topic's partitions that have none; none for those without a live replica yet."""
        return _some(self._first(partition) for partition in self.partitions([topic]))

    def brokers_failed(self, unclean: Unclean) -> list[Change]:
        """After `died`, `log_dirs`, or on taking office: other leaders where they are gone; the gone leave each isr.

        Nobody can lead: the leader becomes NO_LEADER, and the last of the isr stay in it.
        """
        return _some(self._after_loss(partition, unclean) for partition in self.partitions())

    def brokers_started(self, unclean: Unclean, topics: Iterable[str] | None = None) -> list[Change]:
        """After `started`, or when `unclean` has changed for `topics`: leaders for partitions without, if any can;
        another epoch where a former life of who has started may be about to join the isr.
        """
        return _some(self._elected(one, unclean) or self._renewed(one) for one in self.partitions(topics))

    def begun_again(self, epochs: Mapping[Partition, int]) -> list[Change]:
        """Another epoch for each that is still in this one, under the same leader."""
        standings = {one: now for one, now in self.standings.items() if epochs.get(one) == now.leader_epoch}
        return _some(self.change(one, now.leader, now.isr, anew=True) for one, now in standings.items())

    def controlled_shutdown(self, broker: int) -> Shutdown:
        """Moves what `broker` leads to others if any can lead, and takes it out of the isr where it follows."""
        changes, stopped = [], []
        for partition in self.partitions():
            replicas, now = self.replicas(partition), self.standings.get(partition)
            if broker not in replicas or len(replicas) < 2 or now is None:
                continue
            if now.leader != broker:
                stopped.append(partition)
            changes.append(self._without(partition, now, broker))
        return Shutdown(_some(changes), stopped)

    def _first(self, partition: Partition) -> Change | None:
        online = self.online(partition)
        isr = tuple(broker for broker in self.replicas(partition) if broker in online)
        if partition in self.standings or partition in self.unreadable or not isr:
            return None
        return Change(partition, None, LeaderIsrAndControllerEpoch(isr[0], isr, 0, self.controller_epoch))

    def _after_loss(self, partition: Partition, unclean: Unclean) -> Change | None:
        change, now = self._elected(partition, unclean), self.standings.get(partition)
        if change or now is None:
            return change
        there, replicas, members = self.there(partition), self.replicas(partition), self._members(partition, now)
        isr = [broker for broker in members if broker in there] or [broker for broker in members if broker in replicas]
        change = self.change(partition, now.leader if now.leader in there else NO_LEADER, isr or members)
        return change or self._renewed(partition)

    def _elected(self, partition: Partition, unclean: Unclean) -> Change | None:
        now = self.standings.get(partition)
        if now is None:
            return self._first(partition)
        if self.led(partition):
            return None
        replicas, online = self.replicas(partition), self.online(partition)
        lossy = unclean(partition[0]) and self.may_lose(partition)
        elected = elections.offline(replicas, self._members(partition, now), online, lossy)
        return self.change(partition, elected.leader, elected.isr) if elected else None

    def _renewed(self, partition: Partition) -> Change | None:
        """Another epoch, where followers may be about to join the isr by what their former lives have fetched."""
        now = self.standings.get(partition)
        if now is None or not self.led(partition) or not self.lives.outlived(partition, now.leader_epoch):
            return None
        return self.change(partition, now.leader, self._members(partition, now), anew=True)

    def _members(self, partition: Partition, now: LeaderIsrAndControllerEpoch) -> Sequence[int]:
        """The isr but for those that are in it by what a former life of theirs has fetched, if others are."""
        outlived = self.lives.outlived(partition, now.leader_epoch) - {now.leader}
        return tuple(broker for broker in now.isr if broker not in outlived) or now.isr

    def _without(self, partition: Partition, now: LeaderIsrAndControllerEpoch, broker: int) -> Change | None:
        if now.leader != broker:
            isr = tuple(other for other in now.isr if other != broker)
            return self.change(partition, now.leader, isr or now.isr)
        leaving = self.shutting_down | {broker}
        elected = elections.controlled_shutdown(self.replicas(partition), now.isr, self.there(partition), leaving)
        return self.change(partition, elected.leader, elected.isr) if elected else None

    def change(self, partition: Partition, leader: int, isr: Sequence[int], anew: bool = False) -> Change | None:
        """The next standing, with the next leader epoch; None when nothing changes, unless it shall begin `anew`.

        None, too, for what a later controller has written: this one has been deposed without knowing it.
        """
        now = self.standings[partition]
        if now.controller_epoch > self.controller_epoch:
            return None
        after = LeaderIsrAndControllerEpoch(
            leader, tuple(isr), now.leader_epoch + 1, self.controller_epoch, now.version
        )
        return Change(partition, now, after) if anew or after[:2] != now[:2] else None


def _some(changes: Iterable[Change | None]) -> list[Change]:
    return [change for change in changes if change is not None]
