"""The coordinator: owner of all groups and transactions. One loop, one thread; requests come from workers.

Role 2. Listens on `coordinator.sock` (ipc.channel, messages of ipc.forward). Requests that arrive in one turn of the
loop are handled first and written afterwards: many commits become one append for each partition of
`__consumer_offsets`, and are answered only after it. Groups have no other state than that log: a crash loses nothing
that was answered, and a successor reads the log again. The same holds for transactions
(broker.coordinator.transaction_coordinator). At SIGTERM it finishes what it has begun, and workers send the rest to its
successor (broker.process.open_requests); a JoinGroup or SyncGroup that waits for other members is sent again, too. When
this process dies, workers answer the clients' pending requests.
Large requests, of up to 65,536 groups each, wait in line: small ones such as heartbeats wait for at most one step of a
large one (broker.process.steps). An exception in one group or transactional id affects only that one
(groups.ownership): a request must not end this process.
"""

from __future__ import annotations

import gc
import logging
import select
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from odradek.broker.coordinator.broker_channels import NewestConnections
from odradek.broker.coordinator.controller_client import ControllerClient
from odradek.broker.coordinator.group_coordinator import GroupCoordinator
from odradek.broker.coordinator.transaction_coordinator import TransactionCoordinator
from odradek.broker.coordinator.txn_marker_channel import TxnMarkerChannels
from odradek.broker.coordinator.verification_channel import VerificationChannels
from odradek.broker.interbroker.link_security import link_security
from odradek.broker.process import entry
from odradek.broker.process.process import Process, Signals, enter
from odradek.broker.process.request_channels import RequestChannels
from odradek.broker.process.steps import TaskQueue
from odradek.cluster import internal
from odradek.cluster.metadata.snapshot import Snapshot
from odradek.groups.events import Answer, Now
from odradek.groups.offsets import TopicPartition
from odradek.groups.transactions.events import Producer
from odradek.groups.transactions.transactions import Transactions
from odradek.ipc import forward, roles
from odradek.ipc.channel import Channel
from odradek.ipc.doorbell import Doorbell
from odradek.ipc.forward import Forwarded
from odradek.ipc.partition_counts import PartitionCounts
from odradek.ipc.processes import COLUMN
from odradek.protocol.errors import Error
from odradek.protocol.library import message_class
from odradek.workers.apis import table
from odradek.workers.dispatch import api, dispatch
from odradek.workers.dispatch.catalog import Catalog
from odradek.workers.dispatch.coordination import TxnMarkerEntry

log = logging.getLogger(__name__)

LOOK_S = 0.25  # the longest sleep: no event depends on a doorbell alone
FINISH_LOOK_S = 0.02
LOADED_S = 3.0  # clients wait that long for a successor's first answer
CONNECT_S = 0.05  # while the controller is not connected
LOADING_S = 0.005  # while loading waits for other processes
LARGE = 1024  # bytes; a request of this size or more waits in line
JOIN_GROUP, SYNC_GROUP = 11, 14  # change no state that outlives this process, as far as they have no answer
LONG_ANSWERS = (9, 15, 16, 65, 66)  # APIs whose small requests wait too: OffsetFetch, Describe and List of both kinds
COLUMN_REQUESTS, COLUMN_CONNECTIONS = COLUMN["requests"], COLUMN["connections"]


