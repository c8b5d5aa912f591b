"""SIGSTOP of any process, also while it holds a partition lock: the others continue within two seconds."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from ..harness.process import await_turns, wait_until
from .failpoints.arming import Arming
from .world import BUSY, STALL_S, World, await_role

pytestmark = pytest.mark.live

WORKERS = 3
ROLES = ("worker", "acceptor", "coordinator", "controller", "janitor")
# Each while the process holds the lock of a partition that all producers write to.
IN_THE_LOCK = ("append.locked", "append.between-write-and-index", "append.before-publish", "roll.log-made")


@pytest.fixture
def world(fresh_broker: Any, tmp_path: Path) -> Iterator[World]:
    """A broker with failpoints, under load."""
    broker = fresh_broker(start=False, odradek_workers=WORKERS, **BUSY)
    arming = Arming(tmp_path / "failpoints")
    broker.env |= arming.environment()
    broker.start()
    one = World(broker, sides=True)
    one.arming = arming
    with one.running():
        yield one
    arming.disarm()


@pytest.mark.timeout(240)
def test_load_continues_when_each_process_is_stopped(world: World) -> None:
    each_stopped(world, 3)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_load_continues_while_the_supervisor_is_stopped_for_half_a_minute(world: World) -> None:
    """The supervisor ends other stopped processes sooner; only it stays stopped that long."""
    each_stopped(world, 30)


def each_stopped(world: World, seconds: float) -> None:
    """Stop a process of each role, one at each place in the lock, and the supervisor for `seconds`."""
    for role in ROLES:
        pid = world.broker.pids(role)[0]
        os.kill(pid, signal.SIGSTOP)
        replaced(world, role, pid)
    for name in IN_THE_LOCK:
        world.arming.arm(name, 5, signal.SIGSTOP)
        wait_until(lambda: world.arming.fired(name), 60, name)  # noqa: B023
        world.arming.disarm()
        replaced(world, "worker", world.arming.fired(name))
    supervisor_stopped(world, seconds)
    world.stop()
    world.within(STALL_S)
    world.verify()


def replaced(world: World, role: str, pid: int) -> None:
    """Wait until process `pid` has ended and another one has replaced it."""
    wait_until(lambda: not psutil.pid_exists(pid), 60, f"the stopped {role} is ended")
    await_role(world.broker, role, WORKERS if role == "worker" else 1)
    world.await_more()


def supervisor_stopped(world: World, seconds: float) -> None:
    """The load continues; the supervisor starts a dead process again once it continues itself."""
    process = world.broker.process
    os.kill(process.pid, signal.SIGSTOP)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        world.await_more()
    dead = world.broker.kill_role("janitor")
    os.kill(process.pid, signal.SIGCONT)
    world.broker.await_respawn("janitor", dead)


@pytest.mark.timeout(120)
def test_stopped_process_is_left_alone_if_the_setting_is_off(fresh_broker: Any) -> None:
    """`odradek.stopped.kill.ms=-1` is for operators who stop processes on purpose."""
    broker = fresh_broker(odradek_stopped_kill_ms=-1)
    pid = broker.pids("janitor")[0]
    os.kill(pid, signal.SIGSTOP)
    stopped = lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED  # noqa: E731
    wait_until(stopped, 60, "the janitor is stopped")  # a process that waits for the disk stops later
    await_turns(broker.process.pid, 20)  # the supervisor checks its processes in nearly every turn
    assert stopped()
    os.kill(pid, signal.SIGCONT)
