"""Group coordinators that move while offsets are committed, deleted and expire: memory equals the log, none is lost.

ODRADEK_MODEL_SEED and ODRADEK_MODEL_ROUNDS choose what the long test does.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from odradek.protocol.errors import Error

from .moving_coordinators import World

GROUPS = ["g", "h", "k"]
TPS = [("t", 0), ("t", 1), ("u", 0)]
PRODUCERS = [5, 6]
ROUNDS_EACH = 300


class Life:
    """`round` runs an operation."""

    def __init__(self, root: Path | None, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World(self.rng)
        self.said: list[str] = []
        self.sweeps: list[Iterator[None]] = []

    def round(self) -> None:
        some: list[Callable[[], None]] = [self.commit] * 4 + [self.commit_in_transaction] * 4 + [self.end] * 2
        some += [self.turn] * 8 + [self.replicate] * 8 + [self.mark] * 4 + [self.follow] * 3 + [self.fetch] * 3
        some += [self.delete_offsets, self.delete_group, self.delete_topic, self.expire, self.sweep, self.sweep]
        some += [self.fail_over, self.busy, self.busy, self.error, self.fault, self.wait, self.wait]
        step = self.rng.choice(some)
        self.said.append(step.__name__)
        step()
        if self.rng.random() < 0.01:
            self.compare()

    def tps(self) -> set[tuple[str, int]]:
        return set(self.rng.sample(TPS, self.rng.randrange(1, 4)))

    def commit(self) -> None:
        self.world.commit(self.rng.choice(GROUPS), self.tps(), None)

    def commit_in_transaction(self) -> None:
        self.world.commit(self.rng.choice(GROUPS), self.tps(), self.rng.choice(PRODUCERS))

    def end(self) -> None:
        self.world.end(self.rng.choice(PRODUCERS), self.rng.random() < 0.6)

    def turn(self) -> None:
        self.rng.choice(self.world.nodes).turn()

    def replicate(self) -> None:
        self.rng.choice(self.world.shared).replicate()

    def mark(self) -> None:
        self.world.mark()

    def follow(self) -> None:
        """New metadata. A sweep that is based on the former one ends before, as in GroupCoordinator.follow."""
        node = self.rng.choice(self.world.nodes)
        self.end_sweeps()
        node.follow()

    def fetch(self) -> None:
        self.world.fetch(self.rng.choice(GROUPS), self.rng.choice(TPS))

    def delete_offsets(self) -> None:
        self.world.delete_offsets(self.rng.choice(GROUPS), self.tps())

    def delete_group(self) -> None:
        self.world.delete_group(self.rng.choice(GROUPS))

    def delete_topic(self) -> None:
        self.world.deleted_below = {at: one.end(one.leader) for at, one in enumerate(self.world.shared)}
        for node in self.world.nodes:
            for _ in node.machine.forgetting({"t"}, self.world.now):
                pass

    def expire(self) -> None:
        self.sweeps.append(self.rng.choice(self.world.nodes).machine.expiring(self.world.now))

    def sweep(self) -> None:
        self.sweeps = [one for one in self.sweeps if next(one, 0) is None]

    def end_sweeps(self) -> None:
        for one in self.sweeps:
            for _ in one:
                pass
        self.sweeps = []

    def fail_over(self) -> None:
        self.rng.choice(self.world.shared).fail_over()
        self.world.done["failover"] += 1

    def busy(self) -> None:
        self.rng.choice(self.world.nodes).log.busy = self.rng.random() < 0.4

    def error(self) -> None:
        some = [None, None, Error.NOT_ENOUGH_REPLICAS, Error.KAFKA_STORAGE_ERROR]
        self.rng.choice(self.world.nodes).log.error = self.rng.choice(some)

    def fault(self) -> None:
        if self.rng.random() < 0.3:
            self.rng.choice(self.world.nodes).machine.reset(self.rng.choice(GROUPS), self.world.now)

    def wait(self) -> None:
        self.world.pass_ms(self.rng.choice([1, 200, 1_000, 6_000, 61_000]))

    def compare(self) -> None:
        self.end_sweeps()
        self.world.compare()


def _live(root: Path | None, seed: int, rounds: int) -> Counter[str]:
    """Run one life; AssertionError with all operations."""
    life = Life(root, seed)
    try:
        for _ in range(rounds):
            life.round()
        life.compare()
    except BaseException as error:
        error.add_note(f"seed {seed}: " + "; ".join(life.said))
        raise
    return life.world.done


@pytest.mark.parametrize("turn", range(5))
def test_moving_coordinators_follow_the_log(turn: int) -> None:
    _live(None, random.randrange(1 << 32), ROUNDS_EACH)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_moving_coordinators_for_long() -> None:
    seed = int(os.environ.get("ODRADEK_MODEL_SEED", random.randrange(1 << 32)))
    rounds = int(os.environ.get("ODRADEK_MODEL_ROUNDS", 300_000))
    print("seed", seed, "rounds", rounds)
    done: Counter[str] = Counter()
    for life in range(max(rounds // ROUNDS_EACH, 1)):
        done += _live(None, seed + life, ROUNDS_EACH)
    print(dict(done))
    wanted = ("commit acknowledged", "txn commit acknowledged", "delete acknowledged", "delete group acknowledged")
    assert not [what for what in (*wanted, "transaction ended", "failover", "fetch") if not done[what]]
