"""A cluster goes from a released version to this tree and back while random faults strike: no guarantee is broken.

`ODRADEK_TEST_SEED` repeats a run's faults.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ..cluster.chaos.chaos_cluster import ChaosCluster
from ..cluster.chaos.faults import FAULTS
from ..cluster.chaos.trial import strike
from ..cluster.chaos.world import World, wait
from .load import Load
from .released import HERE, install, upgrade

pytestmark = [pytest.mark.long, pytest.mark.needs("java-3.9.1", "ip", "nft"), pytest.mark.timeout(3600)]

# Another broker has one of them while a broker is replaced: two of three are enough to elect a controller, but a
# broker that starts needs ZooKeeper within its limits.
MEANWHILE = (
    "SIGTERM", "SIGKILL", "kill of the worker", "kill of the controller", "kill of the coordinator",
    "kill of the replicator", "kill of the janitor", "kill of the acceptor", "kill of the fork server", "SIGSTOP",
    "session closed", "session expired", "isolated", "cut off from brokers", "one link cut", "packets to brokers lost",
    "every tenth packet lost", "low bandwidth", "fsync takes a second", "disk failing", "clock an hour ahead",
)  # fmt: skip
BETWEEN = sorted(FAULTS)
LASTS_S = 4.0
# See tests.cluster.chaos.load.ByLibrdkafka.
ONE_BY_ONE = {"max.in.flight": 1, "message.timeout.ms": 300_000, "request.timeout.ms": 3000, "socket.timeout.ms": 6000}


@contextmanager
def cluster_of(folder: Path, code: Path) -> Iterator[ChaosCluster]:
    """All its brokers run this version."""
    made = ChaosCluster(folder, 3, None, transaction_state_log_min_isr=2, transaction_state_log_num_partitions=4)
    for broker in made.cluster.brokers:
        install(broker, code)
    with made as started:
        yield started


def restart(world: World, number: int, code: Path, kill: bool) -> None:
    broker = world.chaos_cluster.broker(number)
    broker.kill() if kill else broker.stop()
    install(broker, code)
    broker.start()


def replace(world: World, number: int, code: Path, rng: random.Random) -> str:
    """Replace a broker's code in one of three ways; in two of them another broker has a fault meanwhile."""
    way = rng.choice(("stop", "kill", "upgrade"))
    if way == "upgrade" and upgrade(world.chaos_cluster.broker(number), code):
        return way
    name, other = rng.choice(MEANWHILE), (number + rng.choice((1, 2))) % 3
    with FAULTS[name](world.chaos_cluster, other, LASTS_S):
        restart(world, number, code, way == "kill")
        wait(rng.uniform(0, LASTS_S))
    return f"{way} during {name} of broker {other}"


def roll(world: World, code: Path, rng: random.Random) -> None:
    """Replace the code of all brokers, one after the other in any order, with a fault of any broker after each."""
    for number in rng.sample(world.chaos_cluster.ids, 3):
        world.begin_gaps()
        way = replace(world, number, code, rng)
        world.await_more()
        print(f"broker {number}: {way}; no acknowledgement for up to {world.longest_gap():.1f} s", flush=True)
        blow = strike(world, rng.choice(BETWEEN), rng.randrange(3), rng.uniform(0.5, LASTS_S))
        print(f"    {blow.name} of broker {blow.broker}: for up to {blow.gap:.1f} s", flush=True)


def roll_under_load(chaos_cluster: ChaosCluster, code: Path, rng: random.Random) -> None:
    """The load is judged at the end."""
    world = World(chaos_cluster, pause=0.03)
    with world.running():
        roll(world, code, rng)
        verdict = world.verify()
    print(verdict.counts(), flush=True)
    assert verdict.faults == [], [member.errors for member in world.members]
    chaos_cluster.delete_topic(world.topic)  # administrators know one topic under load


def test_upgrade_and_downgrade_under_random_faults_break_no_guarantee(tmp_path: Path, released: Path) -> None:
    """The load of the upgrade and that of the way back are judged, then all directories are checked. Transactions go on
    all the time; at the end the released version reads all of them.
    """
    seed = int(os.environ.get("ODRADEK_TEST_SEED", random.randrange(1 << 32)))
    print(f"ODRADEK_TEST_SEED={seed}", flush=True)
    rng = random.Random(seed)
    with cluster_of(tmp_path, released) as chaos_cluster:
        load = Load.of(chaos_cluster.cluster, **ONE_BY_ONE)
        with load.running():
            roll_under_load(chaos_cluster, HERE, rng)
            roll_under_load(chaos_cluster, released, rng)
            load.settle()
        load.verify()
        assert chaos_cluster.check() == []
