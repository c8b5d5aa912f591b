"""The stopped processes of the broker that are killed, and those that are spared."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from odradek.broker.supervisor.stopped_processes import StoppedProcesses, process_state

from ...harness.process import die_with_parent, wait_until

pytestmark = pytest.mark.live

ROLE = 5
_PTRACE_SEIZE, _PTRACE_INTERRUPT = 0x4206, 0x4207


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """Any process."""
    made = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], preexec_fn=die_with_parent)
    yield made
    made.kill()
    made.wait()


def look(sweeper: StoppedProcesses, process: subprocess.Popen[bytes], times: int, alive: bool = True) -> list[int]:
    """Check several times, each when it is due; returns the killed pids."""
    killed = []
    for _ in range(times):
        sweeper._next_check = 0.0
        killed += sweeper.sweep(lambda: {ROLE: process.pid}, lambda role: alive)
    return killed


def stop(process: subprocess.Popen[bytes]) -> None:
    os.kill(process.pid, signal.SIGSTOP)
    wait_until(lambda: process_state(process.pid) == "T")


def test_a_stopped_process_is_killed_when_its_time_is_over(process: subprocess.Popen[bytes]) -> None:
    stop(process)
    sweeper = StoppedProcesses(500)
    assert look(sweeper, process, 3) == []
    assert look(sweeper, process, 1) == [process.pid]
    assert process.wait(10) == -signal.SIGKILL
    assert look(sweeper, process, 5) == []


def test_supervisor_without_descriptors_kills_later(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this process were the supervisor, its end would end the broker."""

    def none_left(pid: int) -> int:
        raise OSError(errno.ENFILE, os.strerror(errno.ENFILE))

    stop(process)
    sweeper = StoppedProcesses(0)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pidfd_open", none_left)
        assert look(sweeper, process, 1) == []
    assert look(sweeper, process, 1) == [process.pid]


def test_zero_kill_ms_kills_at_the_first_check(process: subprocess.Popen[bytes]) -> None:
    stop(process)
    sweeper = StoppedProcesses(0)
    assert sweeper.sweep(lambda: {ROLE: process.pid}, lambda role: True) == [process.pid]


def test_one_that_goes_on_is_spared(process: subprocess.Popen[bytes]) -> None:
    sweeper = StoppedProcesses(500)
    for _ in range(3):
        stop(process)
        assert look(sweeper, process, 3) == []
        os.kill(process.pid, signal.SIGCONT)
        wait_until(lambda: process_state(process.pid) != "T")
        assert look(sweeper, process, 1) == []
    assert process.poll() is None


def test_running_ones_and_other_peoples_are_left_alone(process: subprocess.Popen[bytes]) -> None:
    assert look(StoppedProcesses(0), process, 3) == []
    stop(process)
    assert look(StoppedProcesses(0), process, 3, alive=False) == [], "the role has no process: the pid is old"
    assert look(StoppedProcesses(-1), process, 3) == [], "-1 must disable the kill"
    assert process.poll() is None


def test_a_debugged_process_is_left_alone(process: subprocess.Popen[bytes]) -> None:
    """gdb holds a process in a tracing stop, `t`, for the whole session."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if libc.ptrace(_PTRACE_SEIZE, process.pid, None, None):
        pytest.skip(f"ptrace: {os.strerror(ctypes.get_errno())}")
    assert libc.ptrace(_PTRACE_INTERRUPT, process.pid, None, None) == 0
    wait_until(lambda: process_state(process.pid) == "t")
    assert look(StoppedProcesses(0), process, 3) == []
    assert process_state(process.pid) == "t"


def test_the_dead_have_no_state(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    assert process_state(process.pid) == ""
