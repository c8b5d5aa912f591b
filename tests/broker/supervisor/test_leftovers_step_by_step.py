"""Each start removes what dead brokers left: every point of death, and every interleaving of a removal with a start."""

from __future__ import annotations

import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.broker import config as configuration
from odradek.broker.config import BrokerConfig
from odradek.broker.process.process import ROLE_LOCK, role_locks
from odradek.broker.supervisor import boot, leftovers
from odradek.ipc import region, region_files, roles, run_note, rundir

from ...harness.process import readable
from .stepped import Stepped

pytestmark = pytest.mark.live
NAMES = ("dead", "alive", "other")
REGIONS = {"control", "slots-0", "quotas"}
NOWHERE = Path("/nonexistent/run")
BLOCKED_S = 0.5  # a start that is ready by then has not waited; one that is not waits for the removal
LEAST_STEPS, MOST_STEPS = 20, 100


class Starting(Stepped):
    """A start; `ready` is readable once it is ready, or has ended."""

    ready: int

    def paused(self) -> bool:
        """Wait until it is at its step, or is ready; returns which."""
        poll = select.poll()
        poll.register(self.told, select.POLLIN)
        poll.register(self.ready, select.POLLIN)
        poll.poll()
        return readable(self.told, 0) and super().paused()

    def wait(self) -> int:
        """As of every child; its pipe ends with it."""
        if self.ready >= 0:
            os.close(self.ready)
            self.ready = -1
        return super().wait()

    def is_ready(self) -> bool:
        """Wait until it has started, or has ended."""
        return bool(os.read(self.ready, 1))


