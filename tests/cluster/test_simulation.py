"""Random histories of a whole simulated cluster: whatever happens, nothing acknowledged is lost and all becomes well.

One that fails names its seed: `python -m tests.cluster.simulation SEED` tells it again.
"""

from __future__ import annotations

from typing import Any

import pytest
from odradek.cluster import znodes
from odradek.cluster.tree import Set
from odradek.cluster.view import Told

from .simulation.cluster import Cluster
from .simulation.history import History, explained
from .simulation.seams import installed

SHORT, LONG, TOGETHER = 200, 6000, 25


def run(first: int, count: int) -> None:
    """Histories of these seeds."""
    for seed in range(first, first + count):
        try:
            History(seed).run()
        except Exception as error:
            pytest.fail(f"{explained(seed)}\n{error!r}\nseed {seed}: python -m tests.cluster.simulation {seed}")


@pytest.mark.parametrize("first", range(0, SHORT, TOGETHER))
def test_histories(first: int) -> None:
    run(first, TOGETHER)


@pytest.mark.long
@pytest.mark.parametrize("first", range(SHORT, LONG, 200))
def test_many_histories(first: int) -> None:
    run(first, 200)


def test_a_history_happens_again() -> None:
    def told(seed: int) -> list[str]:
        history = History(seed)
        history.world.trace.__init__(maxlen=1_000_000)  # type: ignore[misc]
        history.run()
        return list(history.world.trace)

    assert told(7) == told(7)


def test_what_a_leader_commits_counts_though_it_follows_in_the_same_step() -> None:
    """Seed 2372 as it was once: a member of the ISR died, and the preferred leader came back at once.

    The leader heard of both together: in the first epoch all that are left have the last record, so it is committed;
    in the second the leader follows, and shows that.
    """
    history = History(1, unclean=False, brokers=3, lag=0.0)
    cluster, world = history.cluster, history.world
    cluster.busy = 0.0
    with installed(world, cluster.codec, cluster.sockets, 1):
        for broker in cluster.brokers.values():
            broker.start()
        world.run(world.now + 2.0)
        cluster.create_topic("t", {0: [1, 2, 3]})
        world.run(world.now + 3.0)
        cluster.brokers[3].stop(5.0)
        cluster.produce("t", 0, to=1, acks_all=False)
        world.run(world.now + 0.5)
        assert shown(cluster, 1) == (1, 0), "it waits for who is stopped"
        orders = [decided(cluster, leader) for leader in (1, 2)]
        world.after(0.0, cluster.brokers[1].loop, lambda: [take(cluster, 1, order) for order in orders])
        world.run(world.now + 0.001)
    assert shown(cluster, 1) == (1, 1)


def decided(cluster: Cluster, leader: int) -> Told:
    """The controller has `leader` lead in another epoch, without the third broker; what it is to tell."""
    state = cluster.state("t", 0)
    state = state._replace(leader=leader, leader_epoch=state.leader_epoch + 1, isr=[1, 2])
    office = znodes.decode_controller(cluster.zookeeper.nodes[znodes.CONTROLLER].data)
    session: Any = cluster.brokers[office].session
    session.multi([Set(znodes.state_path("t", 0), znodes.encode_state(state), -1)])
    topic = cluster.topic("t")
    return Told("t", topic.id, 0, state.controller_epoch, leader, state.leader_epoch, state.isr, 0, topic.replicas[0])


def take(cluster: Cluster, broker: int, order: Told) -> None:
    """A broker does what it is told."""
    controller: Any = cluster.brokers[broker].controller
    assert controller.owner._replicas.become(order) == 0


def shown(cluster: Cluster, broker: int) -> Any:
    """Log end and high watermark of the partition on a broker."""
    (partition,) = cluster.brokers[broker].partitions()
    return partition.state().leo, partition.state().hw
