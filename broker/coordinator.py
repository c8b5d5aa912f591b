"""The coordinator: owner of all groups and transactions. One loop, one thread; requests come from workers.

Role 2. Listens on `coordinator.sock` (ipc.channel, messages of ipc.forward). What arrives in one turn of the loop is
handled first and written then: many commits become one append for each partition of `__consumer_offsets`, and only
after that are they answered. Groups have no other state than that log: dying loses nothing that was answered, and a
successor reads it all again; so it is with transactions (broker.transactions). Workers tell the clients of requests
under way when we are gone.
"""

from __future__ import annotations

import gc
import logging
import select
import signal
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from odradek.broker import process
from odradek.broker.marker_links import MarkerLinks
from odradek.broker.offsets_journal import OffsetsJournal
from odradek.broker.offsets_topic import TOPIC, OffsetsTopic
from odradek.broker.process import Process, Signals
from odradek.broker.transactions import TransactionCoordinator
from odradek.cluster import internal
from odradek.cluster.snapshot import Snapshot
from odradek.groups.errors import Error
from odradek.groups.events import Answer, Append, Limits, Now
from odradek.groups.groups import Groups
from odradek.groups.journal import Writer
from odradek.groups.loading import Replay
from odradek.groups.offsets import TopicPartition
from odradek.groups.transactions.transactions import Transactions
from odradek.ipc import channel, forward, roles
from odradek.ipc.channel import Channel
from odradek.ipc.doorbell import Doorbell
from odradek.ipc.forward import Forwarded
from odradek.ipc.processes import COLUMN
from odradek.protocol import errors
from odradek.workers import api, dispatch
from odradek.workers.catalog import Catalog
from odradek.workers.coordination import Wanted
from odradek.workers.upstream import Upstream

log = logging.getLogger(__name__)

LOOK_S = 0.25  # the longest sleep: nothing depends on a doorbell alone
CONNECT_S = 0.05  # while the controller is not there
BUSY_S = 0.001
LOADING_S = 0.005  # while what is to be loaded waits for others
COLUMN_REQUESTS, COLUMN_APPENDS = COLUMN["requests"], COLUMN["appends"]
COLUMN_CONNECTIONS = COLUMN["connections"]


