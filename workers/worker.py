"""A worker process: serves the connections the acceptor hands it, for any partition of this broker.

It puts together the event loop (workers.net.loop), what takes requests (workers.dispatch.requests), and the services
for handlers (workers.dispatch.services, and those of Produce and Fetch), which it offers itself.
"""

from __future__ import annotations

import logging
import select
import socket
import time
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from odradek.cluster.configs import quota_windows
from odradek.cluster.metadata.snapshot import Snapshot
from odradek.ipc import latencies, slots
from odradek.ipc.doorbell import Doorbell
from odradek.ipc.forward import Forwarded
from odradek.ipc.partition_counts import PartitionCounts
from odradek.ipc.processes import COLUMN
from odradek.ipc.quotas import QuotaTable
from odradek.ipc.region import RegionError
from odradek.ipc.shm import META_VERSION, Shared
from odradek.storage.log import opening
from odradek.storage.log.partition import Partition
from odradek.workers.apis import table
from odradek.workers.dispatch.catalog import Catalog
from odradek.workers.dispatch.deferred_work import DeferredWork
from odradek.workers.dispatch.purgatory import Purgatory
from odradek.workers.dispatch.requests import Requests
from odradek.workers.dispatch.unregistered_brokers import UnregisteredBrokers
from odradek.workers.fetch import nearest_replica
from odradek.workers.fetch.fetch_sessions import FetchSessionCache
from odradek.workers.fetch.fetch_targets import FetchTargets
from odradek.workers.fetch.follower_progress import FollowerProgress
from odradek.workers.forwarding.upstream import Upstream
from odradek.workers.forwarding.upstream_links import UpstreamLinks
from odradek.workers.net import connection_state
from odradek.workers.net.acceptor_channel import AcceptorChannel
from odradek.workers.net.connection import Connection
from odradek.workers.net.loop import Loop
from odradek.workers.net.pager import Pager
from odradek.workers.net.removed_listeners import RemovedListeners
from odradek.workers.net.request_times import RequestTimes
from odradek.workers.produce.acks_all import AcksAll
from odradek.workers.produce.batching import Batching
from odradek.workers.produce.fsync import Syncer
from odradek.workers.produce.produce_responses import ProduceResponses
from odradek.workers.produce.produce_targets import ProduceTargets
from odradek.workers.produce.producer_ids import ProducerIds
from odradek.workers.produce.record_check import RecordCheck
from odradek.workers.produce.verification import Verification
from odradek.workers.quotas.muting import Muting
from odradek.workers.quotas.quota_manager import QuotaManager
from odradek.workers.quotas.request_quotas import RequestQuotas
from odradek.workers.takeover.upgrade_door import UpgradeDoor

if TYPE_CHECKING:
    from odradek.ipc.faults.fault_table import FaultTable
    from odradek.workers.authentication.authentication import Authentication
    from odradek.workers.fetch.fetch_services import FetchServices
    from odradek.workers.produce.produce_services import ProduceServices

log = logging.getLogger(__name__)

IDLE_TICK_S = 0.5
_PRODUCE = 0  # its api key
TICK_S = 0.1  # the safety net: a lost ring delays a waiter by this much at most
RETRY_S = 0.001
RECOVER_LOOK_S = 0.01
_IDLE_SWEEP_S = 5


class Process(Protocol):
    """What `broker.process.process.enter` returns."""

    role: int
    run_dir: Path
    shared: Shared

    @property
    def config(self) -> Any: ...
    def running(self) -> None: ...
    def beat(self) -> None: ...
    def draining(self) -> None: ...


