"""One history: a seed determines all events, so that the same seed gives the same history again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from .clients import Producers
from .cluster import Cluster
from .faults import Faults
from .seams import installed
from .world import World

FAULTS_S = 6.0
HEALING_S = 60.0
_BRANCH = logging.getLogger("odradek")


class Outcome(NamedTuple):
    """The result of a history."""

    steps: int
    seconds: float  # of the simulated clock
    counts: dict[str, int]
    lost: int  # by unclean elections


class History:
    """A world with a cluster in it."""

    def __init__(self, seed: int, **options: Any) -> None:
        self.seed = seed
        self.world = World(seed)
        random = self.world.random
        unclean = options.get("unclean", self.world.chance(0.1))
        self.cluster = Cluster(
            self.world, options.get("brokers", random.choice((3, 3, 4))), unclean,
            busy=random.choice((0.0, 0.05, 0.4)),
            **{"min.insync.replicas": random.choice((1, 2)), "replica.fetch.max.bytes": random.choice((24, 100, 9999))},
        )  # fmt: skip
        self.cluster.zookeeper.slow = random.choice((0.002, 0.02, 0.2))
        self.cluster.zookeeper.lag = options.get("lag", random.choice((0.0, 0.0, 0.02, 0.4)))
        self.cluster.aside = options.get("aside", Random(f"{seed} aside").choice((0.0, 0.0, 0.3, 1.0)))
        self.cluster.network.usual = random.choice((0.001, 0.001, 0.03))
        self.cluster.network.stray_s = random.choice((0.05, 0.5, 3.0))
        self.faults = Faults(self.cluster, **options)
        self.producers = Producers(self.cluster, random.choice((0.02, 0.05)))

    def run(self, most: int = 1 << 60) -> Outcome:
        """Run all of it, or `most` steps. Violation."""
        with installed(self.world, self.cluster.codec, self.cluster.sockets, self.seed), Listener(self.world):
            self._begin()
            self.world.run(self.world.now + FAULTS_S, most)
            if self.world.steps < most:
                self._end(most)
        world = self.world
        return Outcome(world.steps, world.now - 1000, self.cluster.counts, self.cluster.invariants.lost)

    def _begin(self) -> None:
        for broker in self.cluster.brokers.values():
            broker.start()
        self.world.run(self.world.now + 0.5)
        for name in "ab":
            self.faults.create(name)
        self.world.run(self.world.now + 0.3)
        self.producers.begin()
        self.faults.begin()

    def _end(self, most: int) -> None:
        self.faults.heal()
        world, cluster = self.world, self.cluster
        if any(log_dir.broken for broker in cluster.brokers.values() for log_dir in broker.disk.log_dirs):
            self._becomes_well(cluster.astray, most)
            self.faults.mend()
        self._becomes_well(cluster.ill, most)
        cluster.invariants.in_sync()
        cluster.invariants.check_acked()
        if world.unforeseen is not None:
            raise world.unforeseen

    def _becomes_well(self, ill: Callable[[], str], most: int) -> None:
        world, deadline = self.world, self.world.now + HEALING_S
        world.run(world.now + 1.0, most)
        self.producers.over = True
        while (why := ill()) and world.steps < most:
            if world.now > deadline:
                self.cluster.invariants.wrong(f"not well after {HEALING_S} s: {why}")
            world.run(world.now + 0.25, most)


class Listener(logging.Handler):
    """Takes the log lines of the real modules; an exception that one of them has caught is a violation."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def __enter__(self) -> Listener:
        self._former = _BRANCH.level, _BRANCH.propagate
        _BRANCH.addHandler(self)
        _BRANCH.setLevel(logging.INFO if self._world.telling else logging.ERROR)
        _BRANCH.propagate = False
        return self

    def __exit__(self, *_: object) -> None:
        _BRANCH.removeHandler(self)
        _BRANCH.setLevel(self._former[0])
        _BRANCH.propagate = self._former[1]

    def emit(self, record: logging.LogRecord) -> None:
        world = self._world
        who = world.running[-1] if world.running else None
        world.say(f"    {who.broker if who else '?'}/{who.name if who else '?'}: {record.getMessage()}")
        if record.exc_info and record.exc_info[1] is not None and world.unforeseen is None:
            world.unforeseen = record.exc_info[1]


def explained(seed: int, lines: int = 80, **options: Any) -> str:
    """The last events of a failing history."""
    history = History(seed, **options)
    history.world.trace.__init__(maxlen=lines)  # type: ignore[misc]  # sets another length in place
    try:
        history.run()
    except Exception as error:
        return "\n".join([*history.world.trace, f"seed {seed}: {error!r}"])
    return f"seed {seed} does not fail when it is repeated"
