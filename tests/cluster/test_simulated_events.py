"""Single sequences of events in a simulated cluster: faults that random histories found, or could find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from odradek.cluster.metadata.rows import EPOCH
from odradek.cluster.metadata.view import PartitionUpdate
from odradek.cluster.tree import znodes
from odradek.cluster.tree.tree import Delete, Set
from odradek.ipc import replicas, slots
from odradek.protocol.errors import FENCED_LEADER_EPOCH
from odradek.workers.fetch.follower_progress import Progress

from .simulation.cluster import Cluster
from .simulation.history import History
from .simulation.seams import installed


def test_leader_commits_before_it_follows_in_the_same_step() -> None:
    """As seed 2372 once had it: a member of the ISR died, and the preferred leader came back at once.

    The leader received both together. In the first epoch all remaining members have the record, so it is committed;
    in the second the leader follows, and shows the record as committed.
    """
    with calm() as cluster:
        world = cluster.world
        cluster.brokers[3].stop(5.0)
        cluster.produce("t", 0, to=1, acks_all=False)
        world.run(world.now + 0.5)
        assert shown(cluster, 1) == (1, 0), "the high watermark waits for the stopped broker"
        orders = [decided(cluster, leader, [1, 2]) for leader in (1, 2)]
        world.after(0.0, cluster.brokers[1].loop, lambda: [take(cluster, 1, order) for order in orders])
        world.run(world.now + 0.001)
        assert shown(cluster, 1) == (1, 1)


def test_leader_that_missed_an_epoch_drops_follower_positions() -> None:
    """3 has a record that 2 lacks, and truncates it when it follows 2; 1 receives only its next term as leader.

    The position of 3 that 1 had is outdated: 3 is in the ISR without the record, so 1 must not commit it.
    """
    with calm() as cluster:
        world = cluster.world
        cluster.network.cuts.update({(1, 2), (2, 1)})
        cluster.produce("t", 0, to=1, acks_all=True)
        world.run(world.now + 0.2)
        assert [shown(cluster, broker)[0] for broker in (1, 2, 3)] == [1, 0, 1]
        cluster.network.cuts.update({(1, 3), (3, 1)})
        order = decided(cluster, 2, [1, 2, 3])
        for broker in (2, 3):
            told(cluster, broker, order)
        world.run(world.now + 0.6)
        assert shown(cluster, 3)[0] == 0, "3 has truncated its log as a follower of 2"
        order = decided(cluster, 1, [1, 2, 3])
        for broker in (1, 2):
            told(cluster, broker, order)
        cluster.network.cuts.difference_update({(1, 2), (2, 1)})
        world.run(world.now + 0.4)
        assert [shown(cluster, broker) for broker in (1, 2, 3)] == [(1, 0), (1, 0), (0, 0)]
        assert cluster.counts["acknowledged"] == 0


def test_follower_behind_former_leaders_commits_does_not_join() -> None:
    """2 is elected before it knows that a record is committed; 3, which was down, has only the records below 2's HW."""
    with calm() as cluster:
        world, cuts = cluster.world, cluster.network.cuts
        apart = {(3, 1), (1, 3), (3, 2), (2, 3)}
        cuts.update(apart)
        order = decided(cluster, 1, [1, 2])
        for broker in (1, 2):
            told(cluster, broker, order)
        world.run(world.now + 0.7)
        cluster.produce("t", 0, to=1, acks_all=True)
        until(cluster, lambda: shown(cluster, 2)[0] == 1)
        cuts.add((1, 2))
        until(cluster, lambda: cluster.counts["acknowledged"] == 1)
        assert shown(cluster, 2) == (1, 0)
        order = decided(cluster, 2, [1, 2])
        for broker in (2, 3):
            told(cluster, broker, order)
        until(cluster, lambda: slot(cluster, 2).state().state == slots.LEADER)
        cuts.difference_update(apart)
        until(cluster, lambda: any(one.broker == 3 and one.leo == 0 for one in replicas.read(slot(cluster, 2))))
        cuts.add((2, 3))
        world.run(world.now + 0.95)
        assert cluster.state("t", 0).isr == [1, 2]
        assert shown(cluster, 3)[0] == 0, "3 lacks the record"


