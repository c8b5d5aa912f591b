"""The loops of a broker's controller process and of its replicator: their events, and the real code that they run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from odradek.broker.controller.member import join
from odradek.broker.controller.member.member import Member
from odradek.broker.janitor.log_dir_failures import LogDirFailureHandler
from odradek.broker.replicator import replicator
from odradek.broker.replicator.leader_fetcher import LeaderFetcher
from odradek.broker.replicator.replicator import limits, link_limits
from odradek.cluster.metadata.snapshot import Snapshot
from odradek.ipc import roles, slots
from odradek.ipc.columns import Columns
from odradek.workers.apis import k04_leader_and_isr, k05_stop_replica, k06_update_metadata, k07_controlled_shutdown
from odradek.workers.dispatch.context import Context

from . import disk, store
from .cuts import Cuts
from .serving import place
from .sockets import Resolver
from .world import Process, World

if TYPE_CHECKING:
    from .broker import Broker

_HANDLERS = {
    "LeaderAndIsr": k04_leader_and_isr, "StopReplica": k05_stop_replica, "UpdateMetadata": k06_update_metadata,
    "ControlledShutdown": k07_controlled_shutdown,
}  # fmt: skip


class Loop(Process):
    """A process that polls descriptors and does what is due. `turn` returns when it is due again."""

    def __init__(self, name: str, broker: int, world: World) -> None:
        super().__init__(name, broker)
        self.world = world
        self.sources: dict[int, Callable[[int], None]] = {}
        self.turn: Callable[[], float] = lambda: math.inf
        self._due = math.inf

    def ready(self, descriptor: int, events: int) -> None:
        source = self.sources.get(descriptor)
        if source is not None:
            source(events)
            self.go_on()

    def go_on(self) -> None:
        """Run a turn, and schedule the next one."""
        self.due(self.turn())

    def due(self, at: float) -> None:
        """Schedule a turn at `at` (world's clock)."""
        at = max(at, self.world.now + 1e-5)
        if at < self._due and at < math.inf:
            self._due = at
            self.world.after(at - self.world.now, self, lambda: self._wake(at))

    def _wake(self, at: float) -> None:
        if at == self._due:
            self._due = math.inf
            self.go_on()

    def watch(self, descriptor: int, _events: int, ready: Callable[[int], None]) -> None:
        """broker.interbroker.peers.Poller."""
        self.sources[descriptor] = ready

    def unwatch(self, descriptor: int) -> None:
        """broker.interbroker.peers.Poller."""
        self.sources.pop(descriptor, None)


class Controller:
    """broker.controller.controller: one run of the process."""

    def __init__(self, broker: Broker, loop: Loop, tree: Any, former: Snapshot | None) -> None:
        self.broker = broker
        self.loop = loop
        self.config = broker.config
        self._after_publish: list[Callable[[], None]] = []
        self.owner: Member = join._join(broker, tree, former)  # type: ignore[arg-type]  # a test double
        self.owner.version = 0 if former is None else former.version
        self.owner.attach(loop)
        self.publish()
        self.owner.begin()

    def when_published(self, action: Callable[[], None]) -> None:
        """For handlers."""
        self._after_publish.append(action)

    def turn(self) -> float:
        """As broker.controller.controller's `_turn`."""
        owner, world = self.owner, self.broker.world
        owner.tick()
        if owner.changed:
            self.publish()
        actions, self._after_publish = self._after_publish, []
        for action in actions:
            world.after(0.004, self.loop, action)
        return world.now + 0.001 if owner.waiting or owner.to_free else owner.due()

    def publish(self) -> None:
        owner = self.owner
        freed, owner.to_free = owner.to_free, []
        owner.to_free = [slot for slot in freed if not owner.slot_allocator.free(slot)]
        owner.changed = False
        version = owner.version + 1
        owner.version = version
        self.broker.published(Snapshot.parse(owner.snapshot_at(version).encode(), self.config))

    def serve(self, name: str, version: int, client: str, request: Any, reply: Callable[[Any], None]) -> None:
        """A request that a worker has passed on."""
        module = _HANDLERS[name]
        context = Context(module.API.key, version, client, "", "", reply)
        answer = module.handle(self, request, context)
        if answer is not None:
            reply(answer)
        self.loop.go_on()

    def rung(self) -> None:
        """The doorbell."""
        self.owner.on_wakeup()
        self.loop.go_on()


class Janitor:
    """broker.janitor.janitor: log directories that fail, recovery, checkpoints."""

    def __init__(self, broker: Broker, loop: Loop) -> None:
        self.broker = broker
        self.loop = loop
        self.snapshot = Snapshot.empty(broker.config)
        self.log = disk.MemoryLog(
            broker.shared, None, roles.JANITOR,
            lambda topic, index: place(self.snapshot, broker.config, topic, index), lambda _: None,
        )  # fmt: skip
        self._disks = LogDirFailureHandler(broker.shared, self, broker.config.log_dirs)  # type: ignore[arg-type]  # a test double
        loop.turn = self.turn

    def __iter__(self) -> Iterator[Any]:
        """broker.process.partitions."""
        for name, index, _ in self.snapshot.here():
            partition = self.log.get(name, index)
            if partition is not None:
                yield partition

    def follow_metadata(self, snapshot: Snapshot) -> None:
        """A snapshot was published."""
        self.snapshot = snapshot
        self.log.refresh()
        self.loop.go_on()

    def turn(self) -> float:
        """When the next turn is due."""
        if self.broker.shared.failed_dirs():
            self._disks.turn()
            return self.loop.world.now + 0.1
        return math.inf

    def rung(self) -> None:
        """The doorbell."""
        self.loop.go_on()

    def recover(self) -> None:
        """storage.log.opening."""
        for partition in self:
            if partition.slot.read()[slots.F_STATE] == slots.RECOVERING:
                store.recover(partition, partition.slot.fields())
                partition.release()

    def checkpoint(self) -> None:
        """broker.process.checkpoint_writer: the high watermarks and log starts; broker.process.flush: some logs."""
        for partition in self:
            values, directory = partition.slot.read(), partition.directory
            if values[slots.F_STATE] in (slots.LEADER, slots.FOLLOWER) and not directory.log_dir.broken:
                directory.log_dir.write()
                directory.checkpoint = values[slots.F_HW]
                directory.start_checkpoint = values[slots.F_LOG_START]
                if values[slots.F_LEO] % 4 == 0:
                    directory.synced = values[slots.F_LEO]


class _Catalog:
    """workers.dispatch.catalog for the replicator."""

    def __init__(self, broker: Broker) -> None:
        self.snapshot = Snapshot.empty(broker.config)
        self.newest = self.snapshot
        self.log = disk.MemoryLog(
            broker.shared, None, roles.REPLICATOR,
            lambda topic, index: place(self.snapshot, broker.config, topic, index), lambda _: None,
        )  # fmt: skip

    @property
    def stale(self) -> bool:
        return self.newest is not self.snapshot

    def follow(self) -> bool:
        self.snapshot = self.newest
        self.log.refresh()
        return True


class Replicator(replicator.Replicator):
    """The real replicator in a simulated loop."""

    def __init__(self, broker: Broker, loop: Loop) -> None:
        self._process = SimpleNamespace(shared=broker.shared, config=broker.config)  # type: ignore[assignment]  # a test double
        self._own = broker.number
        self._listener, self._security = "PLAINTEXT", None
        self._limits = (limits(broker.config), link_limits(broker.config))  # type: ignore[arg-type]  # a test double
        self._catalog: Any = _Catalog(broker)
        self._leaders = {}
        self._watched = {}
        self._seen = []
        self._columns = Columns(broker.shared.slots)
        self._check_at_ms = 0
        self._truncations: Any = Cuts(broker.world, loop)
        self._resolver: Any = Resolver()
        self._loop = loop
        loop.turn = self.turn_once

    @property
    def cutting(self) -> bool:
        """Whether a truncation is in progress outside the loop."""
        return bool(self._truncations.under_way)

    def turn_once(self) -> float:
        """One turn; when the next is due."""
        now_ms = int(self._loop.world.now * 1000)
        self._check(now_ms)
        for leader in self._leaders.values():
            leader.tick(now_ms)
        return self._loop.world.now + self._poll_timeout_ms() / 1000

    def follow_metadata(self, snapshot: Snapshot) -> None:
        """A snapshot was published."""
        self._catalog.newest = snapshot
        self._loop.go_on()

    def rung(self) -> None:
        """The doorbell."""
        self._check_at_ms = 0
        self._loop.go_on()

    def _watch(self, fd: int, events: int, leader: LeaderFetcher) -> None:
        if events:
            self._loop.watch(fd, events, leader.link.ready)
        else:
            self._loop.unwatch(fd)
