"""Faults under load × leader or controller × kinds of producers, as in Apache Kafka's own replication test.

Three partitions of factor 3, `min.insync.replicas` 2, as in Kafka's test. Each fault strikes six producers at once: one
each with acks=all idempotent, acks=all once, acks=1 once, without compression and with lz4; each is one combination.
A group of two commits meanwhile, a reader tails; then all records are read and all replicas compared. `make test` runs
two faults, 12 combinations; the long run has all, also with each protocol and mechanism between brokers.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial

import pytest

from .chaos.chaos_cluster import ChaosCluster
from .chaos.trial import CONTROLLER, FIVE_TIMES, LEADER, bounce, strike, target
from .chaos.world import World

TARGETS = (LEADER, CONTROLLER)
BOUNCED = ("SIGTERM", "SIGKILL")
STRUCK = {  # seconds
    "SIGTERM": 1, "SIGKILL": 1, "SIGSTOP": 3, "kill of the worker": 1, "kill of the controller": 1,
    "kill of the replicator": 1, "session closed": 2, "SIGKILL of ZooKeeper": 2,
}  # fmt: skip
BETWEEN = (  # brokers; clients come over SASL_SSL, with exactly the ACLs that they need
    "SSL", "SASL_PLAINTEXT/PLAIN", "SASL_PLAINTEXT/SCRAM-SHA-256", "SASL_SSL/PLAIN", "SASL_SSL/SCRAM-SHA-512",
)  # fmt: skip
SECURED = [pytest.param(between, marks=pytest.mark.long) for between in BETWEEN]
SAMPLE = [("SIGKILL", LEADER), (f"SIGTERM{FIVE_TIMES}", CONTROLLER)]

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1"), pytest.mark.timeout(600)]


@pytest.fixture(scope="module", params=[pytest.param(None, id="plain"), *SECURED])
def chaos_cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChaosCluster]:
    """One cluster for all combinations; at its end every data directory passes `odradek check`."""
    with ChaosCluster(tmp_path_factory.mktemp("matrix"), 3, request.param) as made:
        yield made
        assert made.check() == []


def combinations() -> list[object]:
    """Each fault with each target; all but a sample are marked long."""
    names = [*STRUCK, *(f"{name}{FIVE_TIMES}" for name in BOUNCED)]
    every = [(name, whose) for name in names for whose in TARGETS]
    return [pytest.param(*one, marks=[] if one in SAMPLE else [pytest.mark.long]) for one in every]


@pytest.mark.parametrize(("name", "whose"), combinations())
def test_fault_breaks_no_guarantee(chaos_cluster: ChaosCluster, name: str, whose: str) -> None:
    """Records acknowledged with acks=all are neither lost, duplicated nor reordered; all replicas are equal."""
    world, rng = World(chaos_cluster), random.Random(0)
    with world.running():
        if name.endswith(FIVE_TIMES):
            blow = bounce(world, name.removesuffix(FIVE_TIMES), partial(target, world, whose, rng), 0.2)
        else:
            blow = strike(world, name, target(world, whose, rng), STRUCK[name])
        verdict = world.verify()
    print(f"{name} ({whose}): no acknowledgement for up to {blow.gap:.1f} s; {verdict.counts()}")
    assert verdict.faults == [], "\n".join([f"{len(verdict.faults)} faults", *verdict.faults[:20]])
    assert verdict.commits, "a group that committed nothing proves nothing"