def test_follower_position_of_former_epoch_is_dropped() -> None:
    """The leader did not get the lock to record it; then the log was truncated while that worker was stopped."""
    with calm() as cluster:
        world, cuts = cluster.world, cluster.network.cuts
        one: Any = cluster.brokers[1]
        cuts.update({(2, 1), (1, 2)})
        cluster.produce("t", 0, to=1, acks_all=True)
        until(cluster, lambda: shown(cluster, 3)[0] == 1)
        partition = one.workers.log.get("t", 0)
        values = partition.slot.read()
        late = Progress(partition, 3, 1, 0, values[slots.F_LEO], values[slots.F_LEADER_EPOCH])
        cuts.update({(3, 1), (1, 3)})
        order = decided(cluster, 2, [1, 2, 3])
        for broker in (2, 3):
            told(cluster, broker, order)
        until(cluster, lambda: shown(cluster, 3)[0] == 0)
        order = decided(cluster, 1, [1, 2, 3])
        for broker in (1, 2):
            told(cluster, broker, order)
        cuts.difference_update({(2, 1), (1, 2)})
        until(cluster, lambda: slot(cluster, 1).state().leader_epoch == 2)
        world.after(0.0, one.workers.process, lambda: one.workers.followers.record(late))
        world.run(world.now + 0.4)
        assert [shown(cluster, broker) for broker in (1, 2, 3)] == [(1, 0), (1, 0), (0, 0)]


def test_isr_write_does_not_overwrite_controllers_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader has read the node, and another broker leads when it writes."""
    with calm() as cluster:
        world = cluster.world
        session: Any = cluster.brokers[1].session
        write = session.each

        def each(transactions: Any) -> Any:
            if transactions and transactions[0][0].path == znodes.state_path("t", 0):
                monkeypatch.undo()
                decided(cluster, 2, [1, 2, 3])
            return write(transactions)

        monkeypatch.setattr(session, "each", each)
        cluster.network.cuts.update({(3, 1), (1, 3)})
        cluster.produce("t", 0, to=1, acks_all=False)
        world.run(world.now + 4.0)
        assert session.each == write, "the leader has written its ISR"
        state = cluster.state("t", 0)
        assert (state.leader, state.leader_epoch, state.isr) == (2, 1, [1, 2, 3])


def test_broker_in_controlled_shutdown_does_not_rejoin_isr(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker stops slowly, and all replicators continue."""
    with calm() as cluster:
        world = cluster.world
        monkeypatch.setattr(cluster.brokers[3], "mark_left_cluster", lambda: None)
        cluster.brokers[3].shut_down()
        world.run(world.now + 1.0)
        assert cluster.state("t", 0).isr == [1, 2]
        for _ in range(20):
            cluster.produce("t", 0, to=1, acks_all=True)
            world.run(world.now + 0.1)
            assert cluster.state("t", 0).isr == [1, 2]
        assert cluster.counts["acknowledged"] == 20
        assert shown(cluster, 3)[0] == 0, "3 follows no leader"


@pytest.mark.parametrize("seconds", [0.3, 1.0])
def test_suspicion_elects_only_isr_members(seconds: float) -> None:
    """The only in-sync leader loses its connections and refuses new ones, for less than its session lasts."""
    with calm(unclean=True) as cluster:
        world, network = cluster.world, cluster.network
        controller = znodes.decode_controller(cluster.zookeeper.nodes[znodes.CONTROLLER].data)
        leader, other = sorted({1, 2, 3} - {controller})
        cluster.create_topic("u", {0: [leader, controller, other]})
        world.run(world.now + 2.0)
        network.cuts.update({(leader, controller), (leader, other)})
        cluster.produce("u", 0, to=leader, acks_all=False)
        world.run(world.now + 3.0)
        assert cluster.state("u", 0).isr == [leader]
        network.refusing[leader] = world.now + seconds
        for connection in network.of(leader):
            connection.reset()
        network.cuts.clear()
        world.run(world.now + 0.2)
        assert leader in cluster.suspected()
        world.run(world.now + seconds + 3.0)
        state = cluster.state("u", 0)
        assert state.leader == leader and state.isr[0] == leader
        assert len(cluster.brokers[leader].workers.log.get("u", 0).directory.records) == 1


