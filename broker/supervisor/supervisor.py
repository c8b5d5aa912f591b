"""The process of `odradek start`: spawns the others, respawns dead ones, stops them in order.

One thread, one loop. Signal handlers only enqueue; every turn of the loop (at a signal, at a command, every
200 ms at the latest) takes the queue, serves the control bus, reaps, starts missing processes and checks for stuck
lock holders. Boot and stop are the same turns with a condition to wait for.
"""

from __future__ import annotations

import logging
import math
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from odradek.broker import logs
from odradek.broker.acceptor.hosted_acceptor import HostedAcceptor
from odradek.broker.config import EXPORTED
from odradek.broker.errors import FAILED, FATAL_BOOT, OK, OdradekError
from odradek.broker.process import entry, sd_notify
from odradek.broker.process.process import STOP_SIGNALS, Process, Signals
from odradek.broker.process.supervisor_bus import SupervisorBus
from odradek.broker.rolling.rolling_upgrade import RollingUpgrade, refusal
from odradek.broker.supervisor import spawn, stop_limits
from odradek.broker.supervisor.banner import banner, ready_line
from odradek.broker.supervisor.boot import Boot
from odradek.broker.supervisor.children import Children, Death, is_fatal
from odradek.broker.supervisor.forkserver_client import ForkserverClient
from odradek.broker.supervisor.listening_sockets import ListeningSockets
from odradek.broker.supervisor.stopped_processes import StoppedProcesses
from odradek.broker.supervisor.stuck_lock_holders import StuckHolders
from odradek.ipc import processes, roles, shm
from odradek.ipc.doorbell import Ringer
from odradek.ipc.locks import PartitionLocks
from odradek.ipc.roles import role_name
from odradek.ipc.slots import RECOVERING

if TYPE_CHECKING:
    from odradek.broker.process.control_bus import Handler

log = logging.getLogger(__name__)

TURN_S = 0.2
LOAD_AGAIN_S = 1.0
RESTART_TURN_S = 0.05  # while a dead process waits for its next start
BOOT_TURN_S = 0.01  # children report in shared memory that they run, which does not wake this loop
FIRST_PROGRESS_S = 2.0
PROGRESS_S = 5.0
_STARTING_S = 2.0  # for a controller process that has not registered the broker yet to report that it has nothing to do
MOST_BOOT_DEATHS = 5  # a broker that never becomes ready is of no use; once ready it never gives up
HELPERS = (roles.CONTROLLER, roles.ACCEPTOR, roles.COORDINATOR, roles.JANITOR)


