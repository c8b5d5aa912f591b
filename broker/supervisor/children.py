"""The supervisor's children: which ones are wanted, which ones live, when to restart dead ones."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from odradek.broker.errors import FATAL_BOOT
from odradek.broker.supervisor.spawn import signal_exactly
from odradek.ipc import processes
from odradek.ipc.locks import RoleLocks
from odradek.ipc.processes import ProcessTable
from odradek.ipc.roles import ACCEPTOR, CONTROLLER, FIRST_WORKER, role_name

log = logging.getLogger(__name__)

FIRST_DELAY_S = 0.1
LONGEST_DELAY_S = 1.0  # clients wait that long
HEALTHY_S = 2.0


@dataclass
class Backoff:
    """When to restart a dead process.

    At once after a long life, so that clients need not wait; with a growing delay if it keeps dying before it serves,
    as it will again. A process that has served and dies young, as from a request that is sent again and again, waits
    a little each time, which bounds the cost of its starts.
    """

    delay: float = 0.0
    deaths: int = 0

    def died(self, lived: float, served: bool) -> float:
        """Seconds to wait before the next start, of a process that lived for `lived` seconds and may have served."""
        self.deaths += 1
        if lived >= HEALTHY_S:
            self.delay = 0.0
        elif served:
            self.delay = min(self.delay, FIRST_DELAY_S)
        waiting = self.delay
        self.delay = min(LONGEST_DELAY_S, max(FIRST_DELAY_S, self.delay * 2))
        return waiting


@dataclass
class Child:
    """A running child."""

    pid: int
    started: float


@dataclass(frozen=True)
class Death:
    """How a child ended; `code` is negative for a signal, as in subprocess."""

    role: int
    pid: int
    code: int

    @property
    def reason(self) -> str:
        """The code in words."""
        if self.code >= 0:
            return f"exit code {self.code}"
        return f"signal {signal.Signals(-self.code).name}"


class Children:
    """Starts and reaps children. `desired`: the roles that should live; others are not restarted."""

    def __init__(self, locks: RoleLocks, table: ProcessTable, spawn: Callable[[int], int]) -> None:
        self.desired: set[int] = set()
        self._locks = locks
        self._table = table
        self._spawn = spawn
        self._living: dict[int, Child] = {}
        self._backoffs: dict[int, Backoff] = {}
        self._not_before: dict[int, float] = {}

    def living(self, roles: Iterable[int] | None = None) -> list[int]:
        """Roles with a live child, all or those of `roles`."""
        return [role for role in sorted(self._living) if roles is None or role in set(roles)]

    def pid(self, role: int) -> int:
        """The child's pid, 0 when there is none."""
        child = self._living.get(role)
        return child.pid if child else 0

    def missing(self) -> bool:
        """Whether a wanted role has no live child."""
        return not self.desired <= self._living.keys()

    def deaths(self, role: int) -> int:
        """How often the process of `role` has died."""
        return self._backoffs[role].deaths if role in self._backoffs else 0

    def start_missing(self) -> list[int]:
        """Start every wanted role that has no process and whose back-off is over; returns those started.

        Skips a role while its byte is held by a process that is not a live child (another `odradek run worker`, or
        a child that is just dying). Retries a role later that the machine has no room for: the live ones go on."""
        now = time.monotonic()
        started = []
        for role in sorted(self.desired - self._living.keys(), key=_urgency):
            if now >= self._not_before.get(role, 0.0) and not self._locks.alive(role):
                try:
                    self._living[role] = Child(self._spawn(role), now)
                except OSError as error:
                    log.error("cannot start %s: %s", role_name(role), error)
                    self._not_before[role] = now + LONGEST_DELAY_S
                else:
                    started.append(role)
        return started

    def reap(self) -> list[Death]:
        """Collect dead children; sets the back-off of each, and clears its row of the process table."""
        deaths = []
        for role, child in list(self._living.items()):
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid:
                deaths.append(Death(role, pid, os.waitstatus_to_exitcode(status)))
                self._record_death(role, child)
        return deaths

    def _record_death(self, role: int, child: Child) -> None:
        del self._living[role]
        now = time.monotonic()
        backoff = self._backoffs.setdefault(role, Backoff())
        served = self._table.get(role, "state") in (processes.RUNNING, processes.DRAINING)
        self._not_before[role] = now + backoff.died(now - child.started, served)
        self._table.set(role, "state", processes.DEAD)
        self._table.set(role, "pid", 0)

    def signal(self, roles: Iterable[int], number: int) -> None:
        """Send a signal to the living children of `roles`."""
        for role in self.living(roles):
            os.kill(self._living[role].pid, number)  # not reaped yet, so the pid is still the child's

    def foreign(self, roles: Iterable[int]) -> list[int]:
        """Those of `roles` that run but are not our children: started by hand, or by systemd."""
        return [role for role in roles if role not in self._living and self._locks.alive(role)]

    def signal_foreign(self, roles: Iterable[int], number: int) -> None:
        """Send a signal to processes that are not our children; the role's byte confirms the pid."""
        for role in self.foreign(roles):
            pid = self._table.get(role, "pid")
            if pid not in (0, 1, os.getpid()):  # the supervisor may hold the acceptor's byte itself
                signal_exactly(pid, number, partial(self._locks.alive, role))

    def kill(self, roles: Iterable[int]) -> list[str]:
        """SIGKILL the live children of `roles`; returns their names."""
        killed = self.living(roles)
        self.signal(killed, signal.SIGKILL)
        return [role_name(role) for role in killed]


def _urgency(role: int) -> tuple[int, int]:
    """The start order: first the processes that others wait for, last those that none waits for yet."""
    first = (CONTROLLER, ACCEPTOR)
    return (first.index(role) if role in first else len(first) + (role < FIRST_WORKER), role)


def is_fatal(death: Death) -> bool:
    """Whether the child reported that a restart cannot help."""
    return death.code == FATAL_BOOT