class Coordinator:
    """The services of handlers with runs_in="coordinator" (workers.dispatch.coordination)."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.config = process.config
        self.now = _now()
        self._catalog = Catalog(
            process.shared,
            process.run_dir,
            roles.COORDINATOR,
            process.config,
            process.config.log_dirs,
            process.config.clean,
        )
        self._catalog.log.counts = PartitionCounts(process.shared.prefix, roles.COORDINATOR, process.shared.incarnation)
        self.authorization = self._catalog.authorization
        self._row = process.shared.processes.row(roles.COORDINATOR)
        self._controller = ControllerClient(process.run_dir)
        self._groups = GroupCoordinator(self._catalog, process.config, self._controller, self._row, self.now)
        self.groups = self._groups.machine
        self._watched: dict[int, Callable[[int], None]] = {}  # callbacks for a descriptor's events
        self._security = link_security(process.config) if process.config.clustered else None
        self._marker_channels = TxnMarkerChannels(process.config, self._watch, self._security)
        self._verifications = VerificationChannels(process.config, self._watch, self._security)
        self._transactions = TransactionCoordinator(
            self._catalog, process.config, self.groups, self._groups.holds_markers, self._marker_channels,
            self._verifications, self._controller,
        )  # fmt: skip
        self._newest = NewestConnections()
        self._queue = TaskQueue()
        self._topics = (self._groups.topic, self._transactions.topic)
        self._controller_writes = False  # whether its channel is polled for writability
        self._loaded_some = False
        self._bell = Doorbell(process.run_dir, roles.COORDINATOR)
        self._signals = Signals(signal.SIGTERM, signal.SIGINT)
        self._epoll = select.epoll()
        socket = process.run_dir / "coordinator.sock"
        self._channels = RequestChannels(self._epoll, socket, self._serve, (JOIN_GROUP, SYNC_GROUP))
        for source in (self._signals, self._bell):
            self._epoll.register(source.fileno(), select.EPOLLIN)
        self._opens_at = time.monotonic() + (LOADED_S if self._row[COLUMN["starts"]] > 1 else 0.0)

    # -- for handlers

    @property
    def snapshot(self) -> Snapshot:
        """The cluster's metadata."""
        return self._catalog.snapshot

    @property
    def transactions(self) -> Transactions:
        """The transactional ids."""
        return self._transactions.machine

    def begin(self, work: Iterator[None]) -> None:
        """Run the rest of a request in steps, interleaved with small requests."""
        self._queue.add_first(work)

    def when_offsets_topic(self, ready: Callable[[bool], None], groups: Iterable[str] = ()) -> None:
        """See `workers.dispatch.coordination.Coordinator`."""
        self._groups.topic.when_ready(ready, groups, self.now)

    def when_transactions_topic(self, ready: Callable[[bool], None], ids: Iterable[str] = ()) -> None:
        """See `workers.dispatch.coordination.Coordinator`."""
        self._transactions.topic.when_ready(ready, ids, self.now)

    def admits_markers(self, client_id: str | None) -> bool:
        """See `workers.dispatch.coordination.Coordinator`."""
        return self._newest.admits(client_id)

    def verify(self, producer: Producer, partition: TopicPartition, done: Callable[[Error], None]) -> None:
        """See `workers.dispatch.coordination.Coordinator`."""
        self._transactions.verify(producer, partition, done)

    def write_markers(self, entry: TxnMarkerEntry, done: Callable[[dict[TopicPartition, Error]], None]) -> None:
        """See `workers.dispatch.coordination.Coordinator`."""
        self._transactions.write_markers(entry, done, self.now)

    def look_for_brokers(self) -> None:
        """See `workers.dispatch.coordination.Coordinator`."""
        self._controller.look_for_brokers()

    def tree_commit(self, group: str, offsets: dict[TopicPartition, int], done: Callable[[bool], None]) -> None:
        """See `workers.dispatch.coordination.Coordinator`."""
        self._controller.tree_commit(group, offsets, done)

    def tree_fetch(
        self, group: str, partitions: list[TopicPartition], done: Callable[[dict[TopicPartition, int] | None], None]
    ) -> None:
        """See `workers.dispatch.coordination.Coordinator`."""
        self._controller.tree_fetch(group, partitions, done)

    # -- the controller

    def _connect(self) -> None:
        if self._controller.connect():
            link = self._controller.channel
            assert link is not None
            self._epoll.register(link.fileno(), select.EPOLLIN)
        self._controller.tick()

    def _receive_from_controller(self, fd: int) -> None:
        self._controller.receive(lambda: self._lose_controller(fd))

    def _lose_controller(self, fd: int) -> None:
        self._epoll.unregister(fd)
        self._controller_writes = False

    def _flush_to_controller(self) -> None:
        link = self._controller.channel
        if link is None:
            return
        if link.wants_write:
            link.flush()
        if link.wants_write != self._controller_writes:
            self._controller_writes = link.wants_write
            self._epoll.modify(link.fileno(), select.EPOLLIN | (select.EPOLLOUT if link.wants_write else 0))

    # -- the loop

    def run(self) -> None:
        """Run the loop until SIGTERM."""
        _warm_up()
        self._follow()
        self.process.running()
        while not self._signals.drain():
            self._open_door()
            events = self._epoll.poll(self._poll_timeout())
            self.now = _now()
            self._follow()
            for fd, what in events:
                self._event(fd, what)
            self._turn()
            self.process.beat()
        self.process.draining()
        self._finish()

    def _finish(self) -> None:
        """Finish what was begun. Workers keep the rest for the next process of this role."""
        self._channels.finish()
        self._turn()
        while self._channels.finishing:
            events = self._epoll.poll(min(self._poll_timeout(), FINISH_LOOK_S))
            self.now = _now()
            self._follow()
            for fd, what in events:
                self._event(fd, what)
            self._turn()
        self._channels.end()

    def _open_door(self) -> None:
        """A successor first reads the logs, for LOADED_S at most: requests wait meanwhile."""
        if self._channels.is_open:
            return
        if time.monotonic() >= self._opens_at or not any(topic.is_loading for topic in self._topics):
            self._channels.open()

    def _poll_timeout(self) -> float:
        if self._queue.waiting:
            return 0.0
        if any(topic.is_loading for topic in self._topics):
            return 0.0 if self._loaded_some else LOADING_S
        longest = CONNECT_S if self._controller.channel is None else LOOK_S
        waits = self._groups.poll_timeout(self.now), self._transactions.poll_timeout(self.now)
        return min([longest, *[wait for wait in waits if wait is not None]])

    def _turn(self) -> None:
        """Everything except messages: certificates, loading, deadlines, the log, responses."""
        if self._security is not None:
            self._security.poll()
        self._queue.advance()
        self._loaded_some = sum(topic.is_loading and topic.step(self.now) for topic in self._topics) > 0
        for topic in self._topics:
            topic.answer_waiting(self.now)
        self._groups.turn(self.now, _deliver)
        self._transactions.turn(self.now, _deliver)
        self._flush()

    def _follow(self) -> None:
        """Take over new metadata before handling anything that may refer to it."""
        if not self._catalog.stale:
            return
        before = self._catalog.snapshot
        if self._catalog.follow():
            if self._security is not None:
                self._security.follow(self._catalog.snapshot)
            self._groups.follow(before, self._catalog.snapshot, self.now)
            self._transactions.follow(self._catalog.snapshot, self.now)

    # -- events

    def _event(self, fd: int, what: int) -> None:
        if self._channels.owns(fd):
            self._channels.event(fd, what)
            self._row[COLUMN_CONNECTIONS] = len(self._channels)
        elif fd in self._watched:
            self._ready(fd, what)
        elif fd == self._bell.fileno():
            self._bell.drain()
        elif self._controller.channel is not None and fd == self._controller.channel.fileno():
            self._receive_from_controller(fd)

    def _ready(self, fd: int, what: int) -> None:
        """An exception in one descriptor's callback does not affect the others: the descriptor is unregistered."""
        try:
            self._watched[fd](what)
        except Exception:
            log.exception("unexpected error while handling events of descriptor %d", fd)
            self._watch(fd, 0, lambda _: None)

    def _watch(self, fd: int, events: int, ready: Callable[[int], None]) -> None:
        """Call `ready` with those of `events` that occur; 0: stop watching."""
        if not events:
            if self._watched.pop(fd, None) is not None:
                self._epoll.unregister(fd)
            return
        (self._epoll.modify if fd in self._watched else self._epoll.register)(fd, events)
        self._watched[fd] = ready

    def _serve(self, link: Channel, request: Forwarded) -> None:
        answer = partial(self._channels.answer, link, request)
        self._row[COLUMN_REQUESTS] += 1
        self._channels.begin(link, request)
        if request.api_key == internal.VERIFY:
            self._verify(request, answer)
            return
        row = table.row(request.api_key)
        place = row.place(request.version, request.body) if row is not None else ""
        if row is None or place != api.COORDINATOR or not row.serves(request.version):
            log.error("API %d v%d is not the coordinator's", request.api_key, request.version)
            answer(forward.FAILED, b"")
            return
        if len(request.body) < LARGE and request.api_key not in LONG_ANSWERS:
            dispatch.serve(row, self, request, answer)
        else:
            self._queue.add(dispatch.serving(row, self, request, answer, self.begin))

    def _verify(self, request: Forwarded, answer: Callable[[int, bytes], None]) -> None:
        """A worker's verification request (cluster.internal)."""
        body = internal.decode(request.body)
        topic, index = body["partition"]

        def done(error: Error) -> None:
            answer(forward.OK, internal.encode({"error": int(error)}))

        self.verify(Producer(body["transactional_id"], *body["producer"]), (topic, index), done)

    def _flush(self) -> None:
        """Send what the sockets did not accept at once."""
        self._connect()
        self._flush_to_controller()
        self._channels.flush()

    def close(self) -> None:
        """Close everything."""
        self._channels.close()
        self._marker_channels.close()
        self._verifications.close()
        self._bell.close()
        self._catalog.log.close()


def _deliver(answer: Answer) -> None:
    """Send a response; a failure must not block the others."""
    try:
        answer.token(answer.result)
    except Exception:
        log.exception("cannot send a response: %r", answer.result)


def _warm_up() -> None:
    """Load the message classes before the first client needs them, and exclude them from garbage collection."""
    for row in () if entry.on_demand() else table.load_rows().values():
        if row.runs_in == api.COORDINATOR or row.route is not None:
            message_class(row.name + "Response")
    gc.collect()
    gc.freeze()


def _now() -> Now:
    return Now(time.monotonic_ns() // 1_000_000, time.time_ns() // 1_000_000)


def main(run_dir: Path) -> None:
    """Run the coordinator of the broker with this run directory until SIGTERM."""
    coordinator = Coordinator(enter(roles.COORDINATOR, run_dir))
    try:
        coordinator.run()
    finally:
        coordinator.close()
