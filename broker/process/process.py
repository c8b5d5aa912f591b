"""The first steps of every process: configuration, log, role byte, shared memory, row in the process table.

Layout    : `roles.lock` in the run directory, one byte for each role (ipc.roles). The file also identifies the broker:
            each process locks all log directories under its number (storage.dirs.logdirs), so that no broker of another
            run directory, with another `partition.lock`, can write their logs while a process of this broker lives. A
            starting process skips log directories that have failed.
Owner     : the kernel; the process that holds a role's byte is the only one of that role until it dies.
Writers   : the holder of the supervisor's byte creates it, and writes the run note (ipc.run_note). At the end of a stop
            it locks all other bytes, then removes the file, so that no process starts meanwhile; a waiting one finds it
            removed. What removes the file of a dead broker does the same (broker.supervisor.leftovers).
Crash rule: a dead process's byte is free at once; its successor waits for it before it does anything else. A start in
            the run directory of a broker that died uses the existing file.

Concurrent starts. If two brokers start in one run directory, by `odradek start` or by systemd's units, the second finds
the supervisor's byte locked; or it joins the live processes, if the supervisor died and systemd is restarting it. If
they start in different run directories, the second finds the log directories locked while any process of the first
lives, even a killed one that waits for a disk. Two starts at the same moment may both be refused. A broker of another
machine on a shared disk is not detected.

Earlier versions had `odradek-roles.lock` in the first log directory, and only the supervisor locked the directories.
A process that starts in a broker of such a version does the same (`BrokerConfig.former_roles`). The start of a broker
waits until no process holds a byte of that file. Processes of such a version cannot run in a broker of this version:
after a downgrade, restart all of them.
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
from odradek.broker.process import sd_notify, secrets_in_memory
from odradek.broker.process.dir_locks import LogDirLocks
from odradek.broker.process.sd_notify import Watchdog
from odradek.broker.process.start_timeout import TimeoutExtension, recovering
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
BYTE_TIMEOUT_S = 10.0


@dataclass
class Process:
    """This process's role, configuration, locks and shared memory."""

    role: int
    run_dir: Path
    config: BrokerConfig
    locks: RoleLocks
    shared: Shared
    timeout_extension: TimeoutExtension = field(default_factory=TimeoutExtension)
    watchdog: Watchdog = field(default_factory=Watchdog)

    @property
    def name(self) -> str:
        """`janitor`, `worker-3`: as in logs and in `odradek status`."""
        return role_name(self.role)

    def running(self) -> None:
        """Set RUNNING in the process table, and notify the service manager."""
        self.shared.processes.set(self.role, "state", processes.RUNNING)
        self.timeout_extension.end()
        sd_notify.notify("READY=1\nSTATUS=running")

    def beat(self) -> None:
        """Show that the process is alive; call it in every turn of its loop. Free without a watchdog."""
        self.watchdog.beat()

    def mark_left_cluster(self) -> None:
        """Let other processes stop now. Sends no STOPPING=1, at which a service manager starts the stop timeout."""
        self.shared.control.words[shm.LEFT] = 1
        self.shared.processes.set(self.role, "state", processes.DRAINING)

    def draining(self) -> None:
        """Report that the process finishes its work and takes no more."""
        self.shared.processes.set(self.role, "state", processes.DRAINING)
        sd_notify.notify("STOPPING=1\nSTATUS=finishing what it has")


def role_locks(config: BrokerConfig, create: bool = True) -> RoleLocks:
    """The role locks of the broker with this configuration. OSError as opening the file."""
    former = Path(config.data_dir) / FORMER_LOCK
    return RoleLocks(former if config.former_roles else config.run_dir / ROLE_LOCK, create)


def broker_number(config: BrokerConfig, locks: RoleLocks) -> int | None:
    """The number under which processes lock the log directories; None: only the supervisor does, exclusively."""
    return None if config.former_roles else locks.number()


def _hold(role: int, config: BrokerConfig) -> RoleLocks:
    """Lock the role's byte. Raises OdradekError when another process keeps it, or the file cannot be opened."""
    found: list[RoleLocks] = []

    def taken() -> bool:
        if not found or not found[0].current():  # a broker has stopped meanwhile and removed it
            found[:] = [role_locks(config)]
        return found[0].hold(role)

    try:
        if not wait_for(taken, BYTE_TIMEOUT_S):
            # Not permanent: a process that could not be killed, as on a hanging disk, ends when the disk recovers.
            raise OdradekError(f"a {role_name(role)} is running already on {config.data_dir}")
    except OSError as error:
        raise OdradekError(f"{config.run_dir}: {error.strerror}") from None
    return found[0]


def _keep_log_dirs(config: BrokerConfig, locks: RoleLocks, failed: Collection[int]) -> None:
    """Lock the log directories until this process ends. Raises OdradekError where another broker has one."""
    kept = LogDirLocks(config.log_dirs, broker_number(config, locks), failed)
    kept.turn()
    for error in kept.free.values():
        if error is not None and disks.is_short(error):
            raise OdradekError(str(error))


def enter(role: int, run_dir: Path) -> Process:
    """Become the process of `role`. Raises BootError when there is no broker, OdradekError when that role is taken."""
    config = configuration.saved(run_dir)
    logs.setup(role_name(role), config, run_dir)
    secrets_in_memory.protect(config)
    if config.get("odradek.faults.file"):  # not in what an earlier version has saved
        from odradek.broker.process import injected_faults

        injected_faults.install(config)
    locks = _hold(role, config)
    try:
        shared = Shared.attach(rundir.shm_prefix(config.data_dir))
    except RegionError as error:
        raise BootError(str(error)) from None
    if role != roles.SUPERVISOR and not config.former_roles:
        _keep_log_dirs(config, locks, shared.failed_dirs())
    shared.processes.enter(role)
    process = Process(role, run_dir, config, locks, shared)
    if process.watchdog.watched:
        faulthandler.enable()  # the manager kills a hung process with SIGABRT: print its stack
    process.timeout_extension.begin(lambda: recovering(shared.slots))
    return process


def wait_for(condition: Callable[[], bool], seconds: float, step: float = 0.02) -> bool:
    """Poll `condition` until it holds or the time is over; returns its last value."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(step)
    return True


def hold_stop_signals() -> None:
    """Block the stop signals until `Signals` takes them: a death from now on would leave something behind."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)


class Signals:
    """Signals as a queue: handlers only enqueue, the loop calls `drain()`; `fileno()` wakes its poll."""

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

    def drain(self) -> list[int]:
        """The signals since the last call, in order."""
        try:
            os.read(self._read, 4096)
        except BlockingIOError:
            pass
        taken, self._waiting = self._waiting, []
        return taken
