"""SIGKILL at every named failpoint, under load of three producers on the same partitions.

The points are in failpoints/points.py. One broker goes through many points in turn; at the end it must have every
acknowledged record, and `odradek check` must pass. `ODRADEK_TEST_SEED` replays at which hit each point fires,
`ODRADEK_TEST_POINTS` names other points to go through.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ..harness.process import wait_until
from .failpoints.arming import Arming
from .failpoints.points import POINTS, Point
from .world import BUSY, World

WORKERS = 3
REACHED_S = 60  # the janitor has the lowest priority (nice)
DEATHS = 10
BY_NAME = {point.name: point for point in POINTS}
# `make test` goes through these points, `make test-long` through all.
SHORT = (
    "append.before-write", "append.between-write-and-index", "append.after-index", "append.before-publish",
    "append.after-publish", "append.before-unlock", "append.doorbell-owed", "roll.after-snapshot", "roll.index-made",
    "roll.before-publish", "flush.after-fsync", "handoff.before-send", "handoff.received",
    "internal-topic.before-publish",
    "metadata.before-commit", "metadata.after-slot", "metadata.region-made", "metadata.directory-retired",
    "checkpoint.recovery-point", "retention.after-rename", "swap.marked", "swap.moved-in", "repair.cut",
    "recovery.before-publish", "stop.before-mark",
)  # fmt: skip


class Drill:
    """One broker under load, for one failpoint after the other."""

    def __init__(self, broker: Any, arming: Arming, rng: random.Random) -> None:
        self.broker, self.arming, self.rng = broker, arming, rng
        self.world = World(broker, sides=True)
        self.through: dict[str, Callable[[Point], None]] = {
            "load": self.load, "respawn": self.respawn, "repair": self.repair, "retire": self.retire,
            "boot": self.boot, "restart": self.restart, "stop": self.stop,
        }  # fmt: skip

    def go(self, points: Sequence[Point]) -> None:
        """Go through all of `points`."""
        with self.world.running():
            for point in points:
                began = time.monotonic()
                self.through[point.phase](point)
                reached = time.monotonic() - began
                self.up()
                self.world.await_more(5)
                print(f"{point.name}: reached after {reached:.1f} s, all well after {time.monotonic() - began:.1f} s")
        self.world.verify()

    def up(self) -> None:
        """Wait until the broker and at least two workers run, since a point needs a process."""
        if self.broker.process is None or self.broker.process.poll() is not None:
            if self.broker.process is not None:
                self.broker.kill()
            self.broker.start()
        wait_until(lambda: len(self.broker.pids("worker")) > 1, 30, "two workers")

    def reached(self, point: Point) -> None:
        """Wait until a process has died at the point."""
        try:
            wait_until(lambda: self.arming.fired(point.name), REACHED_S, fail=False)
            pid = self.arming.fired(point.name)
            assert pid, f"{point.name} was never reached\n{self.world.problems}\n{self.broker.log[-5000:]}"
            if pid == getattr(self.broker.process, "pid", 0):
                self.broker.process.wait(60)
        finally:
            self.arming.disarm()

    def load(self, point: Point) -> None:
        """The load reaches the point."""
        hit = 1 if point.roles != ("worker",) or point.path else self.rng.randint(1, 40)
        self.arming.arm(point.name, hit)
        self.reached(point)

    def respawn(self, point: Point) -> None:
        """The successor of a killed child reaches the point, or the supervisor does."""
        role = "janitor" if point.roles[0] in ("supervisor", "fork-server") else point.roles[0]
        pids = wait_until(lambda: self.broker.pids(role), 30, f"a {role} to kill")
        self.arming.arm(point.name, point.hit)
        with contextlib.suppress(ProcessLookupError):  # the process was starting, and reached the point itself
            os.kill(pids[0], signal.SIGKILL)
        self.reached(point)

    def repair(self, point: Point) -> None:
        """A worker dies between write and publish or before the producer table; the next lock holder reaches the point.

        No process takes the lock if the topic is being deleted: then another worker dies.
        """
        first = "append.before-producer" if "publish" in point.name else "append.between-write-and-index"
        self.arming.arm(point.name)
        for _ in range(DEATHS):
            self.arming.arm(first, self.rng.randint(1, 5))
            if wait_until(lambda: self.arming.fired(point.name), REACHED_S / DEATHS, fail=False):
                break
        self.reached(point)

    def retire(self, point: Point) -> None:
        """A worker that `odradek scale` retires reaches the point; then the number of workers is restored."""
        self.arming.arm(point.name)
        self._scale(WORKERS - 1)
        self.reached(point)
        self._scale(WORKERS)

    def _scale(self, workers: int) -> None:
        done = self.broker.command("scale", "--workers", str(workers), "--override", f"log.dirs={self.broker.data_dir}")
        assert done.returncode == 0, done.stdout + done.stderr

    def boot(self, point: Point) -> None:
        """Kill all, tear the end of the logs as a power failure does, and start: the start reaches the point."""
        self.broker.kill()
        for path in self.broker.data_dir.glob(f"{self.world.topic}-*"):
            _tear(max(path.glob("*.log")))
        self.arming.arm(point.name)
        self._start(point)

    def restart(self, point: Point) -> None:
        """The start after a clean stop reaches the point."""
        self.broker.stop()
        self.arming.arm(point.name)
        self._start(point)

    def _start(self, point: Point) -> None:
        try:
            self.broker.start()
        except AssertionError:  # the supervisor died at the point
            assert self.arming.fired(point.name), self.broker.log[-5000:]
        self.reached(point)

    def stop(self, point: Point) -> None:
        """A clean stop reaches the point. The next start must not take a death there for a clean stop."""
        self.arming.arm(point.name)
        process = self.broker.process
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        self.reached(point)


def _tear(path: Path) -> None:
    """Write the start of an incomplete batch, and drop index entries that were not synced."""
    path.with_suffix(".index").unlink(missing_ok=True)  # a segment whose roll was killed may have a log only
    path.with_suffix(".timeindex").unlink(missing_ok=True)
    with path.open("ab") as log:
        log.write(b"\0" * 8 + b"\0\0\1\0" + b"torn")


@pytest.fixture
def drill(fresh_broker: Any, tmp_path: Path) -> Iterator[Drill]:
    seed = int(os.environ.get("ODRADEK_TEST_SEED", 1))
    broker = fresh_broker(start=False, odradek_workers=WORKERS, **BUSY)
    arming = Arming(tmp_path / "failpoints")
    broker.env |= arming.environment()
    broker.start()
    yield Drill(broker, arming, random.Random(seed))
    arming.disarm()


def test_failpoints_are_at_least_forty_with_unique_names() -> None:
    assert len(POINTS) >= 40
    assert len({point.name for point in POINTS}) == len(POINTS)


@pytest.mark.live
@pytest.mark.timeout(300)
def test_records_survive_kills_at_important_points(drill: Drill) -> None:
    names = os.environ.get("ODRADEK_TEST_POINTS")
    drill.go([BY_NAME[name] for name in (names.split() if names else SHORT)])


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("stem", sorted({point.name.partition(".")[0] for point in POINTS}))
def test_records_survive_kills_at_every_point(drill: Drill, stem: str) -> None:
    drill.go([point for point in POINTS if point.name.startswith(stem + ".")])


@pytest.mark.parametrize("place", sorted({point.inside for point in POINTS if point.inside}))
def test_function_of_each_point_exists(place: str) -> None:
    """A point in a renamed function is never reached, which only the long test would show."""
    module, _, name = place.partition(":")
    tree = ast.parse(inspect.getsource(importlib.import_module(f"odradek.{module}")))
    functions = {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    assert name == "" or name in functions


@pytest.mark.live
@pytest.mark.timeout(120)
def test_broker_has_no_failpoints_without_the_variable(fresh_broker: Any) -> None:
    """The sources of the broker name no failpoint, so a production broker cannot reach one."""
    broker = fresh_broker()
    for pid in [broker.process.pid, *broker.pids("worker")]:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
        assert b"ODRADEK_FAILPOINTS" not in environment
    root = Path(__file__).parents[2]
    sources = [path for name in ("broker", "workers", "storage", "ipc") for path in (root / name).rglob("*.py")]
    assert not [path for path in sources if "FAILPOINT" in path.read_text()]
