"""A restarted broker joins ISRs only by fetches since its restart, whatever writes are under way."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from odradek.cluster.decisions.broker_epochs import BrokerEpochs
from odradek.cluster.decisions.controller_state import ControllerContext, LeaderIsrAndControllerEpoch, StateChange
from odradek.cluster.tree.znodes import Partition

from ..controller_world import World

BROKERS = (1, 2, 3)
P, Q = ("t", 0), ("t", 1)
partitions, brokers = st.sampled_from([P, Q]), st.sampled_from(BROKERS)


def never(topic: str) -> bool:
    return False


class Receivers(World):
    """Live brokers receive each state change; a broker that starts receives the full state."""

    def __init__(self) -> None:
        self.received: dict[int, dict[Partition, int]] = {broker: {} for broker in BROKERS}
        super().__init__(BROKERS)
        self.create("t", [1, 2, 3], [2, 3])

    def _write(self, change: StateChange, clean: bool) -> bool:
        done = super()._write(change, clean)
        before = change.before.leader if change.before else -1
        for broker in self.state.live_replicas(change.partition) if done else ():
            stops = broker in self.state.shutting_down and broker not in (*change.after.isr, before)
            if not stops:
                self.received[broker][change.partition] = change.after.leader_epoch
        return done

    def send_full_state(self, broker: int) -> None:
        known = self.state.partition_states.items()
        self.received[broker] = {one: now.leader_epoch for one, now in known if broker in self.state.replicas(one)}


class Rejoining(RuleBasedStateMachine):
    """Followers fetch, leaders write the ISR at once or late, brokers lose power and return."""

    def __init__(self) -> None:
        super().__init__()
        self.world, self.epoch = Receivers(), 1000
        self.starts = dict.fromkeys(BROKERS, 0)
        self.up = set(BROKERS)
        self.rows: dict[tuple[Partition, int], tuple[int, int]] = {}  # leader epoch, start of the follower
        self.late: list[tuple[Partition, int, int, int]] = []  # version of the node, the follower and its start
        self.joined: dict[tuple[Partition, int], int] = {}  # the start of the follower whose fetch let it join

    @property
    def state(self) -> ControllerContext:
        return self.world.state

    def leads(self, partition: Partition) -> bool:
        node = self.world.nodes[partition]
        return node.leader in self.up and self.world.received[node.leader].get(partition) == node.leader_epoch

    @rule(partition=partitions, broker=brokers)
    def fall_behind(self, partition: Partition, broker: int) -> None:
        node = self.world.nodes[partition]
        if self.leads(partition) and broker != node.leader:
            self.world.leader_writes(partition, [one for one in node.isr if one != broker], seen=False)

    @rule(partition=partitions, broker=brokers, is_late=st.booleans())
    def join(self, partition: Partition, broker: int, is_late: bool) -> None:
        node, epoch = self.world.nodes[partition], self.world.received[broker].get(partition)
        if self.leads(partition) and broker in self.up and epoch == node.leader_epoch:
            self.rows[partition, broker] = epoch, self.starts[broker]
        fetched, start = self.rows.get((partition, broker), (-1, -1))
        staying = broker not in {*self.state.shutting_down, *node.isr}
        if self.leads(partition) and fetched == node.leader_epoch and staying:
            self.late.append((partition, node.version, broker, start))
            if not is_late:
                self.land(len(self.late) - 1, seen=False)

    @precondition(lambda self: self.late)
    @rule(which=st.integers(0, 9), seen=st.booleans())
    def land(self, which: int, seen: bool) -> None:
        partition, version, broker, start = self.late.pop(which % len(self.late))
        node = self.world.nodes[partition]
        if node.version == version:
            self.world.leader_writes(partition, [*node.isr, broker], seen)
            self.joined[partition, broker] = start

    def land_late_writes(self, lands: bool) -> None:
        """Let late writes land after the controller has read the state."""
        while lands and self.late:
            self.land(0, seen=False)

    @rule(broker=brokers, fails=st.booleans(), back=st.booleans())
    def end_session(self, broker: int, fails: bool, back: bool) -> None:
        if fails:
            self.up.discard(broker)
            self.starts[broker] += 1
            self.world.received[broker] = {}
        if broker in self.state.live.keys() | self.state.suspected:
            self.state.died([broker])
            self.world.after_loss()
        if back:
            self.return_broker(broker, lands=False)

    @rule(broker=brokers, lands=st.booleans())
    def return_broker(self, broker: int, lands: bool) -> None:
        if broker not in self.state.live.keys() | self.state.suspected:
            self.epoch += 1
            self.up.add(broker)
            self.start({broker: self.epoch}, lands)

    def start(self, epochs: dict[int, int], lands: bool = False) -> None:
        self.state.started(epochs)
        self.land_late_writes(lands)
        for broker in epochs:
            self.world.send_full_state(broker)
        self.world.after_start()

    @rule(broker=brokers, really=st.booleans())
    def refuse_connections(self, broker: int, really: bool) -> None:
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
    def reload_state(self, lands: bool) -> None:
        self.begin(self.state.controller_epoch, self.state.broker_epochs, lands)

    @rule(lands=st.booleans())
    def elect_controller(self, lands: bool) -> None:
        """A new controller cannot tell late writes from others: it trusts the ISRs that it reads."""
        for partition, broker in list(self.joined):
            if broker in self.world.nodes[partition].isr:
                del self.joined[partition, broker]
        self.begin(self.state.controller_epoch + 1, BrokerEpochs(), lands)

    def begin(self, controller_epoch: int, broker_epochs: BrokerEpochs, lands: bool) -> None:
        former = self.world.state
        state = self.world.state = ControllerContext(controller_epoch, broker_epochs)
        state.topics = former.topics
        for partition, node in self.world.nodes.items():
            state.put(partition, node)
        state.started(former.live)
        self.land_late_writes(lands)
        state.died(former.suspected, suspected=True)
        for broker in former.live:
            self.world.send_full_state(broker)
        self.world.after_loss()

    @invariant()
    def isr_has_no_member_by_former_fetches(self) -> None:
        for (partition, broker), start in self.joined.items():
            node = self.world.nodes[partition]
            if broker in node.isr and broker != node.leader and self.state.has_live_leader(partition):
                assert start == self.starts[broker] or broker not in self.state.live, (partition, broker)
        for partition, version, broker, start in self.late:
            if broker in self.state.live and self.leads(partition):
                assert start == self.starts[broker] or version != self.world.nodes[partition].version


Rejoining.TestCase.settings = settings(max_examples=150, stateful_step_count=30)
TestAnyOrderOfEvents = Rejoining.TestCase


def out_of_sync(*partitions: Partition) -> Any:
    """A world in which broker 3 is out of sync in these partitions, and has received that state."""
    world = Receivers()
    for partition in partitions:
        node = world.nodes[partition]
        world.leader_writes(partition, [one for one in node.isr if one != 3], seen=True)
    return world


def raised(world: Receivers, broker: int = 3, epoch: int = 999) -> list[Partition]:
    """The partitions whose leader epoch rises when a broker registers."""
    world.state.started({broker: epoch})
    changes = world.state.brokers_started(never)
    world.after_start()
    return [change.partition for change in changes]


def test_return_raises_epochs_only_of_partitions_not_caught_up() -> None:
    world = out_of_sync(P)
    world.state.died([3])
    world.after_loss()
    assert world.nodes[Q].isr == (2,)
    assert raised(world) == [P]
    assert world.nodes[P][:3] == (1, (1, 2), 1)
    world.state.died([3])
    world.after_loss()
    assert raised(world, epoch=1001) == [P, Q]  # the broker received both states, and was in sync in neither


def test_return_after_shutdown_or_lost_connection_raises_no_epoch() -> None:
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
        assert raised(world) == []


def test_suspected_broker_with_same_epoch_raises_no_epoch() -> None:
    world = out_of_sync(P)
    epoch = world.state.live[3]
    world.state.died([3], suspected=True)
    world.after_loss()
    assert raised(world, epoch=epoch) == []


def test_broker_in_isr_by_late_write_is_removed() -> None:
    world = out_of_sync(P)
    world.state.died([3])
    world.after_loss()
    world.leader_writes(P, [1, 2, 3], seen=False)
    world.state.started({3: 999})
    world.after_start()
    assert world.nodes[P][:3] == (1, (1, 2), 1)


def test_recreated_topic_raises_no_epoch() -> None:
    world = out_of_sync(P)
    world.state.died([3])
    world.after_loss()
    world.state.drop_topic("t")
    world.nodes.clear()
    world.create("t", [1, 2, 3], [2, 3])
    assert raised(world) == []


@pytest.mark.parametrize(("dead", "left"), [(2, (1, (1,))), (1, (2, (2,)))])
def test_broker_in_isr_by_late_write_is_removed_when_others_fail(dead: int, left: tuple[int, tuple[int]]) -> None:
    """A new controller finds one ISR member dead; the late write lands before it writes that."""
    assert taken_over(out_of_sync(P), {1, 2, 3} - {dead}, [1, 2, 3])[:2] == left


def test_broker_in_isr_by_late_write_is_not_elected() -> None:
    """Only the leader has the committed records, and it is offline."""
    world = out_of_sync(P)
    world.leader_writes(P, [1], seen=True)
    assert taken_over(world, {3}, [1, 3])[:2] == (-1, (1,))
    world.state.started({1: 2000})
    world.after_start()
    assert world.nodes[P][:2] == (1, (1,))


def taken_over(world: Receivers, live: set[int], late: list[int]) -> LeaderIsrAndControllerEpoch:
    """P's state under the next controller; its leader's ISR write lands after the controller has read the state."""
    state = ControllerContext(world.state.controller_epoch + 1)
    state.topics, world.state = world.state.topics, state
    for partition, node in world.nodes.items():
        state.put(partition, node)
    state.started({broker: 100 + broker for broker in live})
    world.leader_writes(P, late, seen=False)
    world.after_loss()
    return world.nodes[P]
