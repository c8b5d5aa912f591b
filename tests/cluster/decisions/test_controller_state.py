"""The controller's decisions: invariants under any order of events, and Kafka's rules by example."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from odradek.cluster.decisions.controller_state import ControllerContext, LeaderIsrAndControllerEpoch
from odradek.cluster.tree.znodes import Partition, PartitionState, TopicNode

from ..controller_world import World

BROKERS = range(5)
brokers = st.sets(st.sampled_from(BROKERS), min_size=1)
assignments = st.lists(st.permutations(BROKERS).flatmap(lambda p: st.integers(1, 4).map(lambda n: p[:n])), min_size=1)
choice = st.integers(0, 10_000)


class Cluster(RuleBasedStateMachine):
    """Brokers start and fail, leaders change their ISRs, administrators elect; no committed record is lost."""

    @initialize(alive=brokers)
    def start(self, alive: set[int]) -> None:
        self.world, self.topics = World(alive), 0

    @property
    def state(self) -> ControllerContext:
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
    def die(self, gone: set[int], suspected: bool = False) -> None:
        self.state.died(gone, suspected)
        self.world.after_loss()
        for partition, now in self.state.partition_states.items():
            there = self.state.live_replicas(partition)
            assert set(now.isr) <= there or not set(now.isr) & there

    @rule(back=brokers)
    def come(self, back: set[int]) -> None:
        self.state.started(dict.fromkeys(back - set(self.state.live), 1))
        self.world.after_start()
        for partition in self.world.nodes:
            if partition[0] in self.world.uncleanly:
                assert self.state.has_live_leader(partition) or not (
                    self.state.online_replicas(partition) and self.state.allows_unclean(partition)
                )

    @rule(broker=st.sampled_from(BROKERS))
    def false_alarm(self, broker: int) -> None:
        self.suspect(broker)
        self.come({broker} & self.state.suspected)

    @rule(broker=st.sampled_from(BROKERS))
    def suspect(self, broker: int) -> None:
        """The registration ends later (`die`), or never (`come`)."""
        if broker in self.state.live:
            self.die({broker}, suspected=True)

    @precondition(lambda self: self.world.nodes)
    @rule(which=choice, who=brokers, seen=st.booleans())
    def change_isr(self, which: int, who: set[int], seen: bool) -> None:
        partition = self.pick(which)
        node = self.world.nodes[partition]
        if node.leader in self.state.live_replicas(partition):
            fit = [
                broker
                for broker in self.state.replicas(partition)
                if broker in who & self.state.online_replicas(partition)
            ]
            self.world.leader_writes(partition, list(dict.fromkeys([node.leader, *fit])), seen)

    @precondition(lambda self: self.world.nodes)
    @rule(which=choice)
    def lose_log_dir(self, which: int) -> None:
        partition = self.pick(which)
        there = sorted(self.state.live_replicas(partition))
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
            for partition in self.state.partitions_led_by(broker):
                now = self.state.partition_states[partition]
                assert not set(now.isr) & self.state.online_replicas(partition)

    @rule()
    def failover(self) -> None:
        self.world.failover()
        self.world.after_loss()

    @invariant()
    def no_committed_record_is_lost(self) -> None:
        for partition, node in self.world.nodes.items():
            assert set(node.isr) <= self.world.holders[partition], partition

    @invariant()
    def available_isr_member_leads(self) -> None:
        for partition, now in self.state.partition_states.items():
            there = self.state.live_replicas(partition)
            assert now.leader in there or now.leader == -1
            assert now.leader in there or not set(now.isr) & self.state.online_replicas(partition)


Cluster.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
TestAnyOrderOfEvents = Cluster.TestCase


# -- examples


P, Q = ("t", 0), ("t", 1)


def never(topic: str) -> bool:
    return False


def world(*assignment: list[int], alive: int = 4) -> World:
    """Brokers 1 to `alive`, and a topic `t`."""
    made = World(range(1, alive + 1))
    made.create("t", *assignment)
    return made


def now(made: World, partition: Partition = P) -> tuple[int, tuple[int, ...], int]:
    """Leader, isr and leader epoch."""
    return made.nodes[partition][:3]


def test_first_live_replica_leads_a_new_partition() -> None:
    made = world([5, 2, 1], [5, 6])
    assert made.nodes == {P: LeaderIsrAndControllerEpoch(2, (2, 1), 0, 1, 0)}
    made.state.started({6: 9})
    made.after_start()
    assert made.nodes[Q] == LeaderIsrAndControllerEpoch(6, (6,), 0, 1, 0)


def test_added_partition_gets_a_state() -> None:
    made = world([1])
    made.state.put_topic("t", TopicNode(None, {0: [1], 1: [2, 3]}))
    assert [change.partition for change in made.state.new_partitions("t")] == [Q]


def test_deaths_of_leader_and_follower_are_one_change() -> None:
    made = world([1, 2, 3, 4], [2, 1])
    made.state.died([1, 3])
    changes = made.state.brokers_failed(never)
    assert [(change.partition, change.after[:3]) for change in changes] == [(P, (2, (2, 4), 1)), (Q, (2, (2,), 1))]
    assert made.state.partition_states[P].leader == 1  # the state changes once it is written
    assert changes[0].before == made.nodes[P] and changes[0].after.version == made.nodes[P].version


def test_last_isr_members_stay_when_they_fail() -> None:
    made = world([1, 2])
    made.state.died([2])
    made.after_loss()
    made.state.died([1])
    made.after_loss()
    assert now(made) == (-1, (1,), 2)
    made.state.started({2: 5})
    made.after_start()
    assert now(made) == (-1, (1,), 2)
    made.state.started({1: 5})
    made.after_start()
    assert now(made) == (1, (1,), 3)


def test_isr_that_fails_at_once_stays_and_any_member_may_lead() -> None:
    made = world([1, 2, 3])
    made.state.died([1, 2, 3])
    made.after_loss()
    assert now(made) == (-1, (1, 2, 3), 1)
    made.state.started({3: 5})
    made.after_start()
    assert now(made) == (3, (3,), 2)


def test_unclean_election_follows_topic_config() -> None:
    made = world([1, 2])
    made.state.died([2])
    made.after_loss()
    made.state.started({2: 5})
    made.state.died([1])
    assert made.state.brokers_started(never) == []
    made.uncleanly.add("t")
    assert made.state.brokers_started(made.unclean, ["other"]) == []
    made.settle(lambda: made.state.brokers_started(made.unclean, ["t"]))
    assert now(made) == (2, (2,), 2)


def test_suspicion_causes_no_unclean_election() -> None:
    made = world([1, 2])
    made.uncleanly.add("t")
    made.leader_writes(P, [1], seen=True)
    made.state.died([1], suspected=True)
    made.after_loss()
    made.after_start()
    assert now(made) == (-1, (1,), 1)
    made.state.died([1])  # the broker's session has ended
    made.after_loss()
    assert now(made) == (2, (2,), 2)


def test_suspected_broker_leads_again_after_return() -> None:
    made = world([1, 2])
    made.uncleanly.add("t")
    made.leader_writes(P, [1], seen=True)
    made.state.died([1], suspected=True)
    made.after_loss()
    made.state.started({1: 5})
    made.after_start()
    assert now(made) == (1, (1,), 2)


def test_leader_stays_when_other_brokers_start() -> None:
    made = world([5, 1])
    made.state.started({5: 9})
    made.state.put(P, made.nodes[P]._replace(isr=(1, 5)))
    assert made.state.brokers_started(never) == made.state.brokers_failed(never) == []


def test_failed_log_dir_counts_as_lost_until_next_registration() -> None:
    made = world([1, 2], [1, 2])
    assert made.state.log_dirs(1, {P}, {Q}) == {P}
    made.after_loss()
    assert (now(made), now(made, Q)) == ((2, (2,), 1), (1, (1, 2), 0))
    made.state.died([1])
    made.state.started({1: 200})
    assert made.state.online_replicas(P) == {1, 2}
    made.state.log_dirs(1, {P}, ())
    assert made.state.log_dirs(1, {Q}, {P}) == {Q}
    assert made.state.offline[1] == {Q}


@pytest.mark.parametrize("dropped", [False, True])
def test_failed_log_dir_does_not_affect_recreated_topic(dropped: bool) -> None:
    """The new topic of that name is in a working directory."""
    state = ControllerContext(1)
    state.started({1: 101, 2: 102})
    for topic_id in (b"former".ljust(16), b"latter".ljust(16)):
        if dropped:
            state.drop_topic("t")
        state.put_topic("t", TopicNode(topic_id, {0: [1, 2], 1: [1, 2]}))
        assert state.online_replicas(P) == state.online_replicas(Q) == {1, 2}
        state.log_dirs(1, {P}, {Q})
        assert state.online_replicas(P) == {2}


def test_controlled_shutdown_moves_leaders_and_leaves_the_isr() -> None:
    made = world([1, 2, 3], [2, 1], [1], [1, 4])
    made.state.put(("t", 3), made.nodes["t", 3]._replace(isr=(1,)))
    made.state.shutting_down.add(1)
    plan = made.state.controlled_shutdown(1)
    assert [(change.partition, change.after[:3]) for change in plan.changes] == [(P, (2, (2, 3), 1)), (Q, (2, (2,), 1))]
    assert plan.stopped == [Q]
    made.write(plan.changes)
    assert made.state.partitions_led_by(1) == [
        ("t", 3)
    ]  # no other broker can lead; a partition with one replica does not count
    assert made.state.controlled_shutdown(1) == ([], [P, Q])
    assert made.state.brokers_failed(never) == []  # the broker still leads its partitions
    made.state.died([1])
    assert not made.state.shutting_down


def test_shutdown_leaves_partition_without_other_replicas() -> None:
    made = world([1])
    made.state.log_dirs(1, {P}, ())
    made.after_loss()
    assert made.state.controlled_shutdown(1) == ([], [])


def test_brokers_that_shut_down_together_do_not_move_leadership_to_each_other() -> None:
    made = world([1, 2, 3])
    made.state.shutting_down |= {1, 2}
    assert made.state.controlled_shutdown(1).changes[0].after[:2] == (3, (3,))


def test_deleting_topics_get_no_decisions() -> None:
    made = world([1, 2])
    made.state.deleting.add("t")
    made.state.died([1])
    assert made.state.brokers_failed(never) == made.state.controlled_shutdown(2).changes == []
    assert made.state.partitions_led_by(1) == []
    made.state.drop_topic("t")
    assert not made.state.partition_states and not made.state.topics and not made.state.deleting
    made.state.drop_topic("t")


def test_state_of_later_controller_is_not_overwritten() -> None:
    made = world([1, 2])
    made.state.put(P, made.nodes[P]._replace(controller_epoch=2))
    made.state.died([1])
    assert made.state.brokers_failed(never) == []


def test_topic_is_found_by_its_id() -> None:
    made = world([1])
    made.state.put_topic("u", TopicNode(bytes(16), {}))
    assert (made.state.topic_name(bytes(16)), made.state.topic_name(b"\1" * 16)) == ("u", None)


def test_state_round_trip_through_its_node() -> None:
    state = PartitionState(3, 7, [3, 1], 2)
    assert LeaderIsrAndControllerEpoch.read(state, 4) == LeaderIsrAndControllerEpoch(3, (3, 1), 7, 2, 4)
    assert LeaderIsrAndControllerEpoch.read(state, 4).state == state
