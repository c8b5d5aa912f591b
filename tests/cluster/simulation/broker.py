"""A simulated broker: four processes on a host, memory that goes with them, a disk that stays.

controller   the real Member (broker.loops)          killed alone; its successor continues its session and slots
workers      serving.Workers                         killed alone; others serve the next requests
replicator   the real LeaderFetcher of each leader   killed alone; its successor starts over
janitor      the real LogDirFailureHandler, recovery killed alone
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from odradek.cluster.metadata.snapshot import Snapshot
from odradek.cluster.tree import znodes
from odradek.cluster.tree.tree import TreeError, TreeUnavailable
from odradek.ipc import roles
from odradek.protocol import errors

from . import disk
from .loops import Controller, Janitor, Loop, Replicator
from .memory import Config, Shared
from .network import DOWN, UP, Connection, End
from .serving import Workers
from .session import Session
from .world import Killed

if TYPE_CHECKING:
    from .cluster import Cluster

_AGAIN_S = 0.3
_ORDERS = ("LeaderAndIsr", "StopReplica", "UpdateMetadata")


class Broker:
    """One broker. `config`, `shared` and `run_dir` are what real code takes for its process (process.process)."""

    role = roles.CONTROLLER

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.number = number
        self.lives = 0
        self.epoch = self.former_epoch = 0  # of its registration, and of the last of its lives before
        self.up = False
        self.boots_at = 0.0  # the host, after a loss of power
        self.registered = False
        self.registered_at = 0.0
        self.dies_noting = False  # its controller process, the next time that it is about to lead
        self.disk = disk.Disk(number, *cluster.invariants.of_logs)
        self.config = Config(number, self.disk, **cluster.config)
        self.session: Session | None = None
        self.controller: Controller | None = None
        self.shared: Shared
        self.workers: Workers
        self._loops: dict[str, Any] = {}
        self._published: Snapshot | None = None
        self._serving = False
        cluster.network.accept[number] = self._accept

    @property
    def run_dir(self) -> Any:
        return self.shared.run_dir

    def partitions(self) -> list[Any]:
        """The partitions as the workers have them."""
        return list(self.workers.log._partitions.values()) if self.up else []

    # -- lives

    def start(self) -> None:
        """Start another run of the broker."""
        if self.up:
            return
        self.lives += 1
        self.former_epoch = max(self.former_epoch, self.epoch)
        self.up, self.registered, self._serving = True, False, False
        self._published = None
        self.shared = Shared(self.world, self, self.cluster.busy)
        self.cluster.network.back(self.number)
        self._loops = {}
        self.workers = Workers(self, self._loop("workers"))
        self.replicator = Replicator(self, self._loop("replicator"))
        self.janitor = Janitor(self, self._loop("janitor"))
        for log_dir in self.disk.log_dirs:
            if log_dir.broken:
                self.shared.fail_dir(log_dir.number)
        self.world.say(f"broker {self.number} starts")
        self._start_controller(None)

    def _start_controller(self, former: Snapshot | None) -> None:
        loop = self._loop("controller")
        self.world.after(0.01, loop, lambda: self._boot(loop, former))

    def _loop(self, name: str) -> Loop:
        """Start a process in place of the former one of that name."""
        loop = self._loops[name] = Loop(name, self.number, self.world)
        loop.end = lambda: self.kill_process(name)
        return loop

    @property
    def is_elected(self) -> bool:
        """Whether its controller process is the elected controller."""
        return self.controller is not None and self.controller.owner.elected is not None

    @property
    def loop(self) -> Loop:
        """The controller process."""
        return self._loops["controller"]

    def _boot(self, loop: Loop, former: Snapshot | None) -> None:
        """As member.join and interbroker.zookeeper_session; again from the start when ZooKeeper is away."""
        try:
            session = self._join(loop, former)
            self.controller = Controller(self, loop, session, former)
        except TreeError as error:
            self.world.say(f"broker {self.number} cannot join: {error!r}")
            if former is None and self.session is not None:
                self.session.close()
            self.world.after(_AGAIN_S, loop, lambda: self._boot(loop, former))
            return
        loop.turn = self.controller.turn
        loop.ready(session.fileno(), 1)

    def _join(self, loop: Loop, former: Snapshot | None) -> Session:
        def ring() -> None:
            self.world.after(self.cluster.network.latency(), loop, lambda: loop.ready(-self.number - 2, 1))

        if former is not None and self.session is not None and self.session.goes_on:
            self.session.resumed(ring)
            return self.session
        if self.session is not None and self.world.chance(0.8):
            self.session.close()
        self.session = session = self.cluster.zookeeper.connect(self.number, ring)
        self.cluster.placed(session)
        path = f"{znodes.BROKER_IDS}/{self.number}"
        found = session.exists(path)
        if found is not None and found.owner != session.session:
            raise TreeUnavailable(f"{path}: still registered")
        return session

    # -- what real code says of its process

    def running(self) -> None:
        """Called when the broker is registered."""
        self.registered, self.registered_at = True, self.world.now
        node = self.cluster.zookeeper.nodes.get(f"{znodes.BROKER_IDS}/{self.number}")
        self.epoch = node.czxid if node is not None else self.epoch
        self.world.say(f"broker {self.number} is registered")

    def mark_left_cluster(self) -> None:
        """Called when others lead its partitions, or the controlled shutdown failed."""
        self.world.after(0.02, self.loop, self._leave)

    def _leave(self) -> None:
        assert self.controller is not None
        self.controller.owner.close()
        self.world.after(0.01, None, lambda: self.die("leaves"))

    # -- ends

    def die(self, how: str, vanish: bool = False) -> None:
        """Kill the broker."""
        if not self.up:
            return
        self.world.say(f"broker {self.number} {how}")
        if vanish:
            self.cluster.network.vanished(self.number)
        for loop in self._loops.values():
            loop.alive = False
            if not vanish:
                self.cluster.network.died(loop)
        self.up = self.registered = False
        self.controller = None
        if not vanish:
            self.cluster.network.hosts[self.number] = DOWN
        if self.session is not None:
            self.session.vanish()
        self.cluster.died(self)

    def kill_controller(self) -> None:
        """Kill only the controller process; another one follows."""
        if not self.up or not self.loop.alive:
            return
        self.world.say(f"broker {self.number}: its controller process is killed")
        self.loop.alive = False
        self.cluster.network.died(self.loop)
        for one in self.cluster.network.of(self.number):
            if one.brokers[1] == self.number and one.ends[1] is not None and one.waits:
                one.close(by_server=True)  # workers answer nothing that they passed on
        self.controller = None
        former, life = self._published, self.lives
        self.world.after(self.world.between(0.02, 0.5), None, lambda: self._respawn(former, life))

    def _respawn(self, former: Snapshot | None, life: int) -> None:
        if self.up and self.lives == life and not self.loop.alive:
            self._start_controller(former)

    def kill_process(self, name: str) -> None:
        """Kill one process by name; another takes its place."""
        if name == "controller":
            self.kill_controller()
        elif self.up:
            self.world.say(f"broker {self.number}: its {name} is killed")
            self._loops[name].alive = False
            self.cluster.network.died(self._loops[name])
            loop = self._loop(name)
            if name == "workers":
                another: Any = Workers(self, loop)
            else:
                another = Replicator(self, loop) if name == "replicator" else Janitor(self, loop)
            setattr(self, name, another)
            self.world.after(self.world.between(0.0, 0.3), loop, lambda: self._begin(name, another))

    def disk_failed(self) -> None:
        """The supervisor stops a broker whose log directories have all failed."""
        life = self.lives

        def end() -> None:
            if self.lives == life and len(self.shared.failed_dirs()) == len(self.disk.log_dirs):
                self.die("has no log directory left")

        self.world.after(self.world.between(0.05, 0.5), None, end)

    def _begin(self, name: str, another: Any) -> None:
        if self._published is not None:
            another.follow_metadata(self._published)
        if name == "janitor" and self._serving:
            self._recover()

    def process(self, name: str) -> Loop | None:
        """A process, None while the broker is down."""
        return self._loops[name] if self.up else None

    def noted(self) -> None:
        """An epoch is recorded in a log, by a process that is about to lead in it or writes in it."""
        if self.dies_noting and self.world.running and self.world.running[-1] is self.loop:
            self.dies_noting = False
            self.kill_controller()
            if not self.loop.alive:
                raise Killed

    def stop(self, seconds: float) -> None:
        """Stop the broker, as by SIGSTOP."""
        if self.up:
            self.world.say(f"broker {self.number} is stopped for {seconds:.1f} s")
            for loop in self._loops.values():
                loop.stopped_until = self.world.now + seconds

    def stop_controller(self, seconds: float) -> None:
        """Stop that process, as by SIGSTOP."""
        if self.up:
            self.world.say(f"broker {self.number}: its controller process is stopped for {seconds:.1f} s")
            self.loop.stopped_until = self.world.now + seconds

    def shut_down(self) -> None:
        """Begin a controlled shutdown, as by SIGTERM."""
        if self.up and self.controller is not None and not self.shared.draining:
            self.world.say(f"broker {self.number} is asked to stop")
            self.shared.draining = True
            self.world.after(0.0, self.loop, self.controller.rung)
            life = self.lives
            self.world.after(4.0, None, lambda: self.die("is killed after all") if self.lives == life else None)

    # -- between its processes

    def published(self, snapshot: Snapshot) -> None:
        """All processes take over the snapshot, one after the other."""
        self.world.effect()
        self._published = snapshot
        self.shared.metadata.version = snapshot.version
        loops = self._loops
        delay = self.world.between(0, 0.003)
        self.world.after(delay, loops["workers"], lambda: self._newest(snapshot, self.workers))
        delay = self.world.between(0, 0.003)
        self.world.after(delay, loops["replicator"], lambda: self._newest(snapshot, self.replicator))
        self.world.after(delay, loops["janitor"], lambda: self._newest(snapshot, self.janitor))
        delay = self.world.between(0.005, 0.1)
        self.world.after(delay, loops["janitor"], self._recover_later if self._serving else self._recover)
        self._serving = True

    def _newest(self, snapshot: Snapshot, who: Any) -> None:
        if self._published is not None and snapshot.version == self._published.version:
            who.follow_metadata(snapshot)

    def _recover(self) -> None:
        """The janitor has recovered the logs; then clients are served."""
        self._recover_later()
        self.cluster.network.hosts[self.number] = UP
        self._checkpoint()

    def _recover_later(self) -> None:
        """Recover also logs that were found only through a controller request."""
        assert self._published is not None
        self.janitor.follow_metadata(self._published)
        self.janitor.recover()

    def _checkpoint(self) -> None:
        self.janitor.checkpoint()
        self.world.after(self.world.between(0.2, 2.0), self._loops["janitor"], self._checkpoint)

    def _accept(self, connection: Connection, kind: str) -> End | None:
        return self.workers.accept(connection, kind) if self.up else None

    def order(self, name: str, version: int, client: str, request: Any, reply: Callable[[Any], None]) -> bool:
        """Pass a request to the controller process; False when there is none."""
        controller = self.controller
        if controller is None:
            return False

        def answered(answer: Any) -> None:
            if name in _ORDERS and 0 <= request.broker_epoch <= self.former_epoch and answer.error_code == errors.NONE:
                self.cluster.invariants.wrong(f"broker {self.number} took a {name} that a former life was meant to get")
            reply(answer)

        self.world.after(0.0002, self.loop, lambda: controller.serve(name, version, client, request, answered))
        return True

    def changed(self) -> None:
        """A slot may have changed."""
        self.workers.changed()

    def ring(self, role: int) -> None:
        """Ring a doorbell, which may be lost."""
        if self.world.chance(0.05):
            return
        if role == roles.CONTROLLER and self.controller is not None:
            self.world.after(0.0002, self.loop, self.controller.rung)
        elif role == roles.REPLICATOR:
            self.world.after(0.0002, self._loops["replicator"], self.replicator.rung)
        elif role == roles.JANITOR:
            self.world.after(0.0002, self._loops["janitor"], self.janitor.rung)
        else:
            self.workers.changed()
