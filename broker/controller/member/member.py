"""This broker as a member of a cluster on ZooKeeper: the tasks of its controller process besides serving requests.

    start     recover local logs → register in ZooKeeper → run for controller (broker.controller.elected.candidate)
    requests  LeaderAndIsr, StopReplica, UpdateMetadata of the elected controller
              (broker.controller.replicas.controller_requests)
    ISRs      of the partitions that this broker leads (broker.controller.member.isr_keeper)
    configs   read from the tree, again after each change (broker.controller.member.dynamic_configs)
    security  ACLs, read and published in the same way (broker.controller.security)
    stop      move leadership to other brokers, then leave (broker.controller.member.controlled_shutdown)

Crash rule: when the broker registers again, the controller sends it the full state, and the broker carries it out
again. If only this process ends, for any reason, the next one takes over its ZooKeeper session and its slots.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any

from odradek.broker.config import BrokerConfig
from odradek.broker.controller.elected.candidate import Candidate
from odradek.broker.controller.elected.elected import Elected
from odradek.broker.controller.member import registration
from odradek.broker.controller.member.admin import Administration
from odradek.broker.controller.member.broker_addresses import BrokerAddresses
from odradek.broker.controller.member.controlled_shutdown import ControlledShutdown
from odradek.broker.controller.member.isr_keeper import IsrKeeper
from odradek.broker.controller.member.log_dir_events import LogDirEvents
from odradek.broker.controller.replicas.controller_requests import ControllerRequests
from odradek.broker.controller.replicas.replica_manager import ReplicaManager
from odradek.broker.interbroker import zookeeper_session
from odradek.broker.interbroker.link_security import link_security
from odradek.broker.interbroker.peers import PeerPool, Poller
from odradek.broker.process import sd_notify
from odradek.broker.process.process import Process
from odradek.broker.process.steps import WAITS
from odradek.cluster.metadata.view import View, raw_broker
from odradek.cluster.state import ClusterState
from odradek.cluster.tree import znodes
from odradek.cluster.tree.tree import CONNECTED, DISCONNECTED, Event, NodeExists, NoNode, TreeError, TreeUnavailable
from odradek.cluster.tree.znodes import MalformedNode
from odradek.cluster.tree.zookeeper import ZooKeeperTree
from odradek.ipc import roles
from odradek.security.sasl.delegation_tokens import CHANGES_PATH

log = logging.getLogger(__name__)

_AGAIN_S = 0.25
_UNTOLD_S = 5.0  # as long as an election may take after the loss of a broker; then it serves anyway


class Member(Administration):
    """The controller process's metadata owner in a cluster; controller.metadata_owner is the standalone one."""

    def __init__(
        self, process: Process, tree: ZooKeeperTree, store: ClusterState, view: View, replicas: ReplicaManager,
        registration: bytes, successor: bool,
    ) -> None:  # fmt: skip
        """`registration`: data of its node; `successor`: this process follows one that died, in the same broker."""
        super().__init__(process.config, tree, store, view)
        self.changed = True
        self.slot_allocator = replicas.slot_allocator
        self._process = process
        self._replicas = replicas
        self._registration = registration
        self._registered = False
        self._outdated = False  # the registration has former endpoints
        self._successor = successor
        self._session = 0
        self._connected = False
        self._retry_at = 0.0
        self._serves_by = math.inf
        self.controller_requests = ControllerRequests(view, replicas, self._view_changed, self._verify_epoch)
        self._failed_dirs = LogDirEvents(process.shared, tree, view.broker, successor)
        self._isr = IsrKeeper(view, replicas, tree, process.config["replica.lag.time.max.ms"], self._view_changed)
        self._link_security = link_security(process.config)
        self._peer_pool: PeerPool
        self._admission: BrokerAddresses
        self._candidate: Candidate
        self._controlled_shutdown: ControlledShutdown

    # -- for the controller's loop

    def attach(self, poller: Poller) -> None:
        """Register this member's event poller with the loop."""
        timeout_ms = self.config["controller.socket.timeout.ms"]
        self._follow_link_security()
        self._peer_pool = PeerPool(poller, timeout_ms, self._link_security)
        self._admission = BrokerAddresses(self.config, self._view, self._tree, poller, self._set_changed)
        self._candidate = Candidate(
            self.config, self._tree, self.controller_requests, self._peer_pool, self._topic_setting, self._guarded,
            self._count_unclean,
        )  # fmt: skip
        self._controlled_shutdown = ControlledShutdown(self._process, self._candidate, self.controller_requests)
        poller.watch(self._tree.fileno(), 1, lambda _: self._tree_events())

    def _count_unclean(self) -> None:
        self._process.shared.processes.add(roles.CONTROLLER, "unclean_elections")

    def begin(self) -> None:
        """The loop runs; other processes rely on this one once the broker is registered.

        Before that its logs are recovered, by processes that a service manager starts when this one is ready.
        """
        sd_notify.notify("READY=1\nSTATUS=joining the cluster")

    @property
    def to_free(self) -> list[int]:
        """Slots of deleted replicas, free once no process refers to them."""
        return self._replicas.to_free

    @to_free.setter
    def to_free(self, slots: list[int]) -> None:
        self._replicas.to_free = slots

    @property
    def connected(self) -> bool:
        """Whether ZooKeeper is connected."""
        return self._connected

    @property
    def elected(self) -> Elected | None:
        """This broker's controller term, None while it is not the controller."""
        return self._candidate.elected

    @property
    def waiting(self) -> bool:
        """Whether `tick` has something to retry in a millisecond."""
        elected_waits = self.elected is not None and self.elected.waiting
        return self.controller_requests.waiting or self._replicas.unsettled or self._isr.waiting or elected_waits

    def when_acked(self, action: Callable[[], None]) -> None:
        """Call `action` when other brokers know the decisions so far, if this broker is controller; else at once."""
        if self.elected is None:
            action()
        else:
            self.elected.broker_requests.when_acked(action)

    def due(self) -> float:
        """When `tick` next has work (monotonic seconds)."""
        times = [self._candidate.due(), self._controlled_shutdown.due(), self._serving_due(), self._admission.due()]
        if self._connected:  # else `tick` leaves these alone, and the loop would not sleep
            behind = (
                not self._registered
                or self._outdated
                or self._candidate.undecided
                or self._configs.waiting
                or self.users.waiting
                or self.security.waiting
                or self.controller_requests.unverified
            )
            times += [self._isr.due(), *([self._retry_at] if behind else [])]
        if self._connected and self.elected is not None:
            times.append(self.users.due())
        return min(times)

    def on_wakeup(self) -> None:
        """The doorbell: a follower has caught up, a log is recovered, or the broker stops."""
        self._isr.request_check()
        self._leave_if_draining()

    def tick(self) -> None:
        """Run what is due."""
        now = time.monotonic()
        if now >= self._serving_due():
            self._serve()
        self.controller_requests.tick()
        self._replicas.settle()
        self.changed |= self._replicas.retry(now)
        self._admission.tick(now, self._connected)
        if self._link_security is not None:
            self._link_security.poll()
        if self._connected:
            self._isr.tick(now)
            if self.elected is not None:
                self.users.sweep(time.time_ns() // 1_000_000)
            if self._registered:
                self._guarded(self._failed_dirs.announce)
            if now >= self._retry_at:
                self._retry_at = now + _AGAIN_S
                self._guarded(self._catch_up)
        self._guarded(lambda: self._candidate.tick(now))  # first: a new controller loads its state before it is asked
        self._controlled_shutdown.tick(now)

    def _requests_done(self) -> Iterator[None]:
        """See Administration."""
        left = [True]
        self.controller_requests.when_done(left.clear)
        while left:
            yield WAITS

    def _guarded(self, action: Callable[[], Any]) -> None:
        """Run `action`; if ZooKeeper is unavailable or has malformed nodes, retry all on reconnection, or soon."""
        try:
            action()
        except (TreeError, MalformedNode) as error:
            log.warning("%r", error)
            self._retry_at = time.monotonic() + _AGAIN_S

    def close(self) -> None:
        """Resign as controller; if the whole broker stops, end the session, and with it the registration.

        Otherwise the next process of this broker takes over the session; only the connection ends with this process.
        """
        self._guarded(self._candidate.release)
        self._candidate.close()
        self._peer_pool.close()
        self._admission.close()
        if self._process.shared.draining:
            self._tree.close()
            zookeeper_session.forget_session(self._process.run_dir)

    @property
    def own_configs(self) -> dict[str, str] | None:
        """The dynamic configs of this broker; None: they are not known yet."""
        return self._view.dynamic.get(str(self._view.broker), {}) if self._configs.known else None

    def change_listeners(self, config: BrokerConfig) -> None:
        """Publish the listeners of `config`, and register them, at once or when ZooKeeper can be reached again."""
        self._registration = registration.encoded(config)
        self._view.protocols = config.protocols
        own = raw_broker(self._view.broker, znodes.decode_broker(self._registration))
        self._view.set_brokers([*self._view.brokers.values(), own])
        self._outdated = self._registered
        self._guarded(self._change_registration)

    def _change_registration(self) -> None:
        """Change the node of this session; a new session creates it with the endpoints in force."""
        if not (self._outdated and self._registered and self._connected):
            return
        path = f"{znodes.BROKER_IDS}/{self._view.broker}"
        data, stat = self._tree.get(path)
        if znodes.decode_broker(data) != znodes.decode_broker(self._registration):
            self._tree.set(path, self._registration, stat.version)
        self._outdated = False

    def admit(self, listener: str, host: str, size: int, then: Callable[[bool], None]) -> None:
        """Call `then` with whether a connection to `listener` from `host` is another broker's; see BrokerAddresses."""
        self._admission.admit(listener, host, size, then)

    def look_for_brokers(self) -> None:
        """An unknown address may be a broker's by now."""
        self._admission.refresh()

    def _follow_link_security(self) -> None:
        if self._link_security is not None:
            self._link_security.follow(self.snapshot)

    def check_link(self, settings: Mapping[str, str]) -> None:
        """See Administration."""
        if self._link_security is not None:
            self._link_security.check_change(settings)

    def _set_changed(self) -> None:
        self.changed = True

    def _view_changed(self) -> None:
        self.changed = True
        self._admission.brokers_changed()
        if self._configs.follow():
            self._retry_at = 0.0

    def _configs_changed(self, topics: Collection[str]) -> None:
        self.changed = True
        self._follow_link_security()
        self._replicas.configs_changed(topics)
        if self.elected is not None:
            self.elected.configs_changed(topics)

    # -- ZooKeeper

    def _tree_events(self) -> None:
        for event in self._tree.poll():
            self._guarded(partial(self._tree_event, event))

    def _tree_event(self, event: Event) -> None:
        if self.security.event(event.path):
            self._retry_at = 0.0
        if event.kind == DISCONNECTED:
            log.warning("lost the connection to ZooKeeper")
            self._connected = False
        elif event.kind == CONNECTED:
            self._connect()
        elif event.path == znodes.CONTROLLER:
            if self._registered:
                self._candidate.run()
        elif event.path in (znodes.CONFIG_CHANGES, CHANGES_PATH):
            if event.path == znodes.CONFIG_CHANGES:
                self._configs.stale()
            self.users.event(event.path)
            self._retry_at = 0.0
        elif self.elected is not None:
            self.elected.event(event)

    def _connect(self) -> None:
        """ZooKeeper is connected, perhaps with another session; all watches must be set again."""
        self._connected, self._retry_at = True, 0.0
        self._configs.stale()
        self.users.stale()
        self.security.stale()
        if self._tree.session != self._session:
            self._begin_session()
        self._candidate.reconnected()

    def _begin_session(self) -> None:
        if self._session:
            log.warning("ZooKeeper session expired: registering again")
        self._session, self._registered = self._tree.session, False
        self._candidate.resign()
        credentials = self._tree.credentials
        if credentials is not None:
            zookeeper_session.save_session(self._process.run_dir, credentials)

    def _catch_up(self) -> None:
        """Do what is still outstanding: registration, election, configs."""
        if not self._registered and not self._replicas.recovering:
            self._register()
        self._change_registration()
        self.controller_requests.verify()
        if self._registered and self._candidate.undecided:
            self._candidate.run()
        if self._configs.waiting:
            self._configs.read()
        if self.users.waiting:
            self.users.read()
        if self.security.waiting:
            self.security.read()

    def _verify_epoch(self, epoch: int) -> bool | None:
        """Whether that controller epoch is current; None while ZooKeeper is unavailable.

        Requests of a superseded controller are outdated, and a new process does not know the later epoch.
        """
        if not self._connected:
            return None
        try:
            return int(self._tree.latest(znodes.CONTROLLER_EPOCH)[0]) == epoch
        except (NoNode, ValueError):
            return False
        except TreeUnavailable as error:
            log.warning("cannot look up controller epoch %d: %s", epoch, error)
            return None

    def _register(self) -> None:
        path = f"{znodes.BROKER_IDS}/{self._view.broker}"
        if not self._process.shared.draining:
            self._create(path)
        stat = self._tree.exists(path)
        if stat is None or stat.owner != self._tree.session:
            self._not_registered()
            return
        self.controller_requests.broker_epoch = stat.czxid
        self._registered = True
        self._serves_by = time.monotonic() + _UNTOLD_S
        log.info("registered as broker %d, epoch %d", self._view.broker, stat.czxid)
        self._leave_if_draining()

    def _serving_due(self) -> float:
        """When this broker counts as serving: once the controller's state is published, or at the latest without it.

        Until then Metadata names no controller, and an admin client of librdkafka that gets this response does not ask
        again before its request times out.
        """
        has_controller = self._view.controller_id in self._view.brokers
        return 0.0 if has_controller and self._serves_by < math.inf else self._serves_by

    def _serve(self) -> None:
        self._serves_by = math.inf
        if not self._process.shared.draining:
            self._process.running()

    def _create(self, path: str) -> None:
        try:
            self._tree.create(path, self._registration, ephemeral=True)
            self._outdated = False
        except NodeExists:  # a former process's, if it is of our session; its endpoints may be former ones
            self._outdated = True

    def _leave_if_draining(self) -> None:
        """If the broker stops, start the shutdown; a successor first finds its predecessor's registration."""
        if self._process.shared.draining and (self._registered or not self._successor):
            self._controlled_shutdown.begin()

    def _not_registered(self) -> None:
        if self._process.shared.draining:
            self._controlled_shutdown.begin()
        else:
            log.warning("broker.id %d is registered by another broker: waiting", self._view.broker)
