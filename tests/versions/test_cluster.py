"""A cluster of three brokers goes from a released version to this tree and back, broker by broker, under load.

Of each three brokers one is stopped and started, one is killed and started, one runs `odradek upgrade`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ..harness.cluster import Cluster
from .contents import Metadata
from .load import Load
from .released import HERE, install, upgrade

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1"), pytest.mark.timeout(900)]

SETTINGS: dict[str, Any] = {
    "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
    "super_users": "User:ANONYMOUS",
    "transaction_state_log_min_isr": 2,
    "transaction_state_log_num_partitions": 4,
    "replica_lag_time_max_ms": 3000,
}


@pytest.fixture
def cluster(tmp_path: Path, released: Path) -> Iterator[Cluster]:
    """All brokers run the released version."""
    made = Cluster(tmp_path, **SETTINGS)
    for broker in made.brokers:
        install(broker, released)
    with made as started:
        yield started


def by_stop(load: Load, number: int, code: Path) -> None:
    """The others serve all partitions meanwhile."""
    broker = load.cluster.brokers[number]
    broker.stop()
    install(broker, code)
    load.await_more()
    broker.start()


def by_kill(load: Load, number: int, code: Path) -> None:
    """It starts again at once."""
    broker = load.cluster.brokers[number]
    broker.kill()
    install(broker, code)
    broker.start()


def in_place(load: Load, number: int, code: Path) -> None:
    """Where processes of both versions cannot run side by side, it is stopped as the command says."""
    if not upgrade(load.cluster.brokers[number], code):
        by_stop(load, number, code)


Way = Callable[[Load, int, Path], None]
UP: tuple[Way, ...] = (by_stop, by_kill, in_place)
DOWN: tuple[Way, ...] = (in_place, by_stop, by_kill)


def roll(load: Load, ways: tuple[Way, ...], code: Path) -> None:
    for number, way in enumerate(ways):
        way(load, number, code)
        load.settle()
        load.await_more()


def test_cluster_goes_to_this_tree_and_back_under_load(cluster: Cluster, released: Path) -> None:
    """Nothing is lost, doubled or out of order; both versions read what clients set while the other one ran."""
    load, metadata = Load.of(cluster), Metadata(cluster.brokers[0], 3)
    load.settle()
    with load.running():
        for ways, code in ((UP, HERE), (DOWN, released)):
            metadata.add(cluster.brokers[0])
            roll(load, ways, code)
            for broker in cluster.brokers:
                metadata.verify(broker)
    load.verify()
    load.await_same_replicas()
    assert ["Traceback" in broker.log for broker in cluster.brokers] == [False] * 3
