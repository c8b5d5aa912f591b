"""The controller: owner of the metadata. One loop, one thread; requests come from workers and the coordinator.

Role 4. Listens on `controller.sock` (ipc.channel, messages of ipc.forward). Changes made in one turn of the loop are
published as one snapshot at its end; replies that must not overtake it wait until every process has it
(broker.controller.snapshot_publisher). Large requests, of up to 65,536 topics each, run in steps
(broker.process.steps), interleaved with small and other large requests. Each step of a handler makes a separate change.
"""

from __future__ import annotations

import logging
import select
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from odradek.broker import logs
from odradek.broker.controller import internal_requests
from odradek.broker.controller.dynamic_listeners import DynamicListeners
from odradek.broker.controller.metadata_owner import MetadataOwner
from odradek.broker.controller.mutation_quotas import MutationQuotas
from odradek.broker.controller.snapshot_publisher import SnapshotPublisher
from odradek.broker.controller.zookeeper_outage import ZooKeeperOutage
from odradek.broker.errors import OdradekError
from odradek.broker.process import entry
from odradek.broker.process.process import Process, Signals
from odradek.broker.process.request_channels import RequestChannels
from odradek.broker.process.steps import TaskScheduler
from odradek.broker.process.timeouts import Cancel, Timeouts
from odradek.cluster import internal
from odradek.cluster.configs import quota_windows
from odradek.cluster.decisions import alter_loggers
from odradek.cluster.decisions.planning import TopicDefaults
from odradek.cluster.metadata.snapshot import Snapshot
from odradek.cluster.rules.errors import ApiError
from odradek.ipc import forward, roles
from odradek.ipc.channel import Channel
from odradek.ipc.doorbell import Doorbell
from odradek.ipc.forward import Forwarded
from odradek.ipc.processes import COLUMN
from odradek.protocol import interbroker
from odradek.protocol.errors import CLUSTER_AUTHORIZATION_FAILED, UNKNOWN_SERVER_ERROR
from odradek.security.quotas.mutations import MutationQuota
from odradek.workers.apis import table
from odradek.workers.dispatch import api, dispatch
from odradek.workers.dispatch.api import Api
from odradek.workers.dispatch.authorization import Authorization
from odradek.workers.dispatch.context import Context

if TYPE_CHECKING:
    from odradek.broker.controller.member.member import Member

log = logging.getLogger(__name__)

COLUMN_REQUESTS = COLUMN["requests"]
COLUMN_ZOOKEEPER_LOST = COLUMN["zookeeper_lost_ms"]
TICK_S = 0.001  # while waiting for a lock, an acknowledgement or a controller request
IDLE_S = 1.0
REFUSED_S = 0.1  # before a failed publication is retried
PUBLISH_REST = 4  # minimum pause between publications for work in progress, in multiples of a publication's duration


