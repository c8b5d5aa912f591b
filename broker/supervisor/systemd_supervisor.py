"""The supervisor when the service manager is the parent of all processes: role 0 without children.

systemd starts, restarts and stops the processes and keeps the sockets (`systemd/units/`). The rest is done here: this
process kills processes that are stopped, or stuck with a partition's lock; it keeps the process table, the control bus
and the locks of the log directories, and notices when all of these are offline. No process waits for it.
"""

from __future__ import annotations

import logging
import select
import signal
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import NoReturn

from odradek.broker import logs
from odradek.broker.config import BrokerConfig
from odradek.broker.errors import OdradekError
from odradek.broker.listeners import ListenerError
from odradek.broker.process import control_bus, versions
from odradek.broker.process.dir_locks import LogDirLocks
from odradek.broker.process.process import Process, Signals, broker_number, enter
from odradek.broker.supervisor import run_files, spawn
from odradek.broker.supervisor.stopped_processes import StoppedProcesses
from odradek.broker.supervisor.stuck_lock_holders import StuckHolders
from odradek.ipc import processes, roles, shm
from odradek.ipc.locks import PartitionLocks
from odradek.ipc.roles import role_name

log = logging.getLogger(__name__)

TURN_S = 0.1
_OTHERS = range(1, roles.ROLES)


class SystemdSupervisor:
    """One thread, one loop: the control bus, dead and stuck processes."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._began = time.monotonic()
        number = broker_number(process.config, process.locks)
        self._log_dir_locks = LogDirLocks(process.config.log_dirs, number, process.shared.failed_dirs())
        self._log_dir_locks.turn()
        self._offline = False
        self._stuck = StuckHolders(
            process.shared.slots,
            PartitionLocks(process.run_dir / "partition.lock"),
            process.config["odradek.lock.stall.ms"],
        )
        self._stopped = StoppedProcesses(process.config["odradek.stopped.kill.ms"])
        self._signals = Signals(signal.SIGTERM, signal.SIGINT)
        self._control = control_bus.ControlServer(process.run_dir, "supervisor", self._commands())
        self._events = control_bus.EventPublisher(process.run_dir)
        self._poll = select.poll()
        self._poll.register(self._signals, select.POLLIN)
        self._poll.register(self._control, select.POLLIN)

    def run(self) -> None:
        """Run until SIGTERM."""
        self._process.running()
        while not self._signals.drain():
            self._poll.poll(TURN_S * 1000)
            self._process.beat()
            self._control.serve()
            self._log_dir_locks.turn()
            self._check_disks()
            self._record_deaths()
            self._stopped.sweep(self._process.shared.processes.pids, self._process.locks.alive)
            self._stuck.turn(self._is_ours)
        self._process.draining()
        self._control.close()
        self._events.close()

    def _check_disks(self) -> None:
        """Without a working log directory there is nothing to serve: make systemd stop all, as Kafka stops."""
        if self._offline or len(self._process.shared.failed_dirs()) < len(self._process.config.log_dirs):
            return
        try:
            (self._process.run_dir / run_files.OFFLINE).touch()
        except OSError as error:
            log.error("cannot ask systemd to stop the broker, retrying: %s", error)
        else:
            self._offline = True
            log.critical("all log directories are offline: stopping")

    def _living(self) -> list[int]:
        return [role for role in _OTHERS if self._process.locks.alive(role)]

    def _record_deaths(self) -> None:
        """Mark the row of a dead process, until the next process of that role takes it.

        No process counts as missing where a worker has drained: `systemctl stop odradek-worker@N`."""
        table = self._process.shared.processes
        for role in _OTHERS:
            pid = table.get(role, "pid")
            if pid and not self._process.locks.alive(role) and table.get(role, "pid") == pid:
                has_drained = table.get(role, "state") == processes.DRAINING
                table.add(role, "retired", int(has_drained))
                table.set(role, "is_retired", int(has_drained and role >= roles.FIRST_WORKER))
                table.set(role, "state", processes.DEAD)
                table.set(role, "pid", 0)
                log.info("%s (pid %d) ended", role_name(role), pid)
                self._events.publish("died", process=role_name(role), pid=pid, reason="", expected=False)

    def _is_ours(self, pid: int) -> bool:
        return any(self._process.shared.processes.get(role, "pid") == pid for role in _OTHERS)

    # Commands of the control bus

    def _commands(self) -> dict[str, control_bus.Handler]:
        return {
            "status": self._status, "stop": _refuse_stop, "scale": _refuse_scale, "log-level": self._log_level,
            "log-levels": self._log_levels,
            "prepare-listeners": self._check_listeners, "listen": self._advertise, "upgrade": _upgrade_by_unit,
        }  # fmt: skip

    def _check_listeners(self, dynamic: dict[str, str], keep: bool) -> dict[str, object]:
        """Refuse other listeners: the sockets are systemd's."""
        listeners = self._with(dynamic).listeners
        return {"ports": {endpoint.name: endpoint.port for endpoint in listeners}}

    def _advertise(self, dynamic: dict[str, str]) -> dict[str, object]:
        """Save what is advertised now, for processes that start."""
        config = self._with(dynamic)
        try:
            config.save(self._process.run_dir)
        except OSError as error:
            raise OdradekError(f"{self._process.run_dir}: {error.strerror}") from None
        self._process.config = config
        return {}

    def _with(self, dynamic: dict[str, str]) -> BrokerConfig:
        config = self._process.config
        try:
            changed = config.with_dynamic(dynamic)
        except ListenerError as error:
            raise OdradekError(str(error)) from None
        if changed.listeners != config.listeners:
            raise OdradekError(
                "listeners: odradek.socket of systemd has the sockets: change listeners in server.properties, run "
                "`odradek systemd install` and restart the broker"
            )
        return changed

    def _status(self) -> dict[str, object]:
        return {
            "ready": True,
            "stopping": False,
            "uptime_s": time.monotonic() - self._began,
            "workers": len([role for role in self._living() if role >= roles.FIRST_WORKER]),
            "listeners": [str(endpoint) for endpoint in self._process.config.listeners],
        }

    def _log_level(self, module: str, level: str) -> None:
        self._log_levels({module: level})

    def _log_levels(self, levels: Mapping[str, str | None]) -> None:
        try:
            logs.change_levels(self._process.run_dir, levels)
        except logs.LevelError as error:
            raise OdradekError(str(error)) from None
        self._process.shared.control.words[shm.LOG_VERSION] += 1
        signal.raise_signal(signal.SIGUSR2)
        for role in self._living():
            pid = self._process.shared.processes.get(role, "pid")
            if pid > 1:
                spawn.signal_exactly(pid, signal.SIGUSR2, partial(self._process.locks.alive, role))


def _refuse_stop() -> NoReturn:
    raise OdradekError("systemd runs this broker: systemctl stop odradek.target")


def _refuse_scale(workers: int) -> NoReturn:
    raise OdradekError(
        f"systemd runs this broker: systemctl start odradek-worker@{workers - 1} adds that worker, stop drains it"
    )


def _upgrade_by_unit() -> dict[str, object]:
    """The command replaces the processes (broker.rolling.units): this one may not start units."""
    return {"by_unit": True, "versions": versions.here()}


def main(run_dir: Path) -> None:
    """Run the supervisor of the broker with this run directory, until SIGTERM."""
    SystemdSupervisor(enter(roles.SUPERVISOR, run_dir)).run()
