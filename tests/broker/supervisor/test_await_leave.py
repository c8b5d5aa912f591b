"""`odradek systemd leave` waits for a controller process that comes back, and not for one that does not."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.broker.process.process import Process, role_locks
from odradek.broker.supervisor import await_leave
from odradek.broker.supervisor.await_leave import Departure
from odradek.ipc import processes, roles

from ...cluster.controller_harness import ControllerHarness
from ...harness.process import wait_until

LOOKS_S = 0.3  # in which it looks several times


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ControllerHarness]:
    """Its memory and run directory; this test is its controller process."""
    harness = ControllerHarness(tmp_path)
    yield harness
    harness.close()


def test_it_waits_for_the_next_controller_process(broker: ControllerHarness) -> None:
    words = [sys.executable, "-m", "odradek.broker", "systemd", "leave", "--run-dir", str(broker.run_dir)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as leaving:
        wait_until(lambda: broker.shared.draining, 30, "it to begin")
        for state in (processes.DRAINING, processes.DEAD, processes.STARTING, processes.RUNNING):
            broker.shared.processes.set(roles.CONTROLLER, "state", state)
            time.sleep(LOOKS_S)
            assert leaving.poll() is None, f"nobody has left yet, a controller process is {processes.STATES[state]}"
        locks = role_locks(broker.config)
        Process(roles.CONTROLLER, broker.run_dir, broker.config, locks, broker.shared).mark_left_cluster()
        assert leaving.communicate(timeout=60)[1] == ""
        locks.close()


def test_it_does_not_wait_for_nobody(broker: ControllerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(await_leave, "_AWAY_S", 2 * LOOKS_S)
    began = time.monotonic()
    assert not Departure(broker.shared, role_locks(broker.config), broker.run_dir, 600).wait()
    assert 2 * LOOKS_S <= time.monotonic() - began < 300


def test_who_is_there_is_waited_for_until_patience_is_over(
    broker: ControllerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(await_leave, "_AWAY_S", LOOKS_S)
    locks, began = role_locks(broker.config), time.monotonic()
    assert locks.hold(roles.CONTROLLER)
    assert not Departure(broker.shared, role_locks(broker.config), broker.run_dir, 4 * LOOKS_S).wait()
    assert time.monotonic() - began >= 4 * LOOKS_S
    locks.close()