def test_recreated_topic_has_replicas_where_former_ones_were_offline() -> None:
    """Seed 608: they stayed offline by their names, and a working replica did not learn its leader."""
    with calm() as cluster:
        world, broker = cluster.world, others(cluster)[0]
        break_disk(cluster, broker)
        assert broker.number not in cluster.state("t", 0).isr
        cluster.remake_topic("t", {0: [1, 2, 3], 1: [2, 3, 1]})
        world.run(world.now + 5.0)
        assert [sorted(cluster.state("t", index).isr) for index in (0, 1)] == [[1, 2, 3]] * 2
        assert cluster.astray() == ""


def test_log_on_failed_disk_is_deleted_with_its_topic() -> None:
    """Seed 1021: the broker could not delete it, and returned with it before others had deleted theirs."""
    with calm() as cluster:
        world, (broker, slow) = cluster.world, others(cluster)
        break_disk(cluster, broker)
        slow.stop_controller(4.0)
        cluster.delete_topic("t")
        world.run(world.now + 1.0)
        broker.die("is killed, and its disks are mended")
        broker.disk.mend()
        broker.start()
        world.run(world.now + 10.0)
        assert broker.registered and cluster.topics == []
        assert list(broker.disk.all()) == []


def test_leader_after_unnoticed_power_failure_gets_new_epoch() -> None:
    """The leader is the only ISR member. A replica with the lost records would not notice others in the same epoch.

    The controller dies before its session ends, and the next one finds it registered.
    """
    with calm() as cluster:
        world, (leader, other) = cluster.world, others(cluster)
        controller = next(one for one in cluster.brokers.values() if one not in (leader, other))
        cluster.create_topic("u", {0: [leader.number, other.number]})
        world.run(world.now + 2.0)
        cluster.network.cuts.add((other.number, leader.number))
        cluster.produce("u", 0, to=leader.number, acks_all=False)
        world.run(world.now + 4.0)
        before = cluster.state("u", 0)
        assert before.isr == [leader.number]
        leader.die("loses power", vanish=True)
        cluster.invariants.lost_power(leader.number, leader.disk.lose_unsynced(min))
        world.run(world.now + 1.2)
        leader.start()
        controller.die("vanishes", vanish=True)
        world.run(world.now + 9.0)
        assert leader.registered
        after = cluster.state("u", 0)
        assert (after.leader, after.leader_epoch > before.leader_epoch) == (leader.number, True)


@pytest.mark.parametrize("controller", ["stays", "dies", "is dead"])
@pytest.mark.parametrize("lands", ["before", "after"])
def test_fetches_before_a_power_failure_add_no_isr_member(lands: str, controller: str) -> None:
    """The leader is about to write that the follower is in sync. Before that is in the tree, or just after, the
    follower loses its log's end with the power and registers again, which the controller may not see.

    It lacks what is acknowledged, and would lead if the leader died. (KIP-903 has it for KRaft.)
    """
    with calm() as cluster:
        world, cuts, (leader, other) = cluster.world, cluster.network.cuts, others(cluster)
        elected = next(one for one in cluster.brokers.values() if one not in (leader, other))
        apart = {(leader.number, other.number), (other.number, leader.number)}
        cluster.create_topic("u", {0: [leader.number, other.number]})
        world.run(world.now + 2.0)
        cuts.update(apart)
        cluster.produce("u", 0, to=leader.number, acks_all=False)
        until(cluster, lambda: cluster.state("u", 0).isr == [leader.number])
        cluster.produce("u", 0, to=leader.number, acks_all=True)
        until(cluster, lambda: cluster.counts["acknowledged"] == 1)
        write, done = leader.session.each, list[Any]()

        def is_back() -> bool:
            there = cluster.zookeeper.nodes.get(f"{znodes.BROKER_IDS}/{other.number}")
            return other.registered if controller != "is dead" else there is not None

        def restart() -> None:
            if controller == "is dead":
                elected.die("vanishes", vanish=True)
            other.die("loses power", vanish=True)
            cluster.invariants.lost_power(other.number, other.disk.lose_unsynced(min))
            cluster.zookeeper.expire(other.session)
            if controller == "dies":
                elected.die("is killed")
            cuts.update(apart)
            world.elapse(0.01)
            other.start()
            until(cluster, is_back)
            world.elapse(0.3 if controller != "is dead" else 0)

        def each(transactions: Any) -> Any:
            if done or not transactions or transactions[0][0].path != znodes.state_path("u", 0):
                return write(transactions)
            done.append(transactions)
            if lands == "after":
                restart()
                return write(transactions)
            results = write(transactions)
            restart()
            return results

        leader.session.each = each
        cuts.difference_update(apart)
        until(cluster, lambda: done)
        world.run(world.now + 6.0)
        state = cluster.state("u", 0)
        assert (state.leader, state.isr) == (leader.number, [leader.number])
        cuts.difference_update(apart)
        world.run(world.now + 3.0)
        assert cluster.state("u", 0).isr == [leader.number, other.number]