class Supervisor:
    """The broker's root process, once `boot.prepare` has taken the data directory."""

    def __init__(
        self,
        boot: Boot,
        last_steps: Callable[[], Callable[[Boot], None]],
        spawner: Callable[..., int] = spawn.spawn,
        check_forkserver: Callable[[], None] = lambda: None,
        parent: int = 0,
        forkserver: ForkserverClient | None = None,
    ) -> None:
        """`parent`: the pid of the program with whose end the broker stops; 0: of none.

        `forkserver`: the `spawner`, if it is one: then `odradek upgrade` can renew it.
        """
        self._boot = boot
        self._last_steps = last_steps
        self._spawner = spawner
        self._check_forkserver = check_forkserver  # called after any death, for other owners of children here
        self._parent = parent
        self._began = time.monotonic()
        self._next_progress = FIRST_PROGRESS_S
        self._ready = False
        self._stopping = False
        self._hurry = False
        self._exit_code = OK
        self._killed: list[str] = []
        self._retiring: dict[int, float] = {}  # role → when its time to drain is over
        self._signals = Signals(*STOP_SIGNALS, signal.SIGCHLD)
        self._children = Children(boot.locks, boot.shared.processes, self._spawn)
        self._stuck = StuckHolders(
            boot.shared.slots,
            PartitionLocks(boot.run_dir / "partition.lock"),
            boot.config["odradek.lock.stall.ms"],
        )
        self._stopped = StoppedProcesses(boot.config["odradek.stopped.kill.ms"])
        self._listening = ListeningSockets(boot)
        self._handed: dict[str, socket.socket] = {}  # the sockets of the acceptor that runs
        self._forkserver = forkserver
        drain_s = stop_limits.drain_s(boot.config)
        self._upgrade = RollingUpgrade(boot.run_dir, self, self._renew, self._adopt, drain_s)
        self._watchdog = sd_notify.Watchdog()
        self._poll = select.poll()
        self._poll.register(self._signals, select.POLLIN)
        self._bus = SupervisorBus(boot.run_dir, self._commands(), self._poll)
        self._finish: Callable[[Boot], None] | None = None
        self._next_load = -math.inf
        self._acceptor: HostedAcceptor | None = None  # none: the acceptor is a process

    def run(self) -> int:
        """Run until stopped; returns the exit code."""
        self._boot.shared.processes.enter(roles.SUPERVISOR)
        try:
            if self._start():
                self._announce()
                if not entry.on_demand():
                    self._load_rest()
                self._until(lambda: False)
        finally:
            self._stop()
        return self._exit_code

    # One turn

    def _turn(self) -> None:
        idle = not self._poll.poll(self._poll_timeout() * 1000)
        self._watchdog.beat()
        for number in self._signals.drain():
            self._on_signal(number)
        self._bus.serve()
        if self._acceptor is not None:
            self._acceptor.turn(self._boot.listening)
        for death in self._children.reap():
            self._on_death(death)
            self._upgrade.died(death.role)
        if not self._stopping:
            self._check_parent()
            self._check_disks()
            for role in self._children.start_missing():
                log.info("started %s (pid %d)", role_name(role), self._children.pid(role))
        self._stopped.sweep(self._boot.shared.processes.pids, self._boot.locks.alive)  # else they delay a stop
        if self._ready:
            self._stuck.turn(self._is_ours)
            self._end_retired()
            self._listening.expire(time.monotonic())
            self._upgrade.turn()
            self._replace_acceptor()
            if self._finish is None and (idle or time.monotonic() - self._began > FIRST_PROGRESS_S):
                self._load_rest()

    def _poll_timeout(self) -> float:
        seconds = TURN_S
        if not self._ready:
            seconds = BOOT_TURN_S
        elif self._upgrade.active or self._children.missing():
            seconds = RESTART_TURN_S
        return seconds if self._acceptor is None else self._acceptor.within(seconds)

    def _load_rest(self) -> None:
        """What the supervisor needs when it serves: not earlier, as clients wait for the start. Without it, as when no
        descriptor is left, the broker serves on, and a later turn tries again."""
        if time.monotonic() < self._next_load:
            return
        try:
            self._bus.listen()
            self._finish = self._last_steps()
        except Exception:
            log.exception("cannot listen for commands, or load the last steps: trying again in %g s", LOAD_AGAIN_S)
            self._next_load = time.monotonic() + LOAD_AGAIN_S

    def _until(self, condition: Callable[[], bool]) -> bool:
        """Run turns until the condition holds; False when the broker must stop first."""
        while not condition():
            if self._stopping:
                return False
            self._turn()
        return True

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGCHLD:
            self._check_forkserver()  # the broker's processes are reaped every turn
            self._upgrade.check()
            return
        self._hurry = self._hurry or self._stopping or number == signal.SIGQUIT
        if not self._stopping:
            log.info("%s: stopping", signal.Signals(number).name)
        self._stopping = True

    def _on_death(self, death: Death) -> None:
        name = role_name(death.role)
        unwanted = death.role not in self._children.desired
        expected = self._stopping or unwanted or self._outdated(death.role) or self._upgrade.ends(death.role)
        if expected:
            self._boot.shared.processes.add(death.role, "retired")
        self._boot.shared.processes.set(death.role, "is_retired", int(unwanted and not self._stopping))
        level = logging.INFO if expected and death.code == OK else logging.WARNING
        log.log(level, "%s (pid %d) ended: %s", name, death.pid, death.reason)
        self._bus.publish("died", process=name, pid=death.pid, reason=death.reason, expected=expected)
        if self._stopping:
            return
        if self._ready:  # it has run with this configuration: restart it until it does again
            return
        if is_fatal(death):
            log.error("%s cannot run with this configuration: stopping", name)
            self._exit_code, self._stopping = FATAL_BOOT, True
        elif self._children.deaths(death.role) >= MOST_BOOT_DEATHS:
            log.error("%s has died %d times before the broker was ready: giving up", name, MOST_BOOT_DEATHS)
            self._exit_code, self._stopping = FAILED, True

    def _check_parent(self) -> None:
        """A death signal of the kernel would come with the end of the thread that started this process, too."""
        if self._parent and os.getppid() != self._parent:
            log.info("the program that started this broker (pid %d) has ended: stopping", self._parent)
            self._stopping = True

    def _check_disks(self) -> None:
        """Without a working log directory there is nothing to serve: log it and stop, as Kafka does."""
        if len(self._boot.shared.failed_dirs()) >= len(self._boot.config.log_dirs):
            log.critical("all log directories are offline: stopping")
            self._exit_code, self._stopping = FAILED, True

    def _is_ours(self, pid: int) -> bool:
        table = self._boot.shared.processes
        return any(table.get(role, "pid") == pid for role in range(1, roles.ROLES))

    def _spawn(self, role: int) -> int:
        handed: list[tuple[str, int]] = []
        self._boot.shared.processes.set(role, "is_retired", 0)
        if role == roles.ACCEPTOR:
            self._handed = self._boot.listening
            handed = [(name, sock.fileno()) for name, sock in self._boot.listening.items()]
        spawner = self._upgrade.spawner_of(role) or self._spawner
        return spawner(role, self._boot.run_dir, handed)

    def _outdated(self, role: int) -> bool:
        """Whether it is an acceptor with other sockets than there are now."""
        return role == roles.ACCEPTOR and self._acceptor is None and self._handed != self._boot.listening

    def _replace_acceptor(self) -> None:
        """End an outdated acceptor, once it listens to signals; clients wait in the backlogs for the next one."""
        if self._upgrade.replaces(roles.ACCEPTOR):
            return  # its end now would count as a failure of the installed code
        if self._outdated(roles.ACCEPTOR) and self._is_running(roles.ACCEPTOR):
            self._children.signal([roles.ACCEPTOR], signal.SIGTERM)

    # Boot

    def _start(self) -> bool:
        """Start all at once: processes that need the metadata wait for it, then for recovery."""
        boot = self._boot
        self._children.desired |= helpers(boot.config) | self._workers(boot.config.workers)
        if entry.on_demand():
            itself = Process(roles.ACCEPTOR, boot.run_dir, boot.config, boot.locks, boot.shared)
            self._acceptor = HostedAcceptor(itself, boot.listening, self._poll)
            self._children.desired.discard(roles.ACCEPTOR)
        if not entry.on_demand():
            self._bus.open()
        elif boot.config.dynamic:  # the controller process asks at once for a listener that could not be bound
            self._load_rest()
        return self._until(self._all_run)

    def _workers(self, count: int) -> set[int]:
        return {roles.worker_role(number) for number in range(count)}

    def _is_running(self, role: int) -> bool:
        return self._boot.shared.processes.get(role, "state") == processes.RUNNING

    def _all_run(self) -> bool:
        self._progress()
        return all(self._is_running(role) for role in self._children.desired)

    def _progress(self) -> None:
        """Log a line every few seconds while partitions recover."""
        waited = time.monotonic() - self._began
        if waited < self._next_progress:
            return
        self._next_progress = waited + PROGRESS_S
        self._load_rest()
        left = len(self._boot.shared.slots.numbers(RECOVERING))
        done = sum(self._boot.shared.processes.get(role, "recovered") for role in range(roles.ROLES))
        waiting = ", ".join(role_name(role) for role in sorted(self._children.desired) if not self._is_running(role))
        log.info("starting: %d partitions recovered, %d remaining; waiting for %s", done, left, waiting)

    def _announce(self) -> None:
        self._ready = True
        self._boot.shared.processes.set(roles.SUPERVISOR, "state", processes.RUNNING)
        config = self._boot.config
        _print(banner(config, config.workers, time.monotonic() - self._began), ready_line(config))
        sd_notify.notify("READY=1")
        self._bus.publish("ready", listeners=[str(endpoint) for endpoint in config.listeners])

    # Stop

    def _stop(self) -> None:
        self._stopping, self._ready = True, False
        self._upgrade.close()
        self._boot.shared.processes.set(roles.SUPERVISOR, "state", processes.DRAINING)
        self._boot.shared.control.words[shm.DRAINING] = 1
        sd_notify.notify("STOPPING=1")
        self._leave_cluster()
        for stage in stop_limits.stages(self._boot.config):
            self._stop_stage(stage.roles, stage.limit_s)
            self._boot.stop_listening()  # new clients are refused from the first stage on
        self._close()

    def _leave_cluster(self) -> None:
        """Move leadership to other brokers before clients are disconnected (controller.member.controlled_shutdown)."""
        if not self._boot.config.clustered:
            return
        shared = self._boot.shared
        begun = shared.processes.get(roles.CONTROLLER, "state") == processes.RUNNING
        deadline = time.monotonic() + (stop_limits.departure_s(self._boot.config) if begun else _STARTING_S)
        Ringer(self._boot.run_dir).ring(roles.CONTROLLER)
        while not shared.left_cluster and self._children.living((roles.CONTROLLER,)):
            if self._hurry or time.monotonic() >= deadline:
                log.warning("the cluster's controller did not move the leadership of this broker's partitions")
                return
            self._turn()

    def _stop_stage(self, stage: Sequence[int], timeout: float) -> None:
        self._children.desired -= set(stage)
        if self._acceptor is not None and roles.ACCEPTOR in stage:
            self._acceptor.end()
        self._children.signal(stage, signal.SIGTERM)
        self._children.signal_foreign(stage, signal.SIGTERM)
        deadline, killed_at = time.monotonic() + timeout, math.inf
        while self._children.living(stage) or self._children.foreign(stage):
            now = time.monotonic()
            if self._hurry or now >= deadline:
                self._killed += self._children.kill(stage)
                self._children.signal_foreign(stage, signal.SIGKILL)
                killed_at = min(killed_at, now)
            if now >= killed_at + stop_limits.DEATH_S:
                return self._leave_behind(stage)
            self._turn()

    def _leave_behind(self, stage: Sequence[int]) -> None:
        """Abandon processes that SIGKILL does not end. One that holds its role's byte may write: no clean stop then."""
        for role in {*self._children.living(stage), *self._children.foreign(stage)}:
            if self._boot.locks.alive(role):
                log.error("%s does not exit after SIGKILL: abandoning it", role_name(role))
                self._exit_code = FAILED
            else:
                log.warning("cannot wait for %s: abandoning it", role_name(role))

    def _close(self) -> None:
        self._bus.close()
        if self._killed:
            log.warning("killed during shutdown: %s", ", ".join(sorted(set(self._killed))))
        if not self._exit_code:
            log.info("all processes have ended: syncing the logs")  # a slow disk may take long
            (self._finish or self._last_steps())(self._boot)
        self._boot.leave()
        log.info("stopped")

    # Commands of the control bus

    def _commands(self) -> dict[str, Handler]:
        return {
            "status": self._status, "stop": self._request_stop, "scale": self._scale, "log-level": self._log_level,
            "log-levels": self._log_levels,
            "prepare-listeners": self._listening.prepare, "listen": self._listen, "upgrade": self._begin_upgrade,
            "upgrade-state": self._upgrade.state,
        }  # fmt: skip

    def _listen(self, dynamic: dict[str, str]) -> dict[str, object]:
        self._require_ready()
        return self._listening.listen(dynamic)

    def _status(self) -> dict[str, object]:
        config = self._boot.config
        return {
            "ready": self._ready,
            "stopping": self._stopping,
            "uptime_s": time.monotonic() - self._began,
            "workers": len(self.workers()),
            "listeners": [str(endpoint) for endpoint in config.listeners],
        }

    def _request_stop(self) -> None:
        log.info("stop requested")
        self._stopping = True

    def _scale(self, workers: int) -> dict[str, object]:
        """Start or retire workers; the highest numbers go first."""
        if not 1 <= workers <= roles.MAX_WORKERS:
            raise OdradekError(f"workers must be 1 to {roles.MAX_WORKERS}, not {workers}")
        self._require_ready()
        if self._upgrade.active:
            raise OdradekError("an upgrade is under way: scale when it has ended")
        goal = self._workers(workers)
        retiring = self.workers() - goal
        self._children.desired -= retiring
        self._children.desired |= goal
        self._children.signal(retiring, signal.SIGTERM)
        over = time.monotonic() + stop_limits.stage_of(roles.FIRST_WORKER, self._boot.config).limit_s
        self._retiring |= dict.fromkeys(retiring, over)
        log.info("scaling to %d workers", workers)
        self._bus.publish("scale", workers=workers)
        return {"retiring": [role_name(role) for role in sorted(retiring)]}

    def _begin_upgrade(self) -> None:
        self._require_ready()
        self._upgrade.begin()

    # What an upgrade needs (broker.rolling.rolling_upgrade.Workers)

    def _renew(self) -> ForkserverClient:
        if self._forkserver is None:
            raise OdradekError("this broker has no fork server, which an upgrade needs")
        return self._forkserver.renewed(self._boot.run_dir)

    def _adopt(self, other: ForkserverClient) -> None:
        assert self._forkserver is not None
        self._forkserver.adopt(other)

    def workers(self) -> set[int]:
        """The roles of the workers that should live."""
        return {role for role in self._children.desired if role >= roles.FIRST_WORKER}

    def want(self, role: int) -> None:
        """Start a worker, and start it again when it dies."""
        self._children.desired.add(role)

    def unwant(self, role: int, end: bool) -> None:
        """Do not start a worker again; `end`: let it drain, and end."""
        self._children.desired.discard(role)
        if end:
            self._children.signal([role], signal.SIGTERM)
            self._retiring[role] = time.monotonic() + stop_limits.stage_of(role, self._boot.config).limit_s

    def kill(self, role: int) -> None:
        """End a process that is stuck."""
        log.warning("killed %s: it is stuck in an upgrade", role_name(role))
        self._children.kill([role])

    def runs(self, role: int) -> bool:
        """Whether the child of this role serves, and not a former process."""
        pid = self._children.pid(role)
        return pid > 0 and self._is_running(role) and self._boot.shared.processes.get(role, "pid") == pid

    def retiring(self) -> bool:
        """Whether a worker that should not live has not ended yet: it has its number until then."""
        return not self._children.desired.issuperset(self._children.living())

    def helpers(self) -> set[int]:
        """The roles of the processes that should live beside the workers."""
        return {role for role in self._children.desired if role < roles.FIRST_WORKER}

    def end(self, role: int) -> bool:
        """End a process that is started again; False: no child has this role."""
        self._children.signal([role], signal.SIGTERM)
        return role in self._children.living()

    def refusal(self, role: int) -> str:
        """Why this process cannot be replaced now, in a line; else ""."""
        return refusal(self._boot.shared.processes, role)

    def _require_ready(self) -> None:
        if not self._ready:
            raise OdradekError("the broker is not ready yet, or is stopping")

    def _end_retired(self) -> None:
        """Kill retired workers that have not drained within their limit."""
        for role, over in list(self._retiring.items()):
            if role not in self._children.living():
                del self._retiring[role]
            elif time.monotonic() >= over:
                log.warning("killed %s: it did not drain within odradek.drain.timeout.ms", role_name(role))
                self._children.kill([role])

    def _log_level(self, module: str, level: str) -> None:
        self._log_levels({module: level})

    def _log_levels(self, levels: Mapping[str, str | None]) -> None:
        try:
            logs.change_levels(self._boot.run_dir, levels)
        except logs.LevelError as error:
            raise OdradekError(str(error)) from None
        self._boot.shared.control.words[shm.LOG_VERSION] += 1
        signal.raise_signal(signal.SIGUSR2)
        self._children.signal(self._children.living(), signal.SIGUSR2)


def helpers(config: Mapping[str, Any]) -> set[int]:
    """The roles that a broker needs besides its workers. A standalone broker has no leader to copy from."""
    replicator = {roles.REPLICATOR} if config["zookeeper.connect"] else set()
    exporter = {roles.EXPORTER} if any(config[setting] for setting in EXPORTED) else set()
    return {*HELPERS, *replicator, *exporter}


def _print(*lines: str) -> None:
    """Standard output may be a file on a full disk, or a pipe without a reader: the broker serves all the same."""
    try:
        print(*lines, sep="\n", flush=True)
    except OSError as error:
        log.warning("cannot write to standard output: %s", error.strerror)
