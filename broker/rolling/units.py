"""`odradek upgrade` where systemd is the parent of all processes: the same order (rolling_upgrade), by unit.

The command itself runs it, as root: it starts and ends units, and talks to the workers by their sockets in the run
directory. Each unit starts the code that is installed, so no fork server is needed, and there is no former code to go
back to. A new worker that fails leaves the old one; another process that fails is what systemd restarts again and again
until working code is installed. So the command first imports all of it.

A worker that has handed over ends, and `Restart=always` starts it again, with the installed code: that is the next
spare number. A number behind the last is stopped as soon as it has ended, for good.

Lock      : flock of the run directory, held by the command: one upgrade at a time.
Crash rule: if the command dies, all that runs serves on, at most with one worker more; the next upgrade takes it along,
            and `systemctl stop odradek-worker@N` ends it. A hand-over goes on without the command.
"""

from __future__ import annotations

import fcntl
import logging
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from odradek.broker.config import EXPORTED, BrokerConfig
from odradek.broker.errors import OdradekError
from odradek.broker.process import entry, process, versions
from odradek.broker.rolling.rolling_upgrade import RollingUpgrade, refusal
from odradek.ipc import processes, roles, rundir
from odradek.ipc.locks import RoleLocks
from odradek.ipc.processes import ProcessTable
from odradek.ipc.region import RegionError
from odradek.ipc.roles import role_name
from odradek.ipc.shm import Shared

log = logging.getLogger(__name__)

LOOK_S = 0.02
_TARGET = "odradek.target"
_GENTLY = ("--no-block", "--job-mode=fail")  # systemd must not cancel a stop for it
Systemctl = Callable[..., None]


def systemctl(*words: str) -> None:
    """Raises OdradekError."""
    done = subprocess.run(["systemctl", *words], capture_output=True, text=True)
    if done.returncode:
        raise OdradekError(f"systemctl {' '.join(words)}: {done.stderr.strip() or done.returncode}")


def unit(role: int) -> str:
    """The unit of a role."""
    if role >= roles.FIRST_WORKER:
        return f"odradek-worker@{role - roles.FIRST_WORKER}.service"
    return f"odradek-{role_name(role)}.service"


class CodeOfUnits:
    """What each unit starts, in the place of a fork server (rolling_upgrade.InstalledCode)."""

    def __init__(self, config: BrokerConfig) -> None:
        self.versions: dict[str, object] = dict(versions.here())  # the command has compared them
        self.exists = True
        self._roles = [roles.FIRST_WORKER, *range(1, roles.EXPORTER)]
        self._roles += [roles.EXPORTER] if any(config[setting] for setting in EXPORTED) else []

    def is_ready(self) -> bool:
        """Whether all of it can be imported."""
        for role in self._roles:
            try:
                entry.load(role)
            except Exception as error:
                log.error("cannot import the %s: %r", entry.kind(role), error)
                self.exists = False
        return self.exists

    def check(self) -> None:
        """There is no process."""

    def close(self) -> None:
        """There is no process."""