class Place:
    """Brokers in a directory for run directories of their own, without processes: what `boot.prepare` makes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.base = rundir.default_base()
        self.places = [str(self.base), *(region.SHM + rundir.shm_prefix(folder / name) for name in NAMES)]
        self.children: list[Stepped] = []

    def config(self, name: str, **settings: str) -> BrokerConfig:
        chosen = {"log.dirs": str(self.folder / name), "listeners": "PLAINTEXT://127.0.0.1:0"}
        return configuration.resolve({**chosen, "odradek.partition.slots": "64", **settings})

    def start(self, config: BrokerConfig, step: int = 0, deadly: bool = False) -> Starting:
        """`odradek start` as far as the first process, which then waits for its death."""

        def prepare() -> None:
            kept = boot.prepare(config)
            os.write(ready, b"r")
            signal.pause()
            del kept

        reading, ready = os.pipe()
        child = Starting(prepare, self.places, step, deadly)
        os.close(ready)
        child.ready = reading
        self.children.append(child)
        return child

    def kill_started(self, config: BrokerConfig) -> None:
        child = self.start(config)
        assert child.is_ready()
        child.kill()

    def sweep(self, step: int = 0, deadly: bool = False) -> Stepped:
        self.children.append(Stepped(lambda: leftovers.sweep(NOWHERE), self.places, step, deadly))
        return self.children[-1]

    def left(self) -> list[str]:
        """Run directories, and what is in them."""
        return sorted(str(path.relative_to(self.base)) for path in self.base.rglob("*"))

    def close(self) -> None:
        for child in self.children:
            child.kill()


def regions(config: BrokerConfig) -> list[region_files.RegionFile]:
    return region_files.found(rundir.broker_key(config.data_dir))


def is_whole(config: BrokerConfig) -> bool:
    """Whether a broker has its lock, its note, and all its regions."""
    locks = role_locks(config, create=False)
    note = run_note.decode(locks.note())
    names = {one.name.split("-", 2)[2] for one in regions(config)}
    assert note is not None
    return (
        locks.alive(roles.SUPERVISOR)
        and names == REGIONS
        and {one.incarnation for one in regions(config)} == {note.incarnation}
        and (config.run_dir / "config.json").exists()
    )


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    folder = Path(tempfile.mkdtemp(prefix="odl-", dir="/tmp"))  # a short path: sockets are in it
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    for name in ("ODRADEK_RUN_DIR", "RUNTIME_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    made = Place(folder)
    yield made
    made.close()
    for name in NAMES:
        region.unlink_all(rundir.shm_prefix(folder / name))
    shutil.rmtree(folder)


@pytest.mark.smoke
def test_the_start_of_another_broker_removes_what_a_dead_one_left(place: Place) -> None:
    dead, alive, other = place.config("dead"), place.config("alive"), place.config("other")
    assert place.start(alive).is_ready()
    place.kill_started(dead)
    assert {one.name.split("-", 2)[2] for one in regions(dead)} == REGIONS
    assert place.start(other).is_ready()
    assert not regions(dead) and not dead.run_dir.exists()
    assert is_whole(alive) and is_whole(other)


def test_the_session_with_zookeeper_stays_for_the_next_start_until_it_has_expired(place: Place) -> None:
    dead = place.config("dead")
    place.kill_started(dead)
    (dead.run_dir / rundir.SESSION_FILE).write_text("1\nabc\n")
    for _ in range(2):
        leftovers.sweep(NOWHERE)
        assert not regions(dead) and {path.name for path in dead.run_dir.iterdir()} == {ROLE_LOCK, rundir.SESSION_FILE}
    long_ago = time.time() - leftovers.SESSION_KEPT_S - 1
    os.utime(dead.run_dir, (long_ago, long_ago))
    leftovers.sweep(NOWHERE)
    assert not dead.run_dir.exists()


def test_memory_that_systemd_finds_again_and_other_files_stay(place: Place) -> None:
    """No process holds a role between two units, and the memory outlives them."""
    units, dead = place.config("alive"), place.config("dead")
    child = Stepped(lambda: boot.prepare(units, listen=False), place.places)
    assert child.wait() == 0
    place.kill_started(dead)
    (dead.run_dir / "mine").touch()
    leftovers.sweep(NOWHERE)
    assert {one.name.split("-", 2)[2] for one in regions(units)} == REGIONS
    assert (units.run_dir / "config.json").exists()
    assert not regions(dead) and (dead.run_dir / "mine").exists()


@pytest.mark.long
def test_a_start_that_dies_at_any_step_leaves_nothing_to_the_next_removal(place: Place) -> None:
    """Except an empty directory or lock file, of a death before there is anything else."""
    dead = place.config("dead")
    for step in range(1, MOST_STEPS):
        child = place.start(dead, step, deadly=True)
        if child.is_ready():
            child.kill()
            break
        assert child.wait() == -signal.SIGKILL
        leftovers.sweep(NOWHERE)
        assert not regions(dead), step
        assert [path.stat().st_size for path in place.base.rglob("*/*")] in ([], [0]), (step, place.left())
    assert LEAST_STEPS < step < MOST_STEPS - 1, "the steps are not counted"


@pytest.mark.long
def test_a_removal_that_dies_at_any_step_is_continued_by_the_next(place: Place) -> None:
    dead, alive = place.config("dead"), place.config("alive")
    assert place.start(alive).is_ready()
    for step in range(1, MOST_STEPS):
        place.kill_started(dead)
        child = place.sweep(step, deadly=True)
        if child.wait() == 0:
            break
        leftovers.sweep(NOWHERE)
        assert not regions(dead), step
        assert not list(dead.run_dir.glob("*")), (step, place.left())
    assert LEAST_STEPS < step < MOST_STEPS - 1, "the steps are not counted"
    assert is_whole(alive)


@pytest.mark.long
def test_a_start_that_waits_at_any_step_keeps_all_from_a_removal(place: Place) -> None:
    starting = place.config("dead")
    for step in range(1, MOST_STEPS):
        place.kill_started(starting)  # there is something to remove
        child = place.start(starting, step)
        paused = child.paused()
        leftovers.sweep(NOWHERE)
        child.go_on()
        assert child.is_ready(), step
        assert is_whole(starting), step
        child.kill()
        if not paused:
            break
    assert LEAST_STEPS < step < MOST_STEPS - 1, "the steps are not counted"


@pytest.mark.long
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_removal_that_waits_at_any_step_harms_no_start(place: Place, elsewhere: bool) -> None:
    """`elsewhere`: the start has the same log directory, so the same names of regions, and another run directory."""
    dead = place.config("dead")
    starting = place.config("dead", **({"odradek.run.dir": str(place.folder / "run")} if elsewhere else {}))
    for step in range(1, MOST_STEPS):
        place.kill_started(dead)
        removal = place.sweep(step)
        paused = removal.paused()
        child = place.start(starting)
        readable(child.ready, BLOCKED_S)  # it gets as far as it can while the removal waits
        removal.go_on()
        assert removal.wait() == 0
        assert child.is_ready(), step
        assert is_whole(starting), step
        child.kill()
        if elsewhere:
            shutil.rmtree(place.folder / "run")
        if not paused:
            break
    assert LEAST_STEPS < step < MOST_STEPS - 1, "the steps are not counted"
