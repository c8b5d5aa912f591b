"""Each start counts once, and an incomplete start leaves nothing in shared memory that others wait for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from odradek.broker.controller.replicas.slot_allocator import SlotAllocator
from odradek.cluster.state import ClusterState
from odradek.cluster.tree import znodes
from odradek.ipc import slots
from odradek.ipc.slots import SlotState

from .simulation.cluster import Cluster
from .simulation.memory import Shared
from .simulation.world import World

RECOVERING = SlotState(
    state=slots.RECOVERING, leader_epoch=-1, min_isr=1, isr_count=0, log_dir=0, hw_quorum=1, led_since=-1,
    recovers_to=slots.FOLLOWER,
)  # fmt: skip


@pytest.fixture
def cluster() -> Iterator[Any]:
    yield Cluster(World(1), 3)


def state_of(cluster: Any, broker: int) -> ClusterState:
    """The cluster state of a starting broker, over its own session."""
    state = ClusterState(cluster.zookeeper.connect(broker, lambda: None), broker)
    state.prepare(None)
    return state


def start_concurrently(one: ClusterState, other: ClusterState, reads: list[int], counted: list[int]) -> None:
    """Start `other` after each of the first reads of the number of starts by `one`."""
    get = one.tree.get

    def slow_get(path: str, watch: bool = False) -> Any:
        try:
            return get(path, watch)
        finally:
            if path == znodes.STARTS and reads:
                reads.pop()
                counted.append(other.count_start())

    one.tree.get = slow_get  # type: ignore[method-assign]  # a test double


def test_concurrent_starts_get_different_numbers(cluster: Any) -> None:
    one, other = state_of(cluster, 1), state_of(cluster, 2)
    counted: list[int] = []
    start_concurrently(one, other, [0, 0], counted)
    assert one.count_start() == 3 and counted == [1, 2]
    assert cluster.zookeeper.nodes[znodes.STARTS].data == b"3"


def test_lagging_zookeeper_server_repeats_no_number(cluster: Any) -> None:
    cluster.zookeeper.lag = 1000.0
    one, other = state_of(cluster, 1), state_of(cluster, 2)
    assert [one.count_start(), other.count_start(), one.count_start(), one.count_start()] == [1, 2, 3, 4]


@pytest.mark.parametrize(("version", "kept"), [(0, []), (1, [0])])
def test_slots_without_snapshot_are_free(cluster: Any, version: int, kept: list[int]) -> None:
    shared: Any = Shared(cluster.world, cluster.brokers[1], busy=0.0)
    assert SlotAllocator(shared, shared.locks, 1).open(RECOVERING)[0] == 0
    shared.metadata.version = version
    book = SlotAllocator(shared, shared.locks, 2)
    assert shared.slots.numbers(slots.RECOVERING) == kept
    assert book.open(RECOVERING)[0] == len(kept)