class Units:
    """The broker's processes, as units (rolling_upgrade.Workers). `deaths` reports those that have ended."""

    def __init__(self, locks: RoleLocks, table: ProcessTable, run: Systemctl = systemctl) -> None:
        self._locks = locks
        self._table = table
        self._systemctl = run
        self._wanted = {role for role in range(roles.FIRST_WORKER, roles.ROLES) if self._is_wanted(role)}
        self._goal = set(range(roles.FIRST_WORKER, roles.FIRST_WORKER + len(self._wanted)))  # their numbers at the end
        self._ended = {role: self._start_of(role) for role in range(1, roles.ROLES) if not locks.alive(role)}
        self._starts = self._living()

    def _is_wanted(self, role: int) -> bool:
        """Whether a worker lives, or is dead for a moment, until systemd starts it again."""
        return self._locks.alive(role) or bool(self._start_of(role) and not self._table.get(role, "is_retired"))

    def _start_of(self, role: int) -> int:
        return self._table.get(role, "starts")

    def deaths(self) -> list[int]:
        """Processes that lived at the last call and have ended since; their successors may run already."""
        living = self._living()
        gone = [role for role, start in self._starts.items() if living.get(role) != start]
        self._ended |= {role: self._starts[role] for role in gone}
        self._starts = {role: start for role, start in living.items() if self._ended.get(role) != start}
        return gone

    def _living(self) -> dict[int, int]:
        """The starts of those that live. A process holds its role before it enters its row: until then the row is that
        of the one before, whose end must not be reported twice."""
        starts = {role: self._start_of(role) for role in range(1, roles.ROLES) if self._locks.alive(role)}
        return {role: start for role, start in starts.items() if self._ended.get(role) != start}

    def stop_spare(self, role: int) -> None:
        """Stop the unit of a worker that has ended: systemd would start it again."""
        if role >= roles.FIRST_WORKER and role not in self._wanted | self._goal:
            self._systemctl("stop", "--no-block", unit(role))

    # -- rolling_upgrade.Workers

    def workers(self) -> set[int]:
        """The roles of the workers that should live."""
        return set(self._wanted)

    def helpers(self) -> set[int]:
        """The roles of the other processes that live."""
        return {role for role in self._starts if role < roles.FIRST_WORKER}

    def want(self, role: int) -> None:
        """Start the unit; systemd starts it again when it dies. OdradekError while systemd stops the broker."""
        self._wanted.add(role)
        self._begin("start", role)

    def _begin(self, verb: str, role: int) -> None:
        """Not for a broker that systemd stops or has stopped: the unit would run alone."""
        try:
            self._systemctl("is-active", "--quiet", _TARGET)
        except OdradekError:
            raise OdradekError(f"the upgrade has ended: {_TARGET} is not active") from None
        self._systemctl(verb, *_GENTLY, unit(role))

    def unwant(self, role: int, end: bool) -> None:
        """`end`: let it drain, and end."""
        self._wanted.discard(role)
        if end:
            self._systemctl("stop", "--no-block", unit(role))

    def kill(self, role: int) -> None:
        """It is stuck."""
        self._systemctl("kill", "--signal=KILL", unit(role))

    def runs(self, role: int) -> bool:
        """Whether it serves."""
        return role in self._living() and self._table.get(role, "state") == processes.RUNNING

    def refusal(self, role: int) -> str:
        """Why this process cannot be replaced now, in a line; else ""."""
        return refusal(self._table, role)

    def retiring(self) -> bool:
        """Whether a worker drains."""
        return any(
            self._locks.alive(role) and self._table.get(role, "state") == processes.DRAINING
            for role in range(roles.FIRST_WORKER, roles.ROLES)
        )

    def end(self, role: int) -> bool:
        """Restart the unit; whether there was a process. OdradekError while systemd stops the broker."""
        lives = role in self._starts
        self._begin("restart", role)
        return lives


@contextmanager
def _alone(run_dir: Path) -> Iterator[None]:
    """Raises OdradekError while another upgrade runs."""
    folder = os.open(run_dir, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OdradekError("an upgrade is under way already; odradek status shows its processes") from None
        yield
    finally:
        os.close(folder)


def upgrade(config: BrokerConfig, running: Mapping[str, object]) -> str:
    """Replace all processes of the broker; returns why that has ended early, else "". Raises OdradekError.

    `running`: the versions of the code that runs.
    """
    if os.geteuid() != 0:
        raise OdradekError("systemd runs this broker: run `odradek upgrade` as root, since it starts and ends units")
    differs = versions.difference(versions.here(), running)
    if differs:
        raise OdradekError(f"nothing is replaced: {differs}")
    try:
        shared = Shared.attach(rundir.shm_prefix(config.data_dir))
    except RegionError as error:
        raise OdradekError(str(error)) from None
    with _alone(config.run_dir):
        units = Units(process.role_locks(config, create=False), shared.processes)
        drain_s = config["odradek.drain.timeout.ms"] / 1000
        return _carry_out(
            RollingUpgrade(config.run_dir, units, lambda: CodeOfUnits(config), lambda _: None, drain_s), units
        )


def _carry_out(rolling: RollingUpgrade[CodeOfUnits], units: Units) -> str:
    rolling.begin()
    while rolling.active:
        rolling.turn()
        for role in units.deaths():
            units.stop_spare(role)
            rolling.died(role)
        time.sleep(LOOK_S)
    error = str(rolling.state()["error"])
    if not error:
        units.end(roles.SUPERVISOR)  # no process waits for it
    return error
