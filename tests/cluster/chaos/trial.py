"""One fault under load: injection, duration, healing, and a check that the load continues."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from .faults import FAULTS
from .world import World, wait

LEADER, CONTROLLER, ANY = "leader", "controller", "any"
BOUNCES = 5
FIVE_TIMES = " five times"  # the end of the name of a fault that is repeated so
# Faults that leave a working majority and are noticed at once: the load must make progress before they are healed.
SURVIVED = {"SIGTERM", "SIGKILL", "kill of the janitor", "one link cut"}


@dataclass
class Blow:
    """An injected fault, and the longest time without an acknowledgement (seconds)."""

    name: str
    broker: int
    gap: float


def target(world: World, whose: str, rng: random.Random) -> int:
    """The broker that the target names."""
    drawn = rng.choice(world.chaos_cluster.ids)  # drawn in any case, so that the sequence is the same
    if whose == LEADER:
        return world.leader()
    return world.chaos_cluster.controller() if whose == CONTROLLER else drawn


def strike(world: World, name: str, broker: int, seconds: float) -> Blow:
    """Inject a fault, and heal it."""
    world.begin_gaps()
    with FAULTS[name](world.chaos_cluster, broker, seconds):
        wait(seconds)
        if name in SURVIVED:
            world.await_more()
    world.await_more()
    return Blow(name, broker, world.longest_gap())


def bounce(world: World, name: str, whose: Callable[[], int], seconds: float) -> Blow:
    """Five restarts in a row, each of the current leader (Kafka's clean_bounce and hard_bounce)."""
    world.begin_gaps()
    broker = -1
    for _ in range(BOUNCES):
        broker = whose()
        with FAULTS[name](world.chaos_cluster, broker, seconds):
            wait(seconds)
    world.await_more()
    return Blow(f"{name}{FIVE_TIMES}", broker, world.longest_gap())


def strike_both(world: World, first: tuple[str, int], second: tuple[str, int], seconds: float) -> Blow:
    """Inject two faults at once, or the second during the first; the first is healed first."""
    world.begin_gaps()
    with ExitStack() as later:
        with ExitStack() as sooner:
            sooner.enter_context(FAULTS[first[0]](world.chaos_cluster, first[1], seconds))
            wait(seconds / 3)
            later.enter_context(FAULTS[second[0]](world.chaos_cluster, second[1], seconds))
            wait(seconds / 3)
        wait(seconds / 3)
    world.await_more()
    return Blow(f"{first[0]} + {second[0]}", first[1], world.longest_gap())
