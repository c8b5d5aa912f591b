"""Repeated SIGKILL of random processes under load: no record is lost, duplicated, reordered or skipped.

`ODRADEK_TEST_SEED` replays a run's choice of victims and pauses, `ODRADEK_TEST_KILLS` says how many.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from typing import Any

import pytest

from ..harness.process import command_words, family, living, wait_until
from .world import BUSY, STALL_S, World

pytestmark = pytest.mark.live

VICTIMS = ("worker", "worker", "worker", "acceptor", "coordinator", "controller", "janitor")
WORKERS = 3
WHOLE = 25  # one of this many kills is of the supervisor


class Killer:
    """Chooses a process and kills it."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.broker = world, world.broker
        self.rng = random.Random(seed)
        self.killed: Counter[str] = Counter()

    def kill_one(self) -> None:
        """Kill one process, or the whole broker, and pause."""
        if self.rng.randrange(WHOLE) == 0:
            self.broker.kill()
            self.killed["supervisor"] += 1
            self.broker.start()
            self.world.await_more()
        elif self.rng.randrange(WHOLE) == 0:
            self._kill_fork_server()
        else:
            self._kill(self.rng.choice(VICTIMS))
        time.sleep(self.rng.choice([0.05, 0.2, 0.4, 0.8]))

    def _kill(self, role: str) -> None:
        """Kill a process of `role`, or of the next role that has one; the last worker is spared."""
        order = list(dict.fromkeys(VICTIMS))
        at = order.index(role)
        which = self.rng.random()
        for other in wait_until(lambda: self._living([*order[at:], *order[:at]]), 30, "a process to kill"):
            self.broker.kill_role(other, int(which * len(self.broker.pids(other))))
            self.killed[other] += 1
            return

    def _living(self, order: list[str]) -> list[str]:
        return [role for role in order if len(self.broker.pids(role)) > (role == "worker")]

    def _kill_fork_server(self) -> None:
        """Until another fork server has imported the modules, the supervisor starts processes with exec."""
        for process in living(family(self.broker.process.pid)):
            if "fork-server" in command_words(process):
                process.kill()
                self.killed["fork-server"] += 1


def kills(fresh_broker: Any, count: int) -> None:
    """Run `count` kills, and verify the records."""
    seed = int(os.environ.get("ODRADEK_TEST_SEED", random.randrange(1 << 32)))
    count = int(os.environ.get("ODRADEK_TEST_KILLS", count))
    print(f"ODRADEK_TEST_SEED={seed} ODRADEK_TEST_KILLS={count}")
    world = World(fresh_broker(odradek_workers=WORKERS, **BUSY), sides=True)
    killer = Killer(world, seed)
    with world.running():
        while killer.killed.total() < count:
            killer.kill_one()
        world.await_more()
    print(f"{killer.killed.total()} kills {dict(killer.killed)}, {world.acked} acknowledged")
    world.verify()
    print("none lost, none doubled, all in order, `odradek check` clean")
    world.within(STALL_S)


@pytest.mark.timeout(300)
def test_records_survive_fifty_kills(fresh_broker: Any) -> None:
    kills(fresh_broker, 50)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_records_survive_a_thousand_kills(fresh_broker: Any) -> None:
    kills(fresh_broker, 1000)
