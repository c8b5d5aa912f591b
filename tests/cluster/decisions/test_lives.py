"""Who has come back in another life joins ISRs by what it has fetched in that, whatever writes are on their way."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from odradek.cluster.decisions.controller_state import Change, ControllerContext, LeaderIsrAndControllerEpoch
from odradek.cluster.decisions.lives import Lives
from odradek.cluster.tree.znodes import Partition

from ..controller_world import World

BROKERS = (1, 2, 3)
P, Q = ("t", 0), ("t", 1)
partitions, brokers = st.sampled_from([P, Q]), st.sampled_from(BROKERS)


def never(topic: str) -> bool:
    return False


class Told(World):
    """Brokers hear of what is written while they are there, and of everything when they come."""

    def __init__(self) -> None:
        self.told: dict[int, dict[Partition, int]] = {broker: {} for broker in BROKERS}
        super().__init__(BROKERS)
        self.create("t", [1, 2, 3], [2, 3])

    def _write(self, change: Change, clean: bool) -> bool:
        done = super()._write(change, clean)
        before = change.before.leader if change.before else -1
        for broker in self.state.live_replicas(change.partition) if done else ():
            stops = broker in self.state.shutting_down and broker not in (*change.after.isr, before)
            if not stops:
                self.told[broker][change.partition] = change.after.leader_epoch
        return done

    def tell_all(self, broker: int) -> None:
        known = self.state.partition_states.items()
        self.told[broker] = {one: now.leader_epoch for one, now in known if broker in self.state.replicas(one)}


class Rejoining(RuleBasedStateMachine):
    """Followers fetch, leaders write that they are in sync, sooner or later; the power fails, and comes back."""

    def __init__(self) -> None:
        super().__init__()
        self.world, self.epoch = Told(), 1000
        self.lives = dict.fromkeys(BROKERS, 0)
        self.up = set(BROKERS)
        self.rows: dict[tuple[Partition, int], tuple[int, int]] = {}  # leader epoch, life of the follower
        self.late: list[tuple[Partition, int, int, int]] = []  # version of the node, the follower and its life
        self.joined: dict[tuple[Partition, int], int] = {}  # by what life's fetch

    @property
    def state(self) -> ControllerContext:
        return self.world.state

    def leads(self, partition: Partition) -> bool:
        node = self.world.nodes[partition]
        return node.leader in self.up and self.world.told[node.leader].get(partition) == node.leader_epoch

    @rule(partition=partitions, broker=brokers)
    def fall_behind(self, partition: Partition, broker: int) -> None:
        node = self.world.nodes[partition]
        if self.leads(partition) and broker != node.leader:
            self.world.leader_writes(partition, [one for one in node.isr if one != broker], seen=False)

    @rule(partition=partitions, broker=brokers, takes_long=st.booleans())
    def join(self, partition: Partition, broker: int, takes_long: bool) -> None:
        node, epoch = self.world.nodes[partition], self.world.told[broker].get(partition)
        if self.leads(partition) and broker in self.up and epoch == node.leader_epoch:
            self.rows[partition, broker] = epoch, self.lives[broker]
        fetched, life = self.rows.get((partition, broker), (-1, -1))
        staying = broker not in {*self.state.shutting_down, *node.isr}
        if self.leads(partition) and fetched == node.leader_epoch and staying:
            self.late.append((partition, node.version, broker, life))
            if not takes_long:
                self.land(len(self.late) - 1, seen=False)

    @precondition(lambda self: self.late)
    @rule(which=st.integers(0, 9), seen=st.booleans())
    def land(self, which: int, seen: bool) -> None:
        partition, version, broker, life = self.late.pop(which % len(self.late))
        node = self.world.nodes[partition]
        if node.version == version:
            self.world.leader_writes(partition, [*node.isr, broker], seen)
            self.joined[partition, broker] = life

    def some_land(self, lands: bool) -> None:
        """Behind what the controller has read."""
        while lands and self.late:
            self.land(0, seen=False)

    @rule(broker=brokers, fails=st.booleans(), back=st.booleans())
    def session_ends(self, broker: int, fails: bool, back: bool) -> None:
        if fails:
            self.up.discard(broker)
            self.lives[broker] += 1
            self.world.told[broker] = {}
        if broker in self.state.live.keys() | self.state.suspected:
            self.state.died([broker])
            self.world.after_loss()
        if back:
            self.comes(broker, lands=False)

    @rule(broker=brokers, lands=st.booleans())
    def comes(self, broker: int, lands: bool) -> None:
        if broker not in self.state.live.keys() | self.state.suspected:
            self.epoch += 1
            self.up.add(broker)
            self.start({broker: self.epoch}, lands)

    def start(self, epochs: dict[int, int], lands: bool = False) -> None:
        self.state.started(epochs)
        self.some_land(lands)
        for broker in epochs:
            self.world.tell_all(broker)
        self.world.after_start()

    @rule(broker=brokers, really=st.booleans())
    def refuses(self, broker: int, really: bool) -> None:
        epoch = self.state.live.get(broker)
        if epoch is not None:
            self.state.died([broker], suspected=True)
            self.world.after_loss()
            if not really:
                self.start({broker: epoch})

    @rule(broker=brokers)
    def shut_down(self, broker: int) -> None:
        if broker in self.state.live:
            self.state.shutting_down.add(broker)
            self.world.settle(lambda: self.state.controlled_shutdown(broker).changes)

    @rule(lands=st.booleans())
    def reads_everything_again(self, lands: bool) -> None:
        self.begin(self.state.controller_epoch, self.state.lives, lands)

    @rule(lands=st.booleans())
    def another_controller(self, lands: bool) -> None:
        """What it finds in ISRs it has to believe."""
        for partition, broker in list(self.joined):
            if broker in self.world.nodes[partition].isr:
                del self.joined[partition, broker]
        self.begin(self.state.controller_epoch + 1, Lives(), lands)

    def begin(self, controller_epoch: int, lives: Lives, lands: bool) -> None:
        former = self.world.state
        state = self.world.state = ControllerContext(controller_epoch, lives)
        state.topics = former.topics
        for partition, node in self.world.nodes.items():
            state.put(partition, node)
        state.started(former.live)
        self.some_land(lands)
        state.died(former.suspected, suspected=True)
        for broker in former.live:
            self.world.tell_all(broker)
        self.world.after_loss()

    @invariant()
    def former_lives_count_for_nothing(self) -> None:
        for (partition, broker), life in self.joined.items():
            node = self.world.nodes[partition]
            if broker in node.isr and broker != node.leader and self.state.has_live_leader(partition):
                assert life == self.lives[broker] or broker not in self.state.live, (partition, broker)
        for partition, version, broker, life in self.late:
            if broker in self.state.live and self.leads(partition):
                assert life == self.lives[broker] or version != self.world.nodes[partition].version


Rejoining.TestCase.settings = settings(max_examples=150, stateful_step_count=30)
TestAnyOrderOfEvents = Rejoining.TestCase


def out_of_sync(*partitions: Partition) -> Any:
    """A world in which broker 3 is behind in these, and has received that."""
    world = Told()
    for partition in partitions:
        node = world.nodes[partition]
        world.leader_writes(partition, [one for one in node.isr if one != 3], seen=True)
    return world


def renewed(world: Told, broker: int = 3, epoch: int = 999) -> list[Partition]:
    """Which partitions begin another epoch when a broker comes."""
    world.state.started({broker: epoch})
    changes = world.state.brokers_started(never)
    world.after_start()
    return [change.partition for change in changes]


def test_a_return_costs_a_write_where_the_broker_had_not_caught_up() -> None:
    world = out_of_sync(P)
    world.state.died([3])
    world.after_loss()
    assert world.nodes[Q].isr == (2,)
    assert renewed(world) == [P]
    assert world.nodes[P][:3] == (1, (1, 2), 1)
    world.state.died([3])
    world.after_loss()
    assert renewed(world, epoch=1001) == [P, Q]  # it received both, and was in sync in none


def test_a_controlled_shutdown_or_a_connection_that_is_lost_first_costs_nothing_more() -> None:
    for suspected in (False, True):
        world = out_of_sync()
        if suspected:
            world.state.died([3], suspected=True)
            world.after_loss()
        else:
            world.state.shutting_down.add(3)
            world.settle(lambda state=world.state: state.controlled_shutdown(3).changes)
        world.state.died([3])
        world.after_loss()
        assert renewed(world) == []


def test_a_broker_that_was_only_taken_for_dead_is_the_same() -> None:
    world = out_of_sync(P)
    epoch = world.state.live[3]
    world.state.died([3], suspected=True)
    world.after_loss()
    assert renewed(world, epoch=epoch) == []


def test_who_is_in_sync_by_a_write_that_was_late_leaves() -> None:
    world = out_of_sync(P)
    world.state.died([3])
    world.after_loss()
    world.leader_writes(P, [1, 2, 3], seen=False)
    world.state.started({3: 999})
    world.after_start()
    assert world.nodes[P][:3] == (1, (1, 2), 1)


def test_a_topic_that_is_made_again_is_another() -> None:
    world = out_of_sync(P)
    world.state.died([3])
    world.after_loss()
    world.state.drop_topic("t")
    world.nodes.clear()
    world.create("t", [1, 2, 3], [2, 3])
    assert renewed(world) == []


@pytest.mark.parametrize(("dead", "left"), [(2, (1, (1,))), (1, (2, (2,)))])
def test_who_is_in_sync_by_a_late_write_does_not_stay_when_others_go(dead: int, left: tuple[int, tuple[int]]) -> None:
    """A controller is elected, reads, and finds one of the ISR dead; before it writes that, the late write lands."""
    assert taken_over(out_of_sync(P), {1, 2, 3} - {dead}, [1, 2, 3])[:2] == left


def test_who_is_in_sync_by_a_late_write_is_not_elected() -> None:
    """The leader alone had what is committed, and is not there."""
    world = out_of_sync(P)
    world.leader_writes(P, [1], seen=True)
    assert taken_over(world, {3}, [1, 3])[:2] == (-1, (1,))
    world.state.started({1: 2000})
    world.after_start()
    assert world.nodes[P][:2] == (1, (1,))


def taken_over(world: Told, live: set[int], late: list[int]) -> LeaderIsrAndControllerEpoch:
    """How P stands under the next controller; the ISR that its leader is about to write lands behind what it reads."""
    state = ControllerContext(world.state.controller_epoch + 1)
    state.topics, world.state = world.state.topics, state
    for partition, node in world.nodes.items():
        state.put(partition, node)
    state.started({broker: 100 + broker for broker in live})
    world.leader_writes(P, late, seen=False)
    world.after_loss()
    return world.nodes[P]
