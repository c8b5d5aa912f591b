"""What every process around the workers does first: configuration, log, role byte, shared memory, its row.

Layout    : `roles.lock` in the run directory, one byte for each role (ipc.roles). The file is also who a broker is: in
            its name each process locks all log directories (storage.dirs.logdirs), so that no broker of another run
            directory, with a `partition.lock` of its own, gets at their logs while one process of this one lives. A
            process that starts passes over log directories that have failed.
Owner     : the kernel; a process that has its byte is the one and only of its role until it dies.
Writers   : none, the file stays empty. The holder of the supervisor's byte makes it. At the end of a stop it takes all
            other bytes and then removes the file, so that no process begins meanwhile; one that waited finds it gone.
Crash rule: a dead process's byte is free at once; its successor waits for it before it does anything else. A start in
            the run directory of a broker that died takes the file as it is.

Who meets whom. Of two starts in one run directory, be it of `odradek start` or of systemd's units, the second finds the
supervisor's byte taken, or joins those that live, where that process has died and systemd is just starting it again.
Of two in different run directories the second finds the log directories locked, whichever processes of the first live;
one that was killed and waits for a disk is such a process. Of two at the same moment both may be refused. A broker of
another machine on a shared disk is not seen.

Versions before had `odradek-roles.lock` in the first log directory, and locked the directories by the supervisor alone.
A process that starts in a broker which one of them has started does as they did (`BrokerConfig.former_roles`). A start
waits until no process has a byte of that file. Processes of such a version do not fit into a broker of this one: after
a downgrade all must be started again.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from odradek.broker import config as configuration
from odradek.broker import logs
from odradek.broker.config import BrokerConfig
from odradek.broker.errors import BootError, OdradekError
from odradek.broker.process import sd_notify
from odradek.broker.process.dir_locks import KeptDirs
from odradek.broker.process.sd_notify import Watchdog
from odradek.broker.process.start_timeout import Patience, recovering
from odradek.ipc import processes, roles, rundir, shm
from odradek.ipc.locks import RoleLocks
from odradek.ipc.region import RegionError
from odradek.ipc.roles import role_name
from odradek.ipc.shm import Shared
from odradek.storage.files import disks

log = logging.getLogger(__name__)

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)  # to the supervisor
ROLE_LOCK = "roles.lock"
FORMER_LOCK = "odradek-roles.lock"
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
        sd_notify.notify("READY=1\nSTATUS=running")

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
        sd_notify.notify("STOPPING=1\nSTATUS=finishing what it has")


def role_locks(config: BrokerConfig) -> RoleLocks:
    """The role locks of the broker with this configuration. OSError as opening the file."""
    former = Path(config.data_dir) / FORMER_LOCK
    return RoleLocks(former if config.former_roles else config.run_dir / ROLE_LOCK)


def broker_number(config: BrokerConfig, locks: RoleLocks) -> int | None:
    """In whose name a process locks the log directories; None where only the supervisor does, all of each."""
    return None if config.former_roles else locks.number()


def _hold(role: int, config: BrokerConfig) -> RoleLocks:
    """The role's byte. Raises OdradekError when another process has it for long, or there is no place for it."""
    found: list[RoleLocks] = []

    def taken() -> bool:
        if not found or not found[0].current():  # a broker has ended meanwhile, and removed it
            found[:] = [role_locks(config)]
        return found[0].hold(role)

    try:
        if not wait_for(taken, BYTE_PATIENCE_S):
            # Not for good: one that could not be killed, as on a disk that hangs, ends when the disk goes on.
            raise OdradekError(f"a {role_name(role)} is running already on {config.data_dir}")
    except OSError as error:
        raise OdradekError(f"{config.run_dir}: {error.strerror}") from None
    return found[0]


def _keep_log_dirs(config: BrokerConfig, locks: RoleLocks, failed: Collection[int]) -> None:
    """Lock the log directories until this process ends. Raises OdradekError where another broker has one."""
    kept = KeptDirs(config.log_dirs, broker_number(config, locks), failed)
    kept.turn()
    for error in kept.free.values():
        if error is not None and disks.is_short(error):
            raise OdradekError(str(error))


def enter(role: int, run_dir: Path) -> Process:
    """Become the process of `role`. Raises BootError when there is no broker, OdradekError when that role is taken."""
    config = configuration.saved(run_dir)
    logs.setup(role_name(role), config, run_dir)
    locks = _hold(role, config)
    try:
        shared = Shared.attach(rundir.shm_prefix(config.data_dir))
    except RegionError as error:
        raise BootError(str(error)) from None
    if role != roles.SUPERVISOR and not config.former_roles:
        _keep_log_dirs(config, locks, shared.failed_dirs())
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
