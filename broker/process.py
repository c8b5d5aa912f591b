"""What every process around the workers does first: configuration, log, role byte, shared memory, its row.

Layout    : `odradek-roles.lock` in the first log directory, one byte for each role (ipc.roles).
Owner     : the kernel; a process that has its byte is the one and only of its role until it dies.
Writers   : none, the file stays empty.
Crash rule: a dead process's byte is free at once; its successor waits for it before it does anything else.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from odradek.broker import config as configuration
from odradek.broker import logs, systemd
from odradek.broker.config import BrokerConfig
from odradek.broker.errors import BootError, OdradekError
from odradek.broker.patience import Patience, recovering
from odradek.broker.systemd import Watchdog
from odradek.ipc import processes, rundir, shm
from odradek.ipc.locks import RoleLocks
from odradek.ipc.region import RegionError
from odradek.ipc.roles import role_name
from odradek.ipc.shm import Shared

log = logging.getLogger(__name__)

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)  # to the supervisor
ROLE_LOCK = "odradek-roles.lock"
BYTE_PATIENCE_S = 10.0


@dataclass
class Process:
    """This process's place in the broker."""

    role: int
    run_dir: Path
    config: BrokerConfig
    locks: RoleLocks
    shared: Shared
    patience: Patience = field(default_factory=Patience)
    watchdog: Watchdog = field(default_factory=Watchdog)

    @property
    def name(self) -> str:
        """`janitor`, `worker-3`: as in logs and in `odradek status`."""
        return role_name(self.role)

    def running(self) -> None:
        """Say in the process table that this process does its work now."""
        self.shared.processes.set(self.role, "state", processes.RUNNING)
        self.patience.end()
        systemd.notify("READY=1\nSTATUS=running")

    def beat(self) -> None:
        """From every turn of the process's loop: it is alive. Costs nothing where nobody watches."""
        self.watchdog.beat()

    def left(self) -> None:
        """Say that others may stop now. A service manager would take this process for stopping, and give it so long."""
        self.shared.control.words[shm.LEFT] = 1
        self.shared.processes.set(self.role, "state", processes.DRAINING)

    def draining(self) -> None:
        """Say that it finishes what it has and takes nothing new."""
        self.shared.processes.set(self.role, "state", processes.DRAINING)
        systemd.notify("STOPPING=1\nSTATUS=finishing what it has")


def role_locks(config: BrokerConfig) -> RoleLocks:
    """The role locks of the broker on this configuration's data directory."""
    return RoleLocks(Path(config.data_dir) / ROLE_LOCK)


def enter(role: int, run_dir: Path) -> Process:
    """Become the process of `role`. Raises BootError when there is no broker, OdradekError when that role is taken."""
    config = configuration.saved(run_dir)
    logs.setup(role_name(role), config, run_dir)
    locks = role_locks(config)
    if not wait_for(lambda: locks.hold(role), BYTE_PATIENCE_S):
        # Not for good: one that a service manager could not kill, as on a disk that hangs, ends when the disk goes on.
        raise OdradekError(f"a {role_name(role)} is running already on {config.data_dir}")
    try:
        shared = Shared.attach(rundir.shm_prefix(config.data_dir))
    except RegionError as error:
        raise BootError(str(error)) from None
    shared.processes.enter(role)
    me = Process(role, run_dir, config, locks, shared)
    if me.watchdog.watched:
        faulthandler.enable()  # the manager ends what hangs by SIGABRT: say where
    me.patience.begin(lambda: recovering(shared.slots))
    return me


def wait_for(condition: Callable[[], bool], seconds: float, step: float = 0.02) -> bool:
    """Poll `condition` until it holds or the time is over; its last answer."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(step)
    return True


def hold_stop_signals() -> None:
    """Let them wait until `Signals` takes them: from now on something would be left behind."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)


class Signals:
    """Signals as a queue: handlers only enqueue, the loop asks `take()`; `fileno()` wakes its poll."""

    def __init__(self, *numbers: signal.Signals) -> None:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._waiting: list[int] = []
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in numbers:
            signal.signal(number, self._enqueue)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)

    def _enqueue(self, number: int, _frame: object) -> None:
        self._waiting.append(number)

    def fileno(self) -> int:
        """Readable after a signal."""
        return self._read

    def take(self) -> list[int]:
        """The signals since the last call, in order."""
        try:
            os.read(self._read, 4096)
        except BlockingIOError:
            pass
        taken, self._waiting = self._waiting, []
        return taken
