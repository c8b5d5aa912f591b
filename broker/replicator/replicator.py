"""The replicator: fetches the partitions that this broker follows from their leaders.

Role 3, in a cluster only. One loop, one thread. The slots say which partitions these are, the metadata which brokers
lead them; when either changes, which a ring announces, the replicator checks all partitions. In between it does no work
for each partition: it appends responses (broker.replicator.leader_fetcher), and sends the next request. A crash loses
nothing: all that a follower has is in its log, and the next replicator process continues from there.
"""

from __future__ import annotations

import logging
import select
import signal
import time
import zlib
from pathlib import Path

from odradek.broker.config import BrokerConfig
from odradek.broker.interbroker.connection import Address
from odradek.broker.interbroker.connection import LinkLimits as LinkLimits
from odradek.broker.interbroker.link_security import link_security
from odradek.broker.interbroker.resolver import Resolver
from odradek.broker.listeners import between_brokers
from odradek.broker.process.process import Process, Signals, enter
from odradek.broker.replicator import follower_log
from odradek.broker.replicator.leader_fetcher import LeaderFetcher
from odradek.broker.replicator.throttled_partitions import Throttled
from odradek.broker.replicator.truncations import Truncations
from odradek.cluster.replication import throttles
from odradek.cluster.replication.fetch_session import Key
from odradek.cluster.replication.partition_fetch_states import FetcherConfig
from odradek.ipc import roles, slots
from odradek.ipc.columns import Columns
from odradek.ipc.doorbell import Doorbell
from odradek.storage.log.partition import Partition
from odradek.workers.dispatch.catalog import Catalog

log = logging.getLogger(__name__)

LOOK_MS = 250  # the longest sleep: nothing depends on a doorbell alone
SLACK = 1 << 20  # what a response has besides records: 64 bytes for each of 16,000 partitions

Connection = tuple[int, int]  # leader, which of the connections to it


