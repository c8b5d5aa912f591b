"""`odradek systemd leave` waits for a controller process that restarts, but not without one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.broker.process import process
from odradek.broker.process.process import Process, role_locks
from odradek.broker.supervisor import await_leave
from odradek.broker.supervisor.await_leave import LeaveWait
from odradek.ipc import processes, roles

from ...cluster.controller_harness import ControllerHarness
from ...harness.played_time import PlayedTime
from ...harness.process import await_turns, wait_until


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ControllerHarness]:
    """The broker's memory and run directory; the test plays the controller process."""
    harness = ControllerHarness(tmp_path)
    yield harness
    harness.close()


def played(monkeypatch: pytest.MonkeyPatch) -> PlayedTime:
    clock = PlayedTime()
    for module in (await_leave, process):
        monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.mark.live
def test_it_waits_for_the_next_controller_process(broker: ControllerHarness) -> None:
    words = [sys.executable, "-m", "odradek.broker", "systemd", "leave", "--run-dir", str(broker.run_dir)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as leaving:
        wait_until(lambda: broker.shared.draining, 30, "the shutdown has begun")
        for state in (processes.DRAINING, processes.DEAD, processes.STARTING, processes.RUNNING):
            broker.shared.processes.set(roles.CONTROLLER, "state", state)
            await_turns(leaving.pid)
            assert leaving.poll() is None, (
                f"the broker is still a member, its controller process is {processes.STATES[state]}"
            )
        locks = role_locks(broker.config)
        Process(roles.CONTROLLER, broker.run_dir, broker.config, locks, broker.shared).mark_left_cluster()
        assert leaving.communicate(timeout=60)[1] == ""
        locks.close()


def test_it_does_not_wait_without_a_broker(broker: ControllerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = played(monkeypatch)
    assert not LeaveWait(broker.shared, role_locks(broker.config), broker.run_dir, 600).wait()
    assert await_leave._AWAY_S <= clock.now < 600


def test_a_live_controller_is_waited_for_until_the_timeout(
    broker: ControllerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, locks = played(monkeypatch), role_locks(broker.config)
    assert locks.hold(roles.CONTROLLER)
    assert not LeaveWait(broker.shared, role_locks(broker.config), broker.run_dir, 4 * await_leave._AWAY_S).wait()
    assert clock.now >= 4 * await_leave._AWAY_S
    locks.close()