@pytest.mark.parametrize("noted", ["all", "none", "nonsense"])
def test_new_controller_keeps_brokers_with_settled_epochs(noted: str) -> None:
    """If no controller has recorded epochs yet, or the record is invalid, it keeps all brokers."""
    with calm() as cluster:
        world, nodes, (leader, other) = cluster.world, cluster.zookeeper.nodes, others(cluster)
        controller = next(one for one in cluster.brokers.values() if one not in (leader, other))
        cluster.create_topic("u", {0: [leader.number, other.number]})
        world.run(world.now + 2.0)
        before = cluster.state("u", 0)
        assert before.isr == [leader.number, other.number]
        if noted == "nonsense":
            nodes[znodes.SETTLED_EPOCHS].data = b"{"
        elif noted == "none":
            leader.session.multi([Delete(znodes.SETTLED_EPOCHS)])
        controller.die("is killed")
        world.run(world.now + 3.0)
        assert znodes.decode_controller(nodes[znodes.CONTROLLER].data) != controller.number
        assert cluster.state("u", 0) == before
        epochs = {one.number: nodes[f"{znodes.BROKER_IDS}/{one.number}"].czxid for one in (leader, other)}
        assert epochs.items() <= znodes.decode_settled_epochs(nodes[znodes.SETTLED_EPOCHS].data).items()


@pytest.mark.parametrize("leader", [1, 2])
def test_slot_takes_no_role_of_a_former_epoch(leader: int) -> None:
    """The controller process died before it published the slot's new role. Its successor knows the epoch before,
    and a late request comes: to lead in that epoch again, or to follow and be truncated."""
    with calm() as cluster:
        late = decided(cluster, leader, [1, 2, 3])
        order = decided(cluster, 1, [1, 2, 3])
        told(cluster, 1, order)
        until(cluster, lambda: slot(cluster, 1).state().leader_epoch == order.leader_epoch)
        controller: Any = cluster.brokers[1].controller
        replicas_here = controller.owner._replicas
        replicas_here.view.row("t", 0)[EPOCH] = late.leader_epoch - 1
        assert replicas_here.become(late) == FENCED_LEADER_EPOCH
        state = slot(cluster, 1).state()
        assert (state.state, state.leader_epoch) == (slots.LEADER, order.leader_epoch)


def test_late_delete_request_does_not_stop_returned_replica() -> None:
    """The late request would delete the log of an ISR member."""
    with calm() as cluster:
        former = cluster.state("t", 0).leader_epoch
        order = decided(cluster, 1, [1, 2, 3])
        for broker in (1, 2, 3):
            told(cluster, broker, order)
        until(cluster, lambda: slot(cluster, 2).state().leader_epoch == order.leader_epoch)
        follower: Any = cluster.brokers[2]
        log = follower.disk.find("t", (cluster.topic("t").id, 0))
        assert follower.controller.owner._replicas.stop("t", 0, former, True) == FENCED_LEADER_EPOCH
        assert follower.disk.find("t", (cluster.topic("t").id, 0)) is log
        assert follower.controller.owner._replicas.stop("t", 0, former, False) == FENCED_LEADER_EPOCH
        assert slot(cluster, 2).state().leader_epoch == order.leader_epoch


def test_record_counts_until_its_log_is_deleted() -> None:
    with calm() as cluster:
        world, key = cluster.world, (cluster.topic("t").id, 0)
        cluster.produce("t", 0, to=1, acks_all=True)
        world.run(world.now + 0.5)
        follower: Any = cluster.brokers[3]
        record = follower.disk.find("t", key).records[0]
        follower.controller.owner._replicas.dirs.retire("t", 0)
        cluster.invariants.acknowledged("t", key, 0, record, min_isr=3)
        assert world.unforeseen is None
        cluster.invariants.acknowledged("t", key, 0, (record[0], record[1] + 1), min_isr=1)
        assert "which only [] have" in str(world.unforeseen)