class Replicator:
    """The loop, and which partitions each connection fetches."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._own: int = process.config["broker.id"]
        self._listener = between_brokers(process.config)
        self._security = link_security(process.config)
        self._limits = (limits(process.config), link_limits(process.config))
        self._catalog = Catalog(
            process.shared,
            process.run_dir,
            roles.REPLICATOR,
            process.config,
            process.config.log_dirs,
            process.config.clean,
        )
        self._leaders: dict[Connection, LeaderFetcher] = {}
        self._watched: dict[int, LeaderFetcher] = {}
        self._seen: list[list[int]] = []  # the slots at the last check
        self._columns = Columns(process.shared.slots)
        self._check_at_ms = 0
        self._resolver = Resolver()
        self._truncations = Truncations(process.shared, process.run_dir)
        self._bell = Doorbell(process.run_dir, roles.REPLICATOR)
        self._signals = Signals(signal.SIGTERM, signal.SIGINT)
        self._epoll = select.epoll()
        for source in (self._signals, self._bell, self._resolver, self._truncations):
            self._epoll.register(source.fileno(), select.EPOLLIN)

    def run(self) -> None:
        """Run until SIGTERM."""
        self._check(_now_ms())
        self._process.running()
        while not self._signals.drain():
            self.turn(self._poll_timeout_ms())
        self._process.draining()

    def turn(self, timeout_ms: float) -> None:
        """Wait for events and handle them: responses first."""
        for fd, events in self._epoll.poll(timeout_ms / 1000):
            if fd in self._watched:
                self._watched[fd].link.ready(events)
            elif fd == self._bell.fileno():
                self._bell.drain()
                self._check_at_ms = 0
            elif fd == self._resolver.fileno():
                self._resolved()
            elif fd == self._truncations.fileno():
                self._truncations.drain()
        now_ms = _now_ms()
        self._check(now_ms)
        for leader in self._leaders.values():
            leader.tick(now_ms)
        self._process.beat()

    def _resolved(self) -> None:
        self._resolver.drain()
        for leader in self._leaders.values():
            leader.link.resolved()

    def close(self) -> None:
        """Release everything."""
        self._truncations.close()
        for leader in self._leaders.values():
            leader.close()
        self._resolver.close()
        self._bell.close()
        self._epoll.close()
        self._catalog.log.close()

    def _poll_timeout_ms(self) -> float:
        dues = [leader.due_ms for leader in self._leaders.values()]
        due = min((due for due in dues if due is not None), default=self._check_at_ms)
        return max(0, min(self._check_at_ms, due) - _now_ms())

    def _watch(self, fd: int, events: int, leader: LeaderFetcher) -> None:
        if not events:
            self._epoll.unregister(fd)
            del self._watched[fd]
        elif fd in self._watched:
            self._epoll.modify(fd, events)
        else:
            self._epoll.register(fd, events)
            self._watched[fd] = leader
        self._process.shared.processes.set(roles.REPLICATOR, "connections", len(self._watched))

    # -- which connection fetches what

    def _check(self, now_ms: int) -> None:
        """Check for new metadata at once, and for changed slots after a ring or LOOK_MS."""
        new = self._catalog.stale and self._catalog.follow()
        if new:
            self._log_unreachable()
        self._follow_security(new)
        if not new and now_ms < self._check_at_ms:
            return
        self._check_at_ms = now_ms + LOOK_MS
        self._catalog.log.sweep()
        seen = self._slots()
        if new or seen != self._seen:
            self._seen = seen
            self._assign()

    def _follow_security(self, new: bool) -> None:
        if self._security is not None:
            if new:
                self._security.follow(self._catalog.snapshot)
            self._security.poll()

    def _outdated(self) -> None:
        """A slot has changed since the last check."""
        self._check_at_ms, self._seen = 0, []

    def _slots(self) -> list[list[int]]:
        """The fields of all slots that `_assign` depends on: a few copies in C, whatever their number."""
        chunks = self._process.shared.slots.capacity // slots.CHUNK
        fields = (slots.F_STATE, slots.F_LEADER_EPOCH, slots.F_INCARNATION)
        return [self._columns.get(field, chunk) for chunk in range(chunks) for field in fields]

    def _assign(self) -> None:
        assignments, throttled = self._assignments(), self._throttled()
        for connection in list(self._leaders):
            if connection not in assignments or self._leaders[connection].address != self._address(connection[0]):
                self._leaders.pop(connection).close()
        for connection, partitions in assignments.items():
            leader = self._leaders.get(connection)
            if leader is None:
                leader = self._leaders[connection] = self._connect(connection)
            leader.set_partitions(partitions, throttled)

    def _assignments(self) -> dict[Connection, dict[Key, tuple[Partition, int]]]:
        """The followed partitions with their leader epochs, by the connection that fetches them."""
        snapshot = self._catalog.snapshot
        spread = snapshot.broker_config("num.replica.fetchers", self._own)
        assignments: dict[Connection, dict[Key, tuple[Partition, int]]] = {}
        for name, topic in snapshot.topics.items():
            first = zlib.crc32(topic.id)
            for index, info in enumerate(topic.partitions):
                if info.slot < 0 or info.leader == self._own or self._address(info.leader) is None:
                    continue
                partition = self._catalog.log.get(name, index)
                epoch = -1 if partition is None else self._epoch(partition)
                if partition is not None and epoch >= 0:
                    connection = info.leader, (first + index) % max(1, spread)
                    assignments.setdefault(connection, {})[(topic.id, index)] = partition, epoch
        return assignments

    def _throttled(self) -> Throttled | None:
        """The throttle of this broker's follower replicas, with the partitions concerned."""
        snapshot, process = self._catalog.snapshot, self._process
        throttle = throttles.in_force(
            throttles.FOLLOWER, snapshot, process.config, process.shared.traffic, roles.REPLICATOR
        )
        if throttle is None:
            return None
        return throttle, {
            (topic.id, index): self._own in info.isr
            for topic in map(snapshot.topics.__getitem__, throttle.topics)
            for index, info in enumerate(topic.partitions)
            if throttle.covers(topic.name, index)
        }

    def _epoch(self, partition: Partition) -> int:
        epoch = follower_log.follows(partition)
        if epoch < 0:
            partition.slot.wait(roles.REPLICATOR)  # a ring when it has recovered; if it is lost, LOOK_MS applies
        return epoch

    def _log_unreachable(self) -> None:
        for broker in self._catalog.snapshot.brokers:
            if self._address(broker) is None:
                log.error(
                    "broker %d has no listener %s (inter.broker.listener.name): cannot fetch from it",
                    broker,
                    self._listener,
                )

    def _address(self, broker: int) -> Address | None:
        """The address of a live broker for other brokers."""
        found = self._catalog.snapshot.brokers.get(broker)
        return None if found is None else found.endpoints.get(self._listener)

    def _connect(self, connection: Connection) -> LeaderFetcher:
        address = self._address(connection[0])
        assert address is not None
        row = self._process.shared.processes.row(roles.REPLICATOR)
        return LeaderFetcher(
            connection[0], address, self._limits, self._resolver, self._watch, self._outdated, row, self._truncations,
            self._security,
        )  # fmt: skip


def limits(config: BrokerConfig) -> FetcherConfig:
    """The limits of fetch requests, from a broker's configuration."""
    return FetcherConfig(
        replica=config["broker.id"],
        max_wait_ms=config["replica.fetch.wait.max.ms"],
        min_bytes=config["replica.fetch.min.bytes"],
        max_bytes=config["replica.fetch.response.max.bytes"],
        part_bytes=config["replica.fetch.max.bytes"],
        backoff_ms=config["replica.fetch.backoff.ms"],
    )


def link_limits(config: BrokerConfig) -> LinkLimits:
    """The limits of connections. A leader sends a whole batch, however large; it received the batch in a request."""
    usual = config["replica.fetch.response.max.bytes"] + SLACK
    is_set = "replica.socket.receive.buffer.bytes" in config.originals
    return LinkLimits(
        usual=usual,
        most=usual + config["socket.request.max.bytes"],
        timeout_ms=max(config["replica.socket.timeout.ms"], 2 * config["replica.fetch.wait.max.ms"]),
        receive_buffer=config["replica.socket.receive.buffer.bytes"] if is_set else -1,
    )


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def main(run_dir: Path) -> None:
    """Run the replicator of the broker with this run directory, until SIGTERM."""
    replicator = Replicator(enter(roles.REPLICATOR, run_dir))
    try:
        replicator.run()
    finally:
        replicator.close()