class Coordinator:
    """What handlers with runs_in="coordinator" get as their services (workers.coordination)."""

    def __init__(self, me: Process) -> None:
        self.me = me
        self.config = me.config
        self.now = _now()
        self.groups = Groups(limits(me.config))
        self._catalog = Catalog(
            me.shared, me.run_dir, roles.COORDINATOR, me.config, me.config.log_dirs, me.config.clean
        )
        self._journal = OffsetsJournal(self._catalog, roles.COORDINATOR)
        self._writer = Writer(
            self._journal,
            self.groups.partition_of,
            self.groups.limits.commit_timeout_ms,
            int(me.config["offsets.topic.compression.codec"]),
        )
        self._topic = OffsetsTopic(
            self.groups, self._journal, self._writer, me.config["broker.id"], partial(self._create_topic, TOPIC), Replay
        )
        self._watched: dict[int, Callable[[int], None]] = {}  # what is called with a descriptor's events
        self._links = MarkerLinks(me.config, self._watch)
        self._transactions = TransactionCoordinator(
            self._catalog, me.config, self.groups, self._holds_markers, self._links, self._ask, self._create_topic
        )
        self._rows = api.load_rows()
        self._row = me.shared.processes.row(roles.COORDINATOR)
        self._expire_at_ms = self.now.steady_ms + me.config["offsets.retention.check.interval.ms"]
        self._channels: dict[int, Channel] = {}
        self._writing: set[int] = set()  # descriptors whose writability is polled for
        self._loaded_some = False
        self._controller = Upstream(me.run_dir / "controller.sock")
        self._bell = Doorbell(me.run_dir, roles.COORDINATOR)
        self._signals = Signals(signal.SIGTERM, signal.SIGINT)
        self._epoll = select.epoll()
        self._door = channel.Listener(me.run_dir / "coordinator.sock")
        for source in (self._signals, self._door, self._bell):
            self._epoll.register(source.fileno(), select.EPOLLIN)

    # -- for handlers

    @property
    def snapshot(self) -> Snapshot:
        """The cluster's metadata."""
        return self._catalog.snapshot

    @property
    def transactions(self) -> Transactions:
        """The transactional ids."""
        return self._transactions.machine

    def when_offsets_topic(self, ready: Callable[[bool], None], groups: Iterable[str] = ()) -> None:
        """See `workers.coordination.Coordinator`."""
        self._topic.when_there(ready, groups, self.now)

    def when_transactions_topic(self, ready: Callable[[bool], None], ids: Iterable[str] = ()) -> None:
        """See `workers.coordination.Coordinator`."""
        self._transactions.topic.when_there(ready, ids, self.now)

    def write_markers(self, wanted: Wanted, done: Callable[[dict[TopicPartition, Error]], None]) -> None:
        """See `workers.coordination.Coordinator`."""
        self._transactions.write_markers(wanted, done, self.now)

    def _holds_markers(self, partition: int) -> bool:
        """Whether a partition of `__consumer_offsets` takes no marker yet: what is before it must be known."""
        return self._topic.is_behind(partition) or self._writer.is_busy_with(partition)

    def tree_commit(self, group: str, offsets: dict[TopicPartition, int], done: Callable[[bool], None]) -> None:
        """See `workers.coordination.Coordinator`."""
        rows = [[topic, index, offset] for (topic, index), offset in offsets.items()]

        def answered(body: dict[str, Any] | None) -> None:
            done(body is not None and not any(code for _, _, code in body["errors"]))

        self._ask(internal.COMMIT_V0, {"group": group, "offsets": rows}, answered)

    def tree_fetch(
        self, group: str, partitions: list[TopicPartition], done: Callable[[dict[TopicPartition, int] | None], None]
    ) -> None:
        """See `workers.coordination.Coordinator`."""

        def answered(body: dict[str, Any] | None) -> None:
            if body is None:
                done(None)
            else:
                done({(t, i): offset for t, i, offset, code in body["offsets"] if not code and offset is not None})

        self._ask(internal.FETCH_V0, {"group": group, "partitions": [list(tp) for tp in partitions]}, answered)

    # -- the controller

    def _ask(self, key: int, body: dict[str, Any], done: Callable[[dict[str, Any] | None], None]) -> None:
        """An internal request to the controller; `done(None)` when it could not answer."""

        def answered(flags: int, data: bytes) -> None:
            done(internal.decode(data) if flags == forward.OK else None)

        self._controller.ask(Forwarded(0, key, 0, None, "", "", internal.encode(body)), answered)

    def _create_topic(self, name: str) -> None:
        def answered(body: dict[str, Any] | None) -> None:
            code, message = body["errors"][name] if body else (-1, "the controller did not answer")
            if code not in (errors.NONE, errors.TOPIC_ALREADY_EXISTS):  # or the metadata is about to tell of it
                topic = self._topic if name == TOPIC else self._transactions.topic
                topic.creation_failed(f"{message} ({code})", self.now)

        self._ask(internal.AUTO_CREATE, {"topics": [name]}, answered)

    def _connect(self) -> None:
        if self._controller.connect():
            link = self._controller.channel
            assert link is not None
            self._epoll.register(link.fileno(), select.EPOLLIN)
        self._controller.tick()

    def _receive_from_controller(self, fd: int) -> None:
        self._controller.receive(lambda: self._unwatch(fd))

    # -- the loop

    def run(self) -> None:
        """Until SIGTERM."""
        _warm_up()
        self._follow()
        self.me.running()
        while not self._signals.take():
            events = self._epoll.poll(self._patience())
            self.now = _now()
            self._follow()
            for fd, what in events:
                self._event(fd, what)
            self._turn()
            self.me.beat()
        self.me.draining()
        self._turn()

    def _patience(self) -> float:
        if self._writer.is_waiting:
            return BUSY_S
        if self._topic.is_loading or self._transactions.topic.is_loading:
            return 0.0 if self._loaded_some else LOADING_S
        longest = CONNECT_S if self._controller.channel is None else LOOK_S
        patience = min(longest, self._transactions.patience(self.now))
        due = self.groups.timers.next_ms()
        return patience if due is None else min(patience, max(0.0, (due - self.now.steady_ms) / 1000))

    def _turn(self) -> None:
        """Everything that is not a message: deadlines, loading, the log, answers."""
        now = self.now
        self.groups.tick(now)
        topics = (self._topic, self._transactions.topic)
        self._loaded_some = sum(topic.is_loading and topic.step(now) for topic in topics) > 0
        for topic in topics:
            topic.tell(now)
        if now.steady_ms >= self._expire_at_ms:
            self._expire_at_ms = now.steady_ms + self.config["offsets.retention.check.interval.ms"]
            self.groups.expire_offsets(now)
        self._settle()
        self._transactions.turn(now, _deliver)
        self._flush()

    def _settle(self) -> None:
        """Deliver answers and append records until there are no more of either, nor of what comes of them."""
        self._writer.write(self.now)
        while True:
            while self.groups.effects:
                effects, self.groups.effects[:] = list(self.groups.effects), []
                for effect in effects:
                    self._do(effect)
                self._writer.write(self.now)
            if not self._writer.awaited:
                return
            self._journal.ring_me(self._writer.awaited)
            self._writer.check(self.now)
            if not self.groups.effects:
                return

    def _do(self, effect: Answer | Append) -> None:
        if isinstance(effect, Answer):
            _deliver(effect)
        else:
            self._writer.add(effect, self.now)
            self._row[COLUMN_APPENDS] += 1

    def _follow(self) -> None:
        """Take over new metadata before anything that may refer to it."""
        if not self._catalog.stale:
            return
        before = self._catalog.snapshot
        if self._catalog.follow():
            self._topic.follow(self._catalog.snapshot, self.now)
            self._transactions.follow(self._catalog.snapshot, self.now)
            gone = _deleted(before, self._catalog.snapshot)
            if gone:
                self.groups.topics_deleted(gone, self.now)

    # -- channels

    def _event(self, fd: int, what: int) -> None:
        if fd in self._channels:
            self._receive(fd)
        elif fd in self._watched:
            self._watched[fd](what)
        elif fd == self._door.fileno():
            self._admit()
        elif fd == self._bell.fileno():
            self._bell.drain()
        elif self._controller.channel is not None and fd == self._controller.channel.fileno():
            self._receive_from_controller(fd)

    def _admit(self) -> None:
        while (link := self._door.accept()) is not None:
            self._channels[link.fileno()] = link
            self._epoll.register(link.fileno(), select.EPOLLIN)
        self._row[COLUMN_CONNECTIONS] = len(self._channels)

    def _receive(self, fd: int) -> None:
        link = self._channels[fd]
        try:
            messages = link.receive()
        except EOFError:
            self._unwatch(fd)
            del self._channels[fd]
            link.close()
            self._row[COLUMN_CONNECTIONS] = len(self._channels)
            return
        for message in messages:
            self._serve(link, forward.decode(message))

    def _watch(self, fd: int, events: int, ready: Callable[[int], None]) -> None:
        """Call `ready` with what comes of `events`; 0: of nothing any more."""
        if not events:
            self._epoll.unregister(fd)
            del self._watched[fd]
            return
        (self._epoll.modify if fd in self._watched else self._epoll.register)(fd, events)
        self._watched[fd] = ready

    def _unwatch(self, fd: int) -> None:
        self._epoll.unregister(fd)
        self._writing.discard(fd)

    def _serve(self, link: Channel, request: Forwarded) -> None:
        def answer(flags: int, body: bytes) -> None:
            if link in self._channels.values():  # the worker may have gone while the answer was waited for
                link.send(forward.encode_reply(request.token, body, flags))

        self._row[COLUMN_REQUESTS] += 1
        row = self._rows.get(request.api_key)
        place = row.place(request.version, request.body) if row is not None else ""
        if row is None or place != api.COORDINATOR or not row.serves(request.version):
            log.error("API %d v%d is not the coordinator's", request.api_key, request.version)
            answer(forward.FAILED, b"")
            return
        dispatch.serve(row, self, request, answer)

    def _flush(self) -> None:
        """Send what the sockets did not take at once."""
        self._connect()
        links = [*self._channels.values(), *filter(None, [self._controller.channel])]
        for link in links:
            fd = link.fileno()
            if link.wants_write:
                link.flush()
            if link.wants_write != (fd in self._writing):
                self._writing ^= {fd}
                self._epoll.modify(fd, select.EPOLLIN | (select.EPOLLOUT if link.wants_write else 0))

    def close(self) -> None:
        """Let go of everything."""
        for link in self._channels.values():
            link.close()
        self._links.close()
        self._door.close()
        self._bell.close()
        self._catalog.log.close()