class Controller:
    """The services of handlers with runs_in="controller"."""

    def __init__(
        self, process: Process, owner: MetadataOwner | Member, publication: SnapshotPublisher, bell: Doorbell
    ) -> None:
        self.process = process
        self.owner = owner
        self.publication = publication
        self.authorization = Authorization(process.config)
        self._bell = bell
        self._row = process.shared.processes.row(roles.CONTROLLER)
        self._after_publish: list[Callable[[], None]] = []
        self._timeouts = Timeouts()
        self._steps = TaskScheduler()
        self._publish_from = 0.0  # earliest time to publish the changes of work still in progress
        self._refused = False  # the last publication
        self._mutations = MutationQuotas(quota_windows.mutation_window(process.config))
        self.listeners = DynamicListeners(process.run_dir, process.config)
        self._outage = ZooKeeperOutage(lambda: owner.connected)
        self._signals = Signals(signal.SIGTERM, signal.SIGINT)
        self._epoll = select.epoll()
        self._channels = RequestChannels(self._epoll, process.run_dir / "controller.sock", self._serve)
        self._channels.open()
        for source in (self._signals, bell):
            self._epoll.register(source.fileno(), select.EPOLLIN)
        self._watched: dict[int, Callable[[int], None]] = {}
        owner.attach(self)

    # -- for handlers

    @property
    def snapshot(self) -> Snapshot:
        """The current metadata, including this turn's changes."""
        return self.owner.snapshot

    @property
    def config(self) -> Any:
        """This broker's static configuration."""
        return self.process.config

    def security_protocol(self, listener: str) -> str:
        """The security protocol of the listener with this name (listener.security.protocol.map)."""
        return self.listeners.config.protocols.get(listener, listener)

    def has_logger(self, name: str) -> bool:
        """See workers.dispatch.administration."""
        return name == alter_loggers.ROOT or logs.exists(name)

    def set_log_levels(self, levels: Mapping[str, str | None]) -> None:
        """See workers.dispatch.administration."""
        from odradek.broker.process import control_bus  # with ZeroMQ, which a controller seldom needs

        try:
            control_bus.request(self.process.run_dir, "supervisor", "log-levels", levels=dict(levels))
        except OdradekError as error:
            raise ApiError(UNKNOWN_SERVER_ERROR, str(error)) from error

    def defaults(self) -> TopicDefaults:
        """num.partitions and default.replication.factor."""
        return TopicDefaults(self.config["num.partitions"], self.config["default.replication.factor"])

    def mutations(self, context: Context) -> MutationQuota:
        """The controller mutation quota of a request."""
        user = context.principal.partition(":")[2]
        return self._mutations.of(self.snapshot, context.api_key, context.version, user, context.client_id or "")

    def begin(self, work: Iterator[None]) -> None:
        """Run `work` in steps, interleaved with other requests."""
        self._steps.begin(work)

    def when_published(self, action: Callable[[], None]) -> None:
        """Call `action` when every process has all changes made so far."""
        self._after_publish.append(partial(_guarded, action))

    def after(self, milliseconds: int, action: Callable[[], None]) -> Cancel:
        """Call `action` after a delay, unless the returned function is called first."""
        return self._timeouts.add(time.monotonic() + milliseconds / 1000, partial(_guarded, action))

    # -- for the owner (broker.interbroker.peers.Poller)

    def watch(self, fd: int, events: int, ready: Callable[[int], None]) -> None:
        """Call `ready(events)` whenever one of `events` occurs; replaces an earlier registration of `fd`."""
        (self._epoll.modify if fd in self._watched else self._epoll.register)(fd, events)
        self._watched[fd] = ready

    def unwatch(self, fd: int) -> None:
        """Unregister `fd` before it is closed."""
        if self._watched.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    # -- the loop

    def run(self) -> None:
        """Run the loop until SIGTERM."""
        self.publish()
        self.owner.begin()
        entry.load_apis()  # not earlier: other processes wait for the metadata; not later: the first request would wait
        while not self._signals.drain():
            for fd, events in self._epoll.poll(self._poll_timeout()):
                self._event(fd, events)
            self._turn()
            self.process.beat()
        self.process.draining()
        self._finish()

    def _finish(self) -> None:
        """Finish what was begun. Workers keep the rest for the next process of this role (open_requests)."""
        self._channels.finish()
        self._turn()
        while self._channels.finishing:
            for fd, events in self._epoll.poll(TICK_S):
                self._event(fd, events)
            self._turn()
        self._channels.end()

    def _poll_timeout(self) -> float:
        if self._steps.waiting:
            return TICK_S if self._steps.idle else 0.0
        if self.owner.waiting or self.publication.waiting or (self.owner.changed and not self._refused):
            return TICK_S
        now = time.monotonic()
        until = min(now + IDLE_S, self.owner.due(), self._timeouts.next() + TICK_S)
        until = min(until, self._publish_from if self._refused else self.listeners.due(now))
        return max(0.0, until - now)

    def _turn(self) -> None:
        self._steps.advance()
        self.owner.tick()
        self._outage.tick()
        self._record_zookeeper()
        self._follow_listeners()
        if self.owner.changed and self._may_publish():
            self.publish()
        if not self._refused:
            actions, self._after_publish = self._after_publish, []
            for action in actions:
                self.publication.when_acked(partial(self.owner.when_acked, action))
        self.publication.check()
        self.listeners.apply(time.monotonic())
        self._timeouts.due(time.monotonic())
        self._channels.flush()

    def _record_zookeeper(self) -> None:
        """Record in the process table since when the connection to ZooKeeper is lost."""
        if self.owner.connected:
            self._row[COLUMN_ZOOKEEPER_LOST] = 0
        elif not self._row[COLUMN_ZOOKEEPER_LOST]:
            self._row[COLUMN_ZOOKEEPER_LOST] = time.time_ns() // 1_000_000

    def _may_publish(self) -> bool:
        """Every process reads each whole snapshot: one request of a thousand changes must not cost each a thousand."""
        is_due = not self._refused and (self._after_publish or not self._steps.waiting)
        return bool(is_due) or time.monotonic() >= self._publish_from

    def publish(self) -> None:
        """Publish the current metadata; slots of deleted partitions are freed once every process has it.

        Without memory or a file descriptor for it, all processes keep the last snapshot, and requests that wait for a
        change keep waiting. Raises OSError if nothing was published yet.
        """
        began = time.monotonic()
        try:
            self._publish()
        except OSError as error:
            if not self.publication.version:
                raise
            self._not_published(error)
            return
        self._refused = False
        now = time.monotonic()
        self._publish_from = now + PUBLISH_REST * (now - began)

    def _publish(self) -> None:
        self._follow_listeners()
        if self.owner.publish_security(self.process.shared.security):
            self.authorization.adopt(self.owner.security.metadata)
        self.owner.version = self.publication.publish(lambda version: self._snapshot(version).encode())
        freed, self.owner.to_free = self.owner.to_free, []
        self.owner.changed = False
        if freed:
            self.publication.when_acked(lambda: self._free(freed))
        self.publication.when_acked(partial(self.listeners.acked, self.listeners.number))

    def _follow_listeners(self) -> None:
        own = self.owner.own_configs
        if own is not None and self.listeners.follow(own, time.monotonic()):
            self.owner.change_listeners(self.listeners.config)
            self.owner.changed = True

    def _not_published(self, error: OSError) -> None:
        if not self._refused:
            log.error("cannot publish the metadata, retrying: %s", error)
        self._refused, self.owner.changed = True, True
        self._publish_from = time.monotonic() + REFUSED_S

    def _snapshot(self, version: int) -> Snapshot:
        return self.owner.snapshot_at(version)

    def _free(self, freed: list[int]) -> None:
        self.owner.to_free.extend(slot for slot in freed if not self.owner.slot_allocator.free(slot))

    # -- events

    def _event(self, fd: int, events: int) -> None:
        if self._channels.owns(fd):
            self._channels.event(fd, events)
        elif fd == self._bell.fileno():
            self._bell.drain()
            self.owner.on_wakeup()
        elif fd in self._watched:
            self._watched[fd](events)

    def _serve(self, link: Channel, request: Forwarded) -> None:
        answer = partial(self._channels.answer, link, request)

        def begin(serve: Callable[[], None]) -> None:
            self._channels.begin(link, request)
            serve()

        self._row[COLUMN_REQUESTS] += 1
        if request.api_key < 0:
            begin(partial(self._serve_internal, request, answer))
            return
        row = table.row(request.api_key)
        if row is None or row.runs_in != api.CONTROLLER or not row.serves(request.version):
            log.error("API %d v%d is not the controller's", request.api_key, request.version)
            answer(forward.FAILED, b"")
            return
        if row.between_brokers:
            begin(partial(self._serve_broker, row, request, answer))
            return
        # What waits for ZooKeeper is not begun: the next process of this role can have it.
        self._outage.submit(request.api_key, partial(begin, partial(self._serve_client, row, request, answer)))

    def _serve_client(self, row: Api, request: Forwarded, answer: dispatch.Answer) -> None:
        """Serve a request that any client may send. A large one is read and answered in steps."""
        if len(request.body) < api.LARGE:
            dispatch.serve(row, self, request, answer, self.begin)
        else:
            self._steps.add(dispatch.serving(row, self, request, answer, self.begin))

    def _serve_broker(self, row: Api, request: Forwarded, answer: dispatch.Answer) -> None:
        """Serve a request that only a broker may send."""

        def serve(admitted: bool) -> None:
            if admitted:
                dispatch.serve(row, self, request, answer)
            else:
                answer(forward.OK, interbroker.refusal(row.name, request.version, CLUSTER_AUTHORIZATION_FAILED))

        if self.authorization.knows(request.principal):  # dispatch checks its ClusterAction
            serve(True)
            return
        self.owner.admit(request.listener, request.client_host, len(request.body), serve)

    def _serve_internal(self, request: Forwarded, answer: Callable[[int, bytes], None]) -> None:
        def reply(body: dict[str, Any]) -> None:
            answer(forward.OK, internal.encode(body))

        def serve() -> Iterator[None]:
            try:
                work = internal_requests.HANDLERS[request.api_key](self, internal.decode(request.body), reply)
                if work is not None:
                    yield from work
            except Exception:
                log.exception("internal request %d failed", request.api_key)
                answer(forward.FAILED, b"")

        self.begin(serve())

    def close(self) -> None:
        """Close everything; the owner decides whether to end its ZooKeeper session."""
        self._channels.close()
        self._bell.close()
        self.owner.close()


def _guarded(action: Callable[[], None]) -> None:
    """An exception in one response costs only that response."""
    try:
        action()
    except Exception:
        log.exception("unexpected error in a delayed response")