@pytest.mark.parametrize("deposed", [True, False])
def test_starting_process_refuses_outdated_requests(deposed: bool) -> None:
    """A full request from before the topic was created would make all logs strays."""
    with calm() as cluster:
        world, first = cluster.world, others(cluster)
        late = {one.number: [frame for to, frame in cluster.network.orders if to == one.number] for one in first}
        if deposed:
            next(one for one in cluster.brokers.values() if one not in first).die("is killed")
            world.run(world.now + 3.0)
        broker = next(one for one in others(cluster) if one in first)
        key = cluster.topic("t").id, 0
        log = broker.disk.find("t", key)
        broker.kill_controller()
        until(cluster, lambda: broker.controller is not None)
        for frame in late[broker.number]:
            broker.workers.late(frame)
        world.run(world.now + 3.0)
        assert broker.disk.find("t", key) is log


def others(cluster: Cluster) -> list[Any]:
    """Brokers that are not the controller."""
    brokers: list[Any] = list(cluster.brokers.values())
    return [broker for broker in brokers if broker.controller and broker.controller.owner.elected is None]


def break_disk(cluster: Cluster, broker: Any) -> None:
    """Fail the disk that has the replica of t-0, and wait until all brokers know it."""
    directory = broker.disk.find("t", (cluster.topic("t").id, 0))
    directory.log_dir.broken = True
    broker.shared.fail_dir(directory.log_dir.number)
    cluster.world.run(cluster.world.now + 2.0)


@contextmanager
def calm(unclean: bool = False) -> Iterator[Cluster]:
    """Three brokers that replicate a partition, without random faults."""
    history = History(1, unclean=unclean, brokers=3, lag=0.0, aside=0.0)
    cluster, world = history.cluster, history.world
    cluster.busy = 0.0
    with installed(world, cluster.codec, cluster.sockets, 1):
        for broker in cluster.brokers.values():
            broker.start()
        world.run(world.now + 2.0)
        cluster.create_topic("t", {0: [1, 2, 3]})
        world.run(world.now + 3.0)
        yield cluster


def decided(cluster: Cluster, leader: int, isr: list[int]) -> PartitionUpdate:
    """The controller makes `leader` the leader in a new epoch; return the request to send."""
    state = cluster.state("t", 0)
    state = state._replace(leader=leader, leader_epoch=state.leader_epoch + 1, isr=isr)
    controller = znodes.decode_controller(cluster.zookeeper.nodes[znodes.CONTROLLER].data)
    session: Any = cluster.brokers[controller].session
    session.multi([Set(znodes.state_path("t", 0), znodes.encode_state(state), -1)])
    topic = cluster.topic("t")
    return PartitionUpdate(
        "t", topic.id, 0, state.controller_epoch, leader, state.leader_epoch, state.isr, 0, topic.replicas[0]
    )


def told(cluster: Cluster, broker: int, order: PartitionUpdate) -> None:
    """A broker receives the request, and so do its other processes."""
    controller: Any = cluster.brokers[broker].controller

    def receive() -> None:
        take(cluster, broker, order)
        controller.owner.changed = True
        controller.loop.go_on()

    cluster.world.after(0.0, controller.loop, receive)


def take(cluster: Cluster, broker: int, order: PartitionUpdate) -> None:
    """A broker carries out the request."""
    controller: Any = cluster.brokers[broker].controller
    assert controller.owner._replicas.become(order) == 0


def shown(cluster: Cluster, broker: int) -> Any:
    """Log end and high watermark of the partition on a broker."""
    state = slot(cluster, broker).state()
    return state.leo, state.hw


def slot(cluster: Cluster, broker: int) -> Any:
    """The partition's slot on a broker."""
    partition: Any = cluster.brokers[broker].workers.log.get("t", 0)
    return partition.slot


def until(cluster: Cluster, condition: Callable[[], object]) -> None:
    """Let events happen until the condition holds."""
    world, end = cluster.world, cluster.world.now + 10.0
    while not condition():
        assert world.now < end
        world.run(world.now + 0.0001)