def _deliver(answer: Answer) -> None:
    """One answer that cannot be sent must not keep the others from being sent."""
    try:
        answer.token(answer.result)
    except Exception:
        log.exception("an answer could not be sent: %r", answer.result)


def limits(config: Any) -> Limits:
    """The groups' limits in a broker's configuration."""
    return Limits(
        min_session_ms=config["group.min.session.timeout.ms"],
        max_session_ms=config["group.max.session.timeout.ms"],
        initial_delay_ms=config["group.initial.rebalance.delay.ms"],
        max_size=config["group.max.size"],
        max_metadata=config["offset.metadata.max.bytes"],
        retention_ms=config["offsets.retention.minutes"] * 60_000,
        commit_timeout_ms=config["offsets.commit.timeout.ms"],
    )


def _deleted(before: Snapshot, after: Snapshot) -> set[str]:
    """Topics that are gone, or of the same name but not the same."""
    return {
        name for name, topic in before.topics.items() if name not in after.topics or after.topics[name].id != topic.id
    }


def _warm_up() -> None:
    """Load the message classes before the first client waits for them, and keep the collector off them."""
    for row in api.load_rows().values():
        if row.runs_in == api.COORDINATOR or row.route is not None:
            api.message_class(row.name + "Response")
    gc.collect()
    gc.freeze()


def _now() -> Now:
    return Now(time.monotonic_ns() // 1_000_000, time.time_ns() // 1_000_000)


def main(run_dir: Path) -> None:
    """Be the coordinator of the broker with this run directory, until SIGTERM."""
    coordinator = Coordinator(process.enter(roles.COORDINATOR, run_dir))
    try:
        coordinator.run()
    finally:
        coordinator.close()
