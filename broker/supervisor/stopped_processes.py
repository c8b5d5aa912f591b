"""Finds processes of the broker that a signal has stopped, and kills them so that they are restarted.

A stopped process (SIGSTOP, or SIGTSTP from a terminal) may hold a partition's lock, a group's state or a thousand
clients' connections, and may never go on. So a process that is found stopped at every check for
`odradek.stopped.kill.ms` is killed: the kernel frees its locks and closes its connections, and its successor takes
over. Checks are counted, not time: the supervisor may have been stopped itself, together with the rest.
A process under a debugger (tracing stop) is left alone: a user is inspecting it.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import time
from collections.abc import Callable

from odradek.broker.supervisor import spawn
from odradek.ipc.roles import role_name

log = logging.getLogger(__name__)

LOOK_S = 0.2
STOPPED, TRACED = "T", "t"
_STAT_BYTES = 4096


def process_state(pid: int) -> str:
    """The kernel's letter for the state of a process (`R`, `S`, `D`, `T`, …); "" when there is none."""
    try:
        file = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(file, _STAT_BYTES).rpartition(b") ")[2][:1].decode()
    except OSError:
        return ""
    finally:
        os.close(file)


class StoppedProcesses:
    """The supervisor's check of its broker's processes; a negative `kill_ms` disables it."""

    def __init__(self, kill_ms: int) -> None:
        self._most_checks = math.ceil(kill_ms / (LOOK_S * 1000)) + 1 if kill_ms >= 0 else 0
        self._checks: dict[tuple[int, int], int] = {}  # (role, pid) → checks in a row that found it stopped
        self._next_check = 0.0

    def sweep(self, pids: Callable[[], dict[int, int]], alive: Callable[[int], bool]) -> list[int]:
        """Check when due; returns the killed pids. `pids` gives role → pid, `alive` whether a role's byte is held."""
        now = time.monotonic()
        if not self._most_checks or now < self._next_check:
            return []
        self._next_check = now + LOOK_S
        stopped = [item for item in pids().items() if process_state(item[1]) == STOPPED]
        self._checks = {item: self._checks.get(item, 0) + 1 for item in stopped}
        due = [item for item, looks in self._checks.items() if looks >= self._most_checks]
        return [pid for role, pid in due if self._kill(role, pid, alive)]

    def _kill(self, role: int, pid: int, alive: Callable[[int], bool]) -> bool:
        killed = spawn.signal_exactly(pid, signal.SIGKILL, lambda: alive(role) and process_state(pid) == STOPPED)
        if killed:
            log.error("killed %s (pid %d): stopped by a signal (odradek.stopped.kill.ms)", role_name(role), pid)
        return killed
