"""A leader that misses an epoch in which another broker led, with real processes on a cut network.

It led before and leads again, so it could trust its former knowledge of its followers; but one of them has truncated
its log meanwhile. Records acknowledged with acks=all must be in the log of each replica that may be elected.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from odradek.cluster.tree import znodes
from odradek.cluster.tree.znodes import PartitionState
from odradek.cluster.tree.zookeeper import ZooKeeperTree

from ..clients.raw.batches import batch
from ..clients.raw.calls import produce, produce_request
from ..harness.process import wait_until
from ..harness.wire import Wire
from .chaos import admin_requests
from .chaos.chaos_cluster import ChaosCluster
from .chaos.divergence import batches, differences

pytestmark = pytest.mark.live

TOPIC = "t"
HALF = 20
PATIENCE_S = 120


class Scene:
    """`leader` leads, `former` led before and is preferred, `copy` only follows; `controller` is the controller."""

    def __init__(self, chaos_cluster: ChaosCluster, tree: ZooKeeperTree) -> None:
        self.chaos_cluster = chaos_cluster
        self._tree = tree
        self.controller = chaos_cluster.controller()
        self.leader, self.former, self.copy = [broker for broker in chaos_cluster.ids if broker != self.controller]

    # -- state

    def state(self) -> PartitionState:
        """The state node of the partition."""
        return znodes.decode_state(self._tree.get(znodes.state_path(TOPIC, 0))[0])

    def folder(self, broker: int) -> Path:
        return self.chaos_cluster.data(broker) / f"{TOPIC}-0"

    def end(self, broker: int) -> int:
        """The log end of a broker, by its files."""
        return max((one.last + 1 for one in batches(self.folder(broker), 1 << 60)), default=0)

    def await_end(self, broker: int, end: int) -> None:
        wait_until(lambda: self.end(broker) == end, PATIENCE_S, f"the log of broker {broker} to end at {end}")

    def await_state(self, leader: int, isr: set[int]) -> int:
        """Wait until the tree has that state; return the leader epoch."""
        wait_until(lambda: (self.state().leader, {*self.state().isr}) == (leader, isr), PATIENCE_S, f"{leader} to lead")
        return self.state().leader_epoch

    def leads(self, broker: int, epoch: int) -> bool:
        """Whether a broker leads in an epoch or a later one: a controller may begin one (decisions.broker_epochs)."""
        answer = self.chaos_cluster.metadata(broker, TOPIC)
        rows = answer.topics[0].partitions if answer is not None else []
        return [(row.leader_id, row.leader_epoch >= epoch) for row in rows] == [(broker, True)]

    # -- actions

    def make(self) -> None:
        """Create the topic with another leader than the preferred one."""
        first = [self.leader, self.former, self.copy]
        with self.chaos_cluster.broker(self.controller).wire() as wire:
            assert admin_requests.create(wire, TOPIC, {0: first}) == [0]
            self.await_state(self.leader, {*first})
            wait_until(
                lambda: self.leads(self.leader, self.state().leader_epoch),
                PATIENCE_S,
                "the leader to receive LeaderAndIsr",
            )
            other = [self.former, self.leader, self.copy]
            assert admin_requests.reassign(wire, {(TOPIC, 0): other}) == [0, 0]
        wait_until(
            lambda: self.chaos_cluster.cluster.partition(TOPIC).replica_nodes == other, PATIENCE_S, "the other order"
        )
        assert self.state().leader == self.leader

    def cut(self, broker: int, other: int) -> Any:
        """Drop all packets between two brokers, by rules on the host of the first."""
        return self.chaos_cluster.network.cut(broker, self.chaos_cluster.network.address(other))

    def replace_controller(self) -> None:
        """The controller dies; its successor does not wait for the end of its session."""
        self.chaos_cluster.broker(self.controller).kill()
        self._tree.delete(znodes.CONTROLLER)

    @contextmanager
    def stalled_controller(self, broker: int) -> Iterator[None]:
        """Stop the controller process for less than its session lasts, and the supervisor, which would kill it."""
        one = self.chaos_cluster.broker(broker)
        stopped = [psutil.Process(pid) for pid in (*one.pids("supervisor"), *one.pids("controller"))]
        for process in stopped:
            process.suspend()
        try:
            yield
        finally:
            for process in reversed(stopped):
                process.resume()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    lag = {"replica_lag_time_max_ms": 600_000, "auto_leader_rebalance_enable": "false"}  # the ISR must not change
    with ChaosCluster(tmp_path, 4, **lag) as chaos_cluster:
        tree = ZooKeeperTree(chaos_cluster.zookeeper.connect)
        try:
            yield Scene(chaos_cluster, tree)
        finally:
            tree.close()


def fill(wire: Wire) -> None:
    for number in range(HALF):
        assert produce(wire, TOPIC, batch([b"%d" % number])).error_code == 0


@pytest.mark.needs("java-3.9.1")
@pytest.mark.timeout(400)
def test_leader_that_missed_an_epoch_acknowledges_only_replicated_records(scene: Scene) -> None:
    chaos_cluster, leader, former, copy = scene.chaos_cluster, scene.leader, scene.former, scene.copy
    scene.make()
    with ExitStack() as cuts, chaos_cluster.broker(leader).wire(PATIENCE_S) as wire:
        fill(wire)
        scene.await_end(former, HALF)
        cuts.enter_context(scene.cut(former, leader))
        waiting = produce_request(TOPIC, batch([b"late"] * HALF), timeout_ms=1000 * PATIENCE_S)
        wire.put(waiting)
        scene.await_end(copy, 2 * HALF)
        # Another broker leads, and `copy` follows it; `leader` gets no request about it.
        cuts.enter_context(scene.cut(copy, leader))
        cuts.enter_context(scene.cut(scene.controller, leader))
        with chaos_cluster.broker(scene.controller).wire() as admin:
            assert admin_requests.elect(admin, admin_requests.PREFERRED, [(TOPIC, 0)]) == [0, 0]
        missed = scene.await_state(former, {leader, former, copy})
        scene.await_end(copy, HALF)
        # `leader` leads again; the controller dies before it sends that, and the next one sends the current state.
        chaos_cluster.broker(former).kill()
        epoch = scene.await_state(leader, {leader, copy})
        assert epoch == missed + 1
        with scene.stalled_controller(copy):
            scene.replace_controller()
            wait_until(lambda: scene.leads(leader, epoch), PATIENCE_S, "the leader to receive its new epoch")
        acknowledged = wire.take(waiting).responses[0].partition_responses[0].error_code == 0
        assert not acknowledged or scene.end(copy) == 2 * HALF, f"acknowledged, and {copy} may be elected"
    chaos_cluster.start_all()
    scene.await_state(leader, {leader, former, copy})
    with chaos_cluster.broker(leader).wire() as wire:
        assert produce(wire, TOPIC, batch([b"all well"])).error_code == 0
    folders = [scene.folder(broker) for broker in (leader, former, copy)]
    assert differences(f"{TOPIC}-0", folders, 2 * HALF + 1) == []
