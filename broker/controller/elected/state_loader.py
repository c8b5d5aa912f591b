"""Reads topics and partition states from the tree into the elected controller's ControllerContext."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from odradek.broker.controller.elected.topic_ids import TopicIds
from odradek.cluster.decisions.controller_state import ControllerContext, LeaderIsrAndControllerEpoch
from odradek.cluster.rules import topicnames
from odradek.cluster.tree import notices, znodes
from odradek.cluster.tree.tree import Delete, Operation, Stat, Tree
from odradek.cluster.tree.znodes import MalformedNode, Partition

log = logging.getLogger(__name__)


class LoadedState:
    """One controller term. Methods raise TreeUnavailable."""

    def __init__(self, tree: Tree, epoch: int, ids: TopicIds) -> None:
        self.context = ControllerContext(epoch)
        self._tree = tree
        self._ids = ids
        self._written: dict[Partition, int] = {}  # mzxid of each state's last write

    def reload(self) -> None:
        """Reload everything from the tree; keep only which topics are being deleted."""
        former = self.context
        self.context = ControllerContext(former.controller_epoch, former.broker_epochs)
        self.context.deleting, self.context.malformed_topics = former.deleting, former.malformed_topics
        self.read_topics(self.topics())

    def topics(self) -> list[str]:
        """The names of all topics, watched from now on."""
        names = self._tree.children(znodes.TOPICS, watch=True)
        self.context.malformed_topics.intersection_update(names)
        return names

    def read_topics(self, names: Iterable[str]) -> list[str]:
        """Read topics and their partitions' states; returns the topics that exist."""
        names = list(names)
        found = self._tree.get_many([znodes.topic_path(name) for name in names], watch=True)
        there = [name for name, node in zip(names, found, strict=True) if node and self._load_topic(name, *node)]
        self.read_states([(name, index) for name in there for index in self.context.topics[name].replicas])
        return there

    def _load_topic(self, name: str, data: bytes, stat: Stat) -> bool:
        """Whether the topic is valid; an invalid one stays unknown, or as it was."""
        try:
            wrong = topicnames.problem(name)
            if wrong:
                raise MalformedNode(wrong)
            self.context.put_topic(name, self._ids.identified(name, data, stat.version))
        except MalformedNode as error:
            log.error("ignoring topic %r: its node in ZooKeeper is invalid: %s", name, error)
            if not wrong:  # with an invalid name no broker has a log of it
                self.context.malformed_topics.add(name)
            return False
        self.context.malformed_topics.discard(name)
        return True

    def read_states(self, partitions: Sequence[Partition]) -> None:
        """Read the states of some partitions."""
        found = self._tree.get_many([znodes.state_path(*partition) for partition in partitions])
        for partition, node in zip(partitions, found, strict=True):
            if node is not None:
                self._load_state(partition, *node)

    def _load_state(self, partition: Partition, data: bytes, stat: Stat) -> None:
        try:
            partition_state = LeaderIsrAndControllerEpoch.read(znodes.decode_state(data), stat.version)
        except MalformedNode as error:
            log.error("ignoring %s-%d: its state in ZooKeeper is invalid: %s", *partition, error)
            self.context.malformed_states.add(partition)
            return
        self.context.malformed_states.discard(partition)
        self.context.put(partition, partition_state)
        self._written[partition] = stat.mzxid

    def take_notices(self, epoch_check: Operation) -> list[Partition]:
        """The partitions named by notices under /isr_change_notification; deletes the notices."""
        names = self._tree.children(znodes.ISR_CHANGES, watch=True)
        paths = [f"{znodes.ISR_CHANGES}/{name}" for name in names]
        found = self._tree.get_many(paths)
        self._tree.each([[epoch_check, Delete(path)] for path in paths])
        named = [partition for node in found if node is not None for partition in notices.decode_partitions(node[0])]
        return list(dict.fromkeys(named))

    def restarted_members(self, unsettled: Collection[int]) -> dict[int, set[Partition]]:
        """ISR members, by broker, that restarted unseen after the state was written, but for one that leads.

        An active controller would have removed them from the ISR; their logs may have lost records. The same goes for
        a restarted follower that is `unsettled`: a write about its former registration may have landed since. Where no
        member stayed, the others follow one of them: its log is the one that counts from now on, and they may lack
        records of it. (A session also ends without a restart: then the leader may have committed since.)
        """
        reborn: defaultdict[int, set[Partition]] = defaultdict(set)
        for partition, now in self.context.partition_states.items():
            new = self._restarted_since_write(partition, now.isr) | set(now.isr).intersection(unsettled) - {now.leader}
            if not self.context.live_replicas(partition, now.isr) - new:
                new -= {self._leads_next(partition, now)}
            for broker in new:
                reborn[broker].add(partition)
        return dict(reborn)

    def _leads_next(self, partition: Partition, now: LeaderIsrAndControllerEpoch) -> int | None:
        """The leader, or else the ISR member that an election takes; None if no member lives."""
        live = self.context.live_replicas(partition, now.isr)
        return next((one for one in (now.leader, *self.context.replicas(partition)) if one in live), None)

    def restarted_leaders(self) -> dict[Partition, int]:
        """Partitions led by a restarted broker, because no ISR member stayed; their leader epochs.

        A log that lost its end in a power failure must not replace those records in the same epoch: a replica that
        copied them could not detect the difference (KIP-101). An active controller would have started another epoch.
        """
        states = [(one, self.context.partition_states.get(one)) for one in self.context.partitions()]
        return {one: now.leader_epoch for one, now in states if now and self._restarted_since_write(one, [now.leader])}

    def _restarted_since_write(self, partition: Partition, brokers: Iterable[int]) -> set[int]:
        """The brokers that have restarted since the partition's state was written."""
        written = self._written.get(partition, 0)
        return {broker for broker in brokers if self.context.live.get(broker, 0) > written}
