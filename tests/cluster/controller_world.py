"""A cluster for tests of decisions: state nodes of the tree, and a controller with a possibly stale view.

Leaders write their ISR directly to the tree, so the controller's writes may be refused, as by ZooKeeper. Every
change is checked when it is written. `holders` are the replicas that have all records ever committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from odradek.cluster.decisions.controller_state import ControllerContext, LeaderIsrAndControllerEpoch, StateChange
from odradek.cluster.decisions.reassignment import Step
from odradek.cluster.tree.znodes import Partition, TopicNode

Decision = Callable[[], list[StateChange]]


class World:
    """Nodes, the holders of the data, and the controller's state."""

    def __init__(self, brokers: Iterable[int] = ()) -> None:
        self.nodes: dict[Partition, LeaderIsrAndControllerEpoch] = {}
        self.holders: dict[Partition, set[int]] = {}
        self.uncleanly: set[str] = set()  # topics with unclean elections
        self.state = ControllerContext(1)
        self.state.started({broker: 100 + broker for broker in brokers})

    def create(self, topic: str, *assignment: list[int]) -> None:
        """Create a topic's node; the controller writes the first states."""
        self.state.put_topic(topic, TopicNode(None, dict(enumerate(assignment))))
        self.settle(lambda: self.state.new_partitions(topic))

    def settle(self, decide: Decision, clean: bool = True) -> None:
        """Decide and write until no write is refused; then the same decision must be empty."""
        while not self.write(decide(), clean):
            pass
        assert decide() == []

    def write(self, changes: list[StateChange], clean: bool = True) -> bool:
        """Write each change on its condition; False if one was refused and its node read again."""
        assert len({change.partition for change in changes}) == len(changes)
        done = [self._write(change, clean) for change in changes]
        return all(done)

    def _write(self, change: StateChange, clean: bool) -> bool:
        partition, there = change.partition, self.nodes.get(change.partition)
        if there is not None and (change.before is None or there.version != change.before.version):
            self.state.put(partition, there)
            return False
        assert change.before == there == self.state.partition_states.get(partition)
        self.check(change, clean and partition[0] not in self.uncleanly)
        self.nodes[partition] = self.state.written(change, there.version + 1 if there else 0)
        lossy = there is not None and change.after.leader != -1 and change.after.leader not in there.isr
        assert change.is_unclean == lossy
        if there is None:
            self.holders[partition] = set(change.after.isr)
        elif change.after.leader != -1 and change.after.leader not in there.isr:
            self.holders[partition] = {change.after.leader}
        return True

    def check(self, change: StateChange, clean: bool) -> None:
        """Invariants of every change that a controller writes."""
        before, after = change.before, change.after
        assert after.leader_epoch == (before.leader_epoch + 1 if before else 0)
        assert after.controller_epoch == self.state.controller_epoch
        assert after.isr and set(after.isr) <= set(self.state.replicas(change.partition))
        assert after.leader in (-1, *after.isr)
        if before and (clean or self.state.suspected & set(before.isr)):
            assert set(after.isr) <= set(before.isr)
        if after.leader != -1 and (before is None or before.leader != after.leader):
            assert after.leader in self.state.online_replicas(change.partition)

    def leader_writes(self, partition: Partition, isr: list[int], seen: bool) -> None:
        """The leader writes the ISR; its members have all records, and only they have later committed ones for sure."""
        node = self.nodes[partition]
        self.nodes[partition] = node._replace(isr=tuple(isr), version=node.version + 1)
        self.holders[partition] = set(isr)
        if seen:
            self.state.put(partition, self.nodes[partition])

    def failover(self) -> None:
        """Another controller is elected and reads the tree."""
        old, self.state = self.state, ControllerContext(self.state.controller_epoch + 1)
        self.state.topics, self.state.live, self.state.offline = old.topics, old.live, old.offline
        self.state.suspected = old.suspected
        for partition, standing in self.nodes.items():
            self.state.put(partition, standing)

    def unclean(self, topic: str) -> bool:
        """Whether the topic allows unclean elections."""
        return topic in self.uncleanly

    def after_loss(self) -> None:
        """The decisions after lost brokers or directories."""
        self.settle(lambda: self.state.brokers_failed(self.unclean))

    def after_start(self) -> None:
        """The decisions after registrations."""
        self.settle(lambda: self.state.brokers_started(self.unclean))

    def follow(self, step: Step, dies_between: bool = False) -> bool:
        """Write a step of a reassignment, and delete the removed replicas;

        False when it was refused, or `dies_between` writes.
        """
        (topic, index), node = step.partition, self.state.topics[step.partition[0]]
        if step.assignment and not step.completes:
            self.state.put_topic(topic, step.assignment.into(node, index))
        if (dies_between and not step.completes) or not self.write([step.change] if step.change else []):
            return False
        if dies_between:
            return False
        if step.assignment and step.completes:
            self.state.put_topic(topic, step.assignment.into(node, index))
        self.delete(step)
        return True

    def delete(self, step: Step) -> None:
        """Stopped replicas lose their records."""
        for partition, broker in step.stop:
            assert broker not in self.state.replicas(partition)
            assert partition not in self.nodes or broker not in self.nodes[partition].isr
            self.holders.get(partition, set()).discard(broker)