class Worker:
    """One worker process."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.role = process.role
        self.shared = process.shared
        self.config: Mapping[str, Any] = process.config
        self._stopping = False
        config = process.config
        self.catalog = Catalog(self.shared, process.run_dir, self.role, config, config.log_dirs, config.clean)
        self.counts = PartitionCounts(self.shared.prefix, self.role, self.shared.incarnation)
        self.catalog.log.counts = self.counts
        self.authorization = self.catalog.authorization
        self.snapshot: Snapshot = self.catalog.snapshot
        self.catalog.log.ring = self._ring_through(self.catalog.log.ring)
        self.bell = Doorbell(process.run_dir, self.role)
        self.times = RequestTimes(self._histograms(), _PRODUCE)
        self.loop = Loop(self, config["socket.request.max.bytes"], config["odradek.worker.spin.us"], self.times)
        self.sender = self.loop.sender
        self.deferred = DeferredWork(self.drop)
        self.again, self.begin = self.deferred.again, self.deferred.begin  # for handlers
        self.links = UpstreamLinks(self.loop)
        self.send_to = self.links.send
        self.purgatory = Purgatory(self.role)
        self.pager = Pager(self.sender.answer_pieces, self.again)
        self.unregistered = UnregisteredBrokers(lambda: self.snapshot.admitted, self.forward)
        self._faults = self._fault_table()
        self.requests = self._requests()
        self.take, self.name_of = self.requests.take, self.requests.name_of  # for the loop
        self.coordinator = Upstream(process.run_dir / "coordinator.sock")
        self.controller = Upstream(process.run_dir / "controller.sock")
        self.acceptance = AcceptorChannel(self, process.run_dir)
        self.listeners = RemovedListeners(config.protocols)
        self.authentication = self._authentication()
        self.draining = False
        self.muting = Muting(self.purgatory, self.loop.framing.resume)
        self.quotas: RequestQuotas | None = None
        self._quota_paths: dict[str, dict[str, float]] = {}
        self._serve_produce()
        self._serve_fetch()
        self.door = UpgradeDoor(self, process.run_dir, config["odradek.drain.timeout.ms"] / 1000)
        self._woken = False
        self._meta = self.shared.control.words
        self._row = self.shared.processes.row(self.role)
        self._next_tick = 0.0
        self._drain_until = 0.0
        self._next_idle = 0
        self._idle_ms = config["connections.max.idle.ms"]
        self._parts: dict[tuple[bytes, int, bool], Partition] = {}

    def _fault_table(self) -> FaultTable | None:
        """None unless this broker was started by a program that may want faults of it."""
        path = self.config.get("odradek.faults.file")  # not in what an earlier version has saved
        if not path:
            return None
        from odradek.ipc.faults.fault_table import FaultTable

        return FaultTable.attach(path)

    def _requests(self) -> Requests:
        if self._faults is None:
            return Requests(self)
        from odradek.workers.faults.faulty_requests import FaultyRequests

        return FaultyRequests(self, self._faults)

    def _histograms(self) -> memoryview:
        """Its region; or other memory, without readers: a worker must start although /dev/shm is full."""
        try:
            return latencies.open_own(self.shared.prefix, self.role, self.shared.incarnation)
        except RegionError as error:
            log.warning("%s; the times of this worker's requests are not in the metrics", error)
            return memoryview(bytearray(latencies.SIZE)).cast("q")

    def _authentication(self) -> Authentication | None:
        """None while every listener is PLAINTEXT: then nothing of OpenSSL is loaded."""
        config = self.process.config
        if set(self.listeners.protocols.values()) == {"PLAINTEXT"}:
            return None
        from odradek.cluster import user_store
        from odradek.ipc.notices import Notices
        from odradek.workers.apis import k18_api_versions
        from odradek.workers.authentication.authentication import Authentication
        from odradek.workers.dispatch.credentials import LiveCredentials

        versions = partial(k18_api_versions.body, config.clustered, config.get("odradek.api.versions.like", ""))
        live = LiveCredentials(self.catalog, user_store.token_settings(config))
        return Authentication(self, config, live.credentials, versions, Notices(self.process.run_dir).is_first)

    def _serve_produce(self) -> None:
        """The services for Produce (workers.produce.produce_services)."""
        self.batching = Batching(self.times)
        self.targets = ProduceTargets()
        self.record_check = RecordCheck()
        self.producer_ids = ProducerIds(self.forward)
        self.verification = Verification(self, self.batching)
        self.syncer = Syncer(self.batching, self.again)
        self.acks_all = AcksAll(self, self.batching)
        self.batching.connect(self.syncer.submit, self.acks_all.wait, self.verification.hold)
        self.spend, self.kept = self.loop.slices.spend, self.loop.framing.kept
        self._answering = ProduceResponses(self.batching, self.sender.send_bytes, self.loop.framing.settled, self.drop)

    def _serve_fetch(self) -> None:
        """The services for Fetch (workers.fetch.fetch_services)."""
        self.fetch_targets = FetchTargets()
        self.sessions = FetchSessionCache(self.config["max.incremental.fetch.session.cache.slots"])
        self.followers = FollowerProgress(self)
        self.fetch_max_bytes: int = self.config["fetch.max.bytes"]
        self.by_rack = nearest_replica.by_rack(self.config["replica.selector.class"])
        self.conversions = 0

    def _ring_through(self, ring: Callable[[int], None]) -> Callable[[int], None]:
        """Wrap `ring`: this worker's own bell needs no datagram."""

        def ring_(role: int) -> None:
            if role == self.role:
                self._woken = True
            else:
                ring(role)

        return ring_

    # -- life cycle

    def run(self, signal_fd: int, signalled: Callable[[], bool]) -> None:
        """Serve until `signalled()` returns True (called when `signal_fd` is readable), then drain."""

        def ask(_: int = 0) -> None:
            self._stopping = signalled() or self._stopping

        self._recover(ask)
        self._follow_listeners()
        self.loop.watch(signal_fd, ask)
        self.load()
        self.loop.watch(self.bell.fileno(), lambda _: self._bell())
        self.loop.watch(self.syncer.fileno(), lambda _: self.syncer.collect())
        self.door.open()
        self.process.running()
        sleep = 0.0
        while not (self._stopping and self._done()):
            self.loop.turn(sleep)
            sleep = self._after_events()
            if self.draining:
                self.acceptance.close_answered()
        self.finish()

    def load(self) -> None:
        """Import the API files."""
        clustered = bool(self.config["zookeeper.connect"])
        self.requests.load(table.served(clustered, self.config.get("odradek.api.versions.like", "")))
        self._follow_quotas()

    def _recover(self, ask: Callable[[], None]) -> None:
        """Help to open the log, until no process has anything left to recover."""
        log_dirs = self.catalog.log_dirs()
        bell = select.poll()
        bell.register(self.bell, select.POLLIN)
        while not self._stopping:
            ask()
            self.catalog.follow()
            self.snapshot = self.catalog.snapshot
            if self.snapshot.version:
                waiting = self.shared.slots.numbers(slots.RECOVERING)
                if not waiting:
                    return
                count = opening.open_all(self.catalog.log, self.catalog.names(), log_dirs, self._recovered_one)
                if count:
                    continue
            bell.poll(RECOVER_LOOK_S * 1000)  # rings on new metadata, not on a recovered log
            self.bell.drain()

    def _recovered_one(self) -> None:
        self._row[COLUMN["recovered"]] += 1

    def retire(self) -> None:
        """Drain and end, as after SIGTERM."""
        self._stopping = True

    def _done(self) -> bool:
        if not self.draining:
            self._begin_drain()
        if not self.loop.connections and self.acceptance.ended:
            return self.authentication is None or not self.authentication.unauthenticated.peers
        return time.monotonic() > self._drain_until

    def _begin_drain(self) -> None:
        log.info("draining %d connections", len(self.loop.connections))
        self.draining = True
        self._drain_until = time.monotonic() + self.config["odradek.drain.timeout.ms"] / 1000
        self.process.draining()
        self.acceptance.drain()
        self.purgatory.answer_all()
        if self.authentication is not None:
            self.authentication.drain()

    def finish(self) -> None:
        """Close the remaining connections and the worker's descriptors."""
        if self.authentication is not None:
            self.authentication.close()
        for connection in list(self.loop.connections.values()):
            self.drop(connection, "closed: the worker is stopping")
        self.loop.finish_round()
        self.door.close()
        self.syncer.close()
        self.bell.close()

    # -- the loop's handler

    def flush(self) -> None:
        """Execute the collected Produce requests, and answer those that are decided."""
        if self.batching.touched or self.batching.settling:
            self._answering.flush()

    def before_events(self) -> None:
        """Run once per batch of events: no request may be served from metadata older than this moment."""
        if self._meta[META_VERSION] != self.snapshot.version and self.catalog.follow():
            self.snapshot = self.catalog.snapshot
            self._parts.clear()
            if self.snapshot.quota_paths != self._quota_paths:
                self._follow_quotas()
            self.purgatory.all_changed()
            self._follow_listeners()

    def _follow_listeners(self) -> None:
        """Apply the listeners of the snapshot and their settings, before any of their connections is taken."""
        protocols = self.snapshot.protocols or self.process.config.protocols
        if self.listeners.follow(protocols, self.loop.connections.values(), time.monotonic()):
            self._next_tick = 0.0
            if self.authentication is None:
                self.authentication = self._authentication()
        if self.authentication is not None:
            self.authentication.follow(self.snapshot, protocols)

    def _follow_quotas(self) -> None:
        """Apply the client quotas of the snapshot. Without any, requests are taken as if there were no such thing."""
        self._quota_paths = self.snapshot.quota_paths
        take, pipelined = self.requests.take, self.requests.pipelined()
        self.quotas = None
        if self._quota_paths:
            window = quota_windows.client_window(self.config)
            manager = QuotaManager(self.snapshot.quotas, self._quota_table, window)
            self.quotas = quotas = RequestQuotas(manager, self.muting.mute, self.times)
            take, pipelined = quotas.timed(take), pipelined._replace(take=quotas.counted(pipelined.take))
        self.take, self.loop.framing.pipelined, self._answering.quotas = take, pipelined, self.quotas

    @cached_property
    def _quota_table(self) -> QuotaTable | None:
        try:
            return QuotaTable(self.shared.prefix, self.process.run_dir)
        except RegionError as error:
            log.warning("%s; this worker applies quotas alone", error)
            return None

    def _after_events(self) -> float:
        """Run after each batch of events; returns how long the loop may sleep (seconds)."""
        now, until, deadlines = time.monotonic(), self._next_tick, self.purgatory.deadlines
        if deadlines and deadlines[0][0] < until:
            until = deadlines[0][0]
        if until <= now or self._woken or self.batching.deferred or self.deferred.waiting:
            return self._wake(now)
        return until - now

    def _wake(self, now: float) -> float:
        """Handle rings, retries, deadlines and the tick."""
        if self._woken:
            self._woken = False
            self.purgatory.on_wakeup()
        if self.batching.deferred:
            self.batching.retry()
        if self.deferred.waiting:
            self.deferred.turn()
        deadline = self.purgatory.next_deadline()
        if deadline is not None and deadline <= now:
            self.purgatory.expire(now)
        self.loop.finish_round()
        if now >= self._next_tick:
            self._tick(now)
        return self._sleep(now)

    def _sleep(self, now: float) -> float:
        if self._woken or self.batching.touched or self.batching.settling:
            return 0.0
        if self.batching.deferred or self.deferred.waiting:
            return RETRY_S
        deadline = self.purgatory.next_deadline()
        until = self._next_tick if deadline is None else min(self._next_tick, deadline)
        return max(0.0, until - now)

    def _bell(self) -> None:
        self.bell.consume()
        self._woken = True

    def _tick(self, now: float) -> None:
        """Periodic work, ten times a second; less often while there are no clients and all peer processes are up."""
        links = (self.coordinator.channel, self.controller.channel, self.acceptance.channel)
        waits = self.authentication is not None and self.authentication.unauthenticated.peers
        self._next_tick = now + (TICK_S if self.loop.connections or waits or None in links else IDLE_TICK_S)
        self.process.beat()
        self._count()
        self.purgatory.compare()
        self.followers.tick()
        if self.authentication is not None:
            self.authentication.tick(now)
            self._row[COLUMN["certificate_expires"]] = int(self.authentication.expires_s)
        self.listeners.tick(now, self.drop)
        for name in ("coordinator", "controller"):
            self.links.tick(getattr(self, name))
        self.acceptance.tick()
        if self.draining:
            self.acceptance.hand_back()
        self._sweep(int(now))

    def _count(self) -> None:
        """Write the counters to the process table."""
        row, loop = self._row, self.loop
        row[COLUMN["connections"]] = len(loop.connections)
        row[COLUMN["requests"]] = loop.framing.requests + self._answering.answered
        row[COLUMN["produce_requests"]] = self._answering.answered
        row[COLUMN["fetch_requests"]] = self.requests.fetches
        row[COLUMN["bytes_in"]] = loop.bytes_in
        row[COLUMN["bytes_out"]] = self.sender.bytes_out
        row[COLUMN["appends"]] = self.batching.appends
        row[COLUMN["messages_in"]] = self.batching.messages
        row[COLUMN["lock_waits"]] = self.batching.lock_waits
        row[COLUMN["delayed_operations"]] = len(self.purgatory)
        self.times.store()

    def _sweep(self, now: int) -> None:
        """Every few seconds: close unused files and drop idle connections."""
        if now < self._next_idle:
            return
        self._next_idle = now + _IDLE_SWEEP_S
        self.catalog.log.sweep()
        if self._idle_ms >= 0:
            self._drop_idle(now)

    def _drop_idle(self, now: int) -> None:
        """Kafka counts any byte as activity; here a frame that arrives byte by byte does not count."""
        limit = now - self._idle_ms // 1000
        for connection in list(self.loop.connections.values()):
            trickles = connection.trickles()
            if connection.waits or connection.throttled or (connection.active and not trickles):
                connection.active, connection.last_active = False, now
            elif connection.last_active < limit:
                self.drop(connection, "closed: idle for more than connections.max.idle.ms")

    # -- connections

    def accept(self, sock: socket.socket, listener: str, host: str, port: int) -> None:
        """Serve a connection that the acceptor handed over. Raises OSError."""
        if listener not in self.listeners.protocols:
            raise ConnectionRefusedError(f"there is no listener {listener} any more")
        if self._faults is not None and self._faults.refuses:
            raise ConnectionRefusedError("the program that started the broker wants that (odradek.faults.file)")
        sock.setblocking(False)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection(sock, listener, host, port)
        log.debug("%r: connected", connection)
        if not self.loop.connections:
            self._next_tick = 0.0
        if self.authentication is None or not self.authentication.takes(connection):
            self.loop.add(connection)

    def admit(self, connection: Connection, data: bytes) -> None:
        """Take the requests of a peer that is authenticated now; `data` has come already."""
        assert self.authentication is not None
        connection.state = connection_state.READY
        try:
            self.loop.add(connection)
        except OSError as error:
            self.acceptance.cannot_serve(connection, error)
            connection.state = connection_state.CLOSED
            connection.sock.close()
            self.refuse(connection)
            return
        self.authentication.authenticated(connection)
        if data:
            connection.backlog = memoryview(bytearray(data)), 0, len(data)
        self.loop.framing.resume(connection)

    def refuse(self, connection: Connection) -> None:
        """A connection was closed before its peer was known."""
        self.acceptance.closed(connection)

    def keep(self, connection: Connection) -> None:
        """A connection leaves the loop to authenticate again."""
        self.acceptance.keep(connection)

    def served(self) -> list[Connection]:
        """All connections, authenticated or not."""
        others = self.authentication.connections if self.authentication is not None else ()
        return [*self.loop.connections.values(), *others]

    def drop(self, connection: Connection, why: str) -> None:
        """End a connection."""
        if connection.closed:
            return
        level = logging.DEBUG if why == "closed by the client" else logging.INFO
        log.log(level, "%r: %s", connection, why)
        if connection.delayed is not None:
            self.purgatory.remove(connection.delayed)
            connection.delayed = None
        self.muting.forget(connection)
        self.loop.remove(connection)
        self.acceptance.closed(connection)

    # -- services for handlers

    def partition_of(self, topic: bytes, index: int, by_id: bool) -> Partition | None:
        """The partition by the topic's name or id in its wire form; None when it is not on this broker."""
        key = (topic, index, by_id)
        partition = self._parts.get(key)
        if partition is None:
            name = self.snapshot.by_id(topic) if by_id else topic.decode("utf-8", "replace")
            partition = self.catalog.log.get(name, index) if name is not None else None
            if partition is not None:
                self._parts[key] = partition
        return partition

    def forward(self, api_key: int, version: int, body: bytes, answered: Callable[[int, bytes], None]) -> None:
        """Send the controller a request of this worker's own; calls `answered(flags, body)` once."""
        self.send_to(self.controller, Forwarded(0, api_key, version, None, "", "", body), answered)


if TYPE_CHECKING:

    def offered(worker: Worker) -> tuple[ProduceServices, FetchServices]:
        """A worker offers all that handlers need."""
        return worker, worker
