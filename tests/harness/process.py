"""Subprocesses that cannot outlive the test run, and the state of processes."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)
_given: deque[int] = deque(maxlen=1000)  # ports


def die_with_parent() -> None:
    """A `preexec_fn`: SIGKILL this child when the thread that started it ends, for any reason."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell starts background jobs with SIGINT ignored
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def free_port() -> int:
    """A TCP port of 127.0.0.1 without a listener, which no other test of this run gets soon.

    The port is bound some seconds later, and again after each restart. So recent ports are not returned again, and each
    process of pytest-xdist has its own ports.
    """
    mine, processes = os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:], os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        # In pairs: Linux prefers one port of each pair for bind, the other one for connect.
        if port // 2 % int(processes) == int(mine) and port not in _given:
            _given.append(port)
            return port


@contextmanager
def refusing_socket() -> Iterator[socket.socket]:
    """A socket of 127.0.0.1 that does not listen: connections are refused, and no other process can take its port."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        yield silent


def readable(thing: Any, seconds: float) -> bool:
    """Whether a descriptor or socket becomes readable within `seconds`."""
    poll = select.poll()
    poll.register(thing, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def family(pid: int) -> list[psutil.Process]:
    """The process and all its descendants that are alive; empty after its end."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def living(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """The running ones of `processes`, without zombies and processes that are being reaped."""
    return [process for process in processes if _alive(process)]


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


def kill_all(processes: Iterable[psutil.Process]) -> None:
    """SIGKILL each that still exists: some end with others."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def wait_dead(processes: Iterable[psutil.Process], seconds: float = 60) -> list[psutil.Process]:
    """Wait until none of `processes` runs; returns those that still run after `seconds`."""
    watched = list(processes)
    wait_until(lambda: not living(watched), seconds, fail=False)
    return living(watched)


def kernel_state(pid: int) -> str:
    """The kernel's view of a process: its state, and where it waits."""
    found = []
    for name in ("stat", "wchan", "stack"):
        try:
            found.append(Path(f"/proc/{pid}/{name}").read_text().strip())
        except OSError as error:
            found.append(str(error))
    return "; ".join(found)


def wait_until(check: Callable[[], Any], seconds: float = 20, what: str = "", *, fail: bool = True) -> Any:
    """Call `check` until it returns something true, and return that; AssertionError after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        found = check()
        if found or time.monotonic() > deadline:
            break
        time.sleep(0.02)
    assert found or not fail, f"not within {seconds} s: {what or check}"
    return found


def await_turns(pid: int, count: int = 5) -> None:
    """Wait for `count` more turns of a process whose loop sleeps once in each turn."""
    sleeps = lambda: psutil.Process(pid).num_ctx_switches().voluntary  # noqa: E731
    goal = sleeps() + count
    wait_until(lambda: sleeps() >= goal, 60, f"{count} turns of process {pid}")


def turns(least: int, enough: Callable[[], Any], most: int = 2000) -> Iterator[int]:
    """Numbers from 0 on: at least `least` of them, and more until `enough` is true, which a busy machine may need."""
    for turn in range(most):
        if turn >= least and enough():
            return
        yield turn


def command_words(process: psutil.Process) -> list[str]:
    """The command line of `process`, empty after its end."""
    try:
        return process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []


def shm_names(prefix: str) -> list[str]:
    """The shared-memory regions whose POSIX name begins with `prefix` (`/…`)."""
    return [name for name in os.listdir("/dev/shm") if f"/{name}".startswith(prefix)]
