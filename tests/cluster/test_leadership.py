"""The controller's decisions: what holds after any order of events, and Kafka's rules by example."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from odradek.cluster.leadership import Leadership
from odradek.cluster.znodes import Partition

from .leadership_world import World

BROKERS = range(5)
brokers = st.sets(st.sampled_from(BROKERS), min_size=1)
assignments = st.lists(st.permutations(BROKERS).flatmap(lambda p: st.integers(1, 4).map(lambda n: p[:n])), min_size=1)
choice = st.integers(0, 10_000)


class Cluster(RuleBasedStateMachine):
    """Brokers come and go, leaders change their isr, people ask for elections; nothing committed is ever lost."""

    @initialize(alive=brokers)
    def start(self, alive: set[int]) -> None:
        self.world, self.topics = World(alive), 0

    @property
    def state(self) -> Leadership:
        return self.world.state

    def pick(self, which: int) -> Partition:
        partitions = sorted(self.world.nodes)
        return partitions[which % len(partitions)]

    @rule(assignment=assignments, unclean=st.booleans())
    def create(self, assignment: list[list[int]], unclean: bool) -> None:
        name, self.topics = f"t{self.topics}", self.topics + 1
        if unclean:
            self.world.uncleanly.add(name)
        self.world.create(name, *assignment[:3])

    @rule(gone=brokers)
    def die(self, gone: set[int]) -> None:
        self.state.died(gone)
        self.world.after_loss()
        for partition, now in self.state.standings.items():
            there = self.state.there(partition)
            assert set(now.isr) <= there or not set(now.isr) & there

    @rule(back=brokers)
    def come(self, back: set[int]) -> None:
        self.state.started(dict.fromkeys(back - set(self.state.live), 1))
        self.world.after_start()
        for partition in self.world.nodes:
            if partition[0] in self.world.uncleanly:
                assert self.state.led(partition) or not self.state.online(partition)

    @rule(broker=st.sampled_from(BROKERS))
    def false_alarm(self, broker: int) -> None:
        if broker in self.state.live:
            self.die({broker})
            self.come({broker})

    @precondition(lambda self: self.world.nodes)
    @rule(which=choice, who=brokers, seen=st.booleans())
    def change_isr(self, which: int, who: set[int], seen: bool) -> None:
        partition = self.pick(which)
        node = self.world.nodes[partition]
        if node.leader in self.state.there(partition):
            fit = [broker for broker in self.state.replicas(partition) if broker in who & self.state.online(partition)]
            self.world.leader_writes(partition, list(dict.fromkeys([node.leader, *fit])), seen)

    @precondition(lambda self: self.world.nodes)
    @rule(which=choice)
    def lose_log_dir(self, which: int) -> None:
        partition = self.pick(which)
        there = sorted(self.state.there(partition))
        if there:
            broker = there[which % len(there)]
            assert self.state.log_dirs(broker, {partition}, set()) == {partition}
            assert self.state.log_dirs(broker, {partition}, set()) == set()
            self.world.after_loss()

    @rule(broker=st.sampled_from(BROKERS))
    def shut_down(self, broker: int) -> None:
        if broker in self.state.live:
            self.state.shutting_down.add(broker)
            self.world.settle(lambda: self.state.controlled_shutdown(broker).changes)
            for partition in self.state.led_by(broker):
                now = self.state.standings[partition]
                assert not set(now.isr) & self.state.online(partition)

    @rule()
    def failover(self) -> None:
        self.world.failover()
        self.world.after_loss()

    @invariant()
    def nothing_committed_is_lost(self) -> None:
        for partition, node in self.world.nodes.items():
            assert set(node.isr) <= self.world.holders[partition], partition

    @invariant()
    def who_can_lead_leads(self) -> None:
        for partition, now in self.state.standings.items():
            there = self.state.there(partition)
            assert now.leader in there or now.leader == -1
            assert now.leader in there or not set(now.isr) & self.state.online(partition)


Cluster.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestAnyOrderOfEvents = Cluster.TestCase
