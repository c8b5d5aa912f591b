"""The stuck lock holders that are killed, and those that are spared."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.broker.supervisor.stuck_lock_holders import StuckHolders
from odradek.ipc.locks import PartitionLocks
from odradek.ipc.shm import Shared

pytestmark = pytest.mark.live

HOLD = """
import sys, time
from odradek.ipc.locks import PartitionLocks
locks = PartitionLocks(sys.argv[1])
assert locks.try_lock(3)
print("held", flush=True)
time.sleep(600)
"""


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


@pytest.fixture
def shared() -> Iterator[Shared]:
    made = Shared.create(f"/odradek-test-{os.getpid()}-{time.monotonic_ns()}-", 1, 16)
    yield made
    made.destroy()


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock of slot 3."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "partition.lock")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def _sweeper(shared: Shared, tmp_path: Path, stall_ms: int = 0) -> StuckHolders:
    return StuckHolders(shared.slots, PartitionLocks(tmp_path / "partition.lock"), stall_ms)


def test_a_stuck_holder_is_killed_at_the_second_look(
    shared: Shared, tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    os.kill(holder.pid, signal.SIGSTOP)  # even a stopped process
    shared.slots[3].record_holder(holder.pid)
    shared.slots[3].mark_contended(_now_ms() - 1)
    sweeper = _sweeper(shared, tmp_path)
    assert sweeper.sweep(lambda pid: True) == []
    assert sweeper.sweep(lambda pid: True) == [holder.pid]
    assert holder.wait(10) == -signal.SIGKILL
    assert sweeper.sweep(lambda pid: True) == []


def test_not_before_its_time(shared: Shared, tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    shared.slots[3].record_holder(holder.pid)
    shared.slots[3].mark_contended(_now_ms())
    sweeper = _sweeper(shared, tmp_path, 600_000)
    assert sweeper.sweep(lambda pid: True) == sweeper.sweep(lambda pid: True) == []
    assert holder.poll() is None


def test_old_mark_on_a_free_lock_kills_no_process(
    shared: Shared, tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    """The waiting process died after its mark, and the holder has released the lock long ago."""
    shared.slots[5].record_holder(holder.pid)
    shared.slots[5].mark_contended(_now_ms() - 1)
    sweeper = _sweeper(shared, tmp_path)
    assert [sweeper.sweep(lambda pid: True) for _ in range(3)] == [[], [], []]
    assert holder.poll() is None


@pytest.mark.parametrize("renewed", [False, True])
def test_a_holder_that_went_on_is_spared(
    shared: Shared, tmp_path: Path, holder: subprocess.Popen[str], renewed: bool
) -> None:
    """Another process took the lock in between, or the same one has long work."""
    sweeper, start_ms = _sweeper(shared, tmp_path), _now_ms()
    shared.slots[3].record_holder(holder.pid)
    for n in range(3):
        shared.slots[3].renew() if renewed else shared.slots[3].record_holder(holder.pid)
        shared.slots[3].mark_contended(start_ms - 10 + n)
        assert sweeper.sweep(lambda pid: True) == []
    assert holder.poll() is None


def test_foreign_processes_are_never_killed(shared: Shared, tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    shared.slots[3].record_holder(holder.pid)
    shared.slots[3].mark_contended(_now_ms() - 1)
    sweeper = _sweeper(shared, tmp_path)
    assert [sweeper.sweep(lambda pid: False) for _ in range(3)] == [[], [], []]
    assert holder.poll() is None
