"""This broker as a member of a cluster on ZooKeeper: what its controller process does beside serving requests.

    start     recover the logs that are here → register in ZooKeeper → run for controller
    orders    from the elected controller, by LeaderAndIsr, StopReplica and UpdateMetadata (broker.orders)
    ISRs      of what this broker leads (broker.isr)
    configs   read from the tree, again when it says that they changed
    elected   decide for the whole cluster (broker.elected)

Order at a crash: what the tree says is carried out again when the broker registers anew, since then the controller
tells it everything. If only this process dies, the next one goes on with its session with ZooKeeper and with its slots.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from odradek.broker import joining, listeners
from odradek.broker.elected import Elected
from odradek.broker.errors import BootError
from odradek.broker.isr import IsrKeeper
from odradek.broker.office import NOBODY, Office
from odradek.broker.orders import Orders
from odradek.broker.partition_dirs import PartitionDirs
from odradek.broker.peers import REFUSED, Peer, Sources
from odradek.broker.process import Process
from odradek.broker.replicas import Replicas
from odradek.broker.slotbook import SlotBook
from odradek.cluster import admin, configdef, znodes
from odradek.cluster.errors import KAFKA_STORAGE_ERROR, NOT_CONTROLLER, ApiError
from odradek.cluster.planning import TopicPlan
from odradek.cluster.snapshot import Snapshot
from odradek.cluster.state import ClusterState
from odradek.cluster.tree import CONNECTED, DISCONNECTED, Event, NodeExists, Tree, TreeError, TreeUnavailable
from odradek.cluster.view import NO_ID, NO_LEADER, Told, View, raw_broker
from odradek.cluster.znodes import PartitionState, TopicNode
from odradek.ipc.locks import PartitionLocks

log = logging.getLogger(__name__)

T = TypeVar("T")
TICK_S = 0.001
_AGAIN_S = 0.25
_MIN_ISR = "min.insync.replicas"


class Member:
    """The controller process's owner of metadata in a cluster; see broker.metadata_owner for the one alone."""

    def __init__(
        self, me: Process, tree: Tree, store: ClusterState, view: View, replicas: Replicas, registration: bytes
    ) -> None:
        self.config = me.config
        self.changed = True
        self.version = 0
        self.book = replicas.book
        self.store = store
        self._me = me
        self._tree = tree
        self._view = view
        self._replicas = replicas
        self._registration = registration
        self._registered = False
        self._session = 0
        self._connected = False
        self._again_at = 0.0
        self._known_topics: set[str] = set()
        self._unread: set[str] = set()  # topics whose configs are to be read
        self._read_configs = True
        self.orders = Orders(view, replicas, self._view_changed)
        self.isr = IsrKeeper(view, replicas, tree, me.config["replica.lag.time.max.ms"], self._view_changed)
        self._office = Office(tree, view.broker)
        self.elected: Elected | None = None
        self._watched: Peer | None = None  # the controller's broker, to know at once when it is gone
        self._sources: Sources

    # -- for the controller's loop

    def attach(self, sources: Sources) -> None:
        """Have the loop watch what this waits for."""
        self._sources = sources
        fd = self._tree.fileno()
        if fd is not None:
            sources.watch(fd, 1, lambda _: self._tree_events())

    @property
    def to_free(self) -> list[int]:
        """Slots of deleted replicas, free once nobody refers to them."""
        return self._replicas.to_free

    @to_free.setter
    def to_free(self, slots: list[int]) -> None:
        self._replicas.to_free = slots

    @property
    def waiting(self) -> bool:
        """Whether `tick` has something to try again in a millisecond."""
        busy = self.orders.waiting or self._replicas.unsettled or self.isr.waiting
        return busy or (self.elected is not None and self.elected.waiting)

    def due(self) -> float:
        """When `tick` has something to do (monotonic seconds)."""
        times = [self.isr.due()]
        if not (self._registered and self._office.holder != NOBODY) or self._unread or self._read_configs:
            times.append(self._again_at)
        if self._watched is not None and self._watched.next_try is not None:
            times.append(self._watched.next_try)
        if self.elected is not None:
            times.append(self.elected.due())
        return min(times)

    def rung(self) -> None:
        """The doorbell: a follower has caught up, or a log is recovered."""
        self.isr.rung()

    def tick(self) -> None:
        """Whatever is due."""
        now = time.monotonic()
        self.orders.tick()
        self._replicas.settle()
        if self._connected:
            self.isr.tick(now)
            if now >= self._again_at:
                self._again_at = now + _AGAIN_S
                self._guarded(self._catch_up)
        if self._watched is not None:
            self._watched.tick(now)
        if self.elected is not None:
            self._guarded(lambda: self.elected.tick(now) if self.elected else None)

    def _guarded(self, action: Callable[[], Any]) -> None:
        """ZooKeeper may be away: everything is tried again when there is a connection, or soon."""
        try:
            action()
        except TreeUnavailable as error:
            log.warning("%s", error)
            self._again_at = time.monotonic() + _AGAIN_S

    def snapshot_at(self, version: int) -> Snapshot:
        """The metadata as it is now, to be published as `version`."""
        return self._view.snapshot(version, self.config)

    @property
    def snapshot(self) -> Snapshot:
        """The metadata as it is now, published or not."""
        return self.snapshot_at(self.version)

    @property
    def topics(self) -> dict[str, dict[str, Any]]:
        """Topics by name, as in snapshots."""
        return self._view.topics

    def close(self) -> None:
        """Leave the cluster: the session ends, and with it the registration and the office."""
        if self._watched is not None:
            self._watched.close()
        if self.elected is not None:
            self.elected.close()
        self._tree.close()
        joining.forget_session(self._me.run_dir)

    def _view_changed(self) -> None:
        self.changed = True
        new = {name for name in self._view.topics if name not in self._known_topics}
        if new:
            self._known_topics |= new
            self._unread |= new
            self._again_at = 0.0
        self._known_topics &= self._view.topics.keys()

    # -- ZooKeeper

    def _tree_events(self) -> None:
        for event in self._tree.poll():
            self._guarded(lambda event=event: self._tree_event(event))  # type: ignore[misc]

    def _tree_event(self, event: Event) -> None:
        if event.kind == DISCONNECTED:
            log.warning("the connection to ZooKeeper is lost")
            self._connected = False
        elif event.kind == CONNECTED:
            self._connect()
        elif event.path == znodes.CONTROLLER:
            self._run_for_office()
        elif event.path == znodes.CONFIG_CHANGES:
            self._read_configs, self._again_at = True, 0.0
        elif self.elected is not None:
            self.elected.event(event)

    def _connect(self) -> None:
        """There is a connection, perhaps of another session; all watches are to be set anew."""
        self._connected = True
        self._again_at = 0.0
        self._read_configs = True
        if self._tree.session != self._session:
            if self._session:
                log.warning("the session with ZooKeeper has expired: registering anew")
            self._session, self._registered = self._tree.session, False
            credentials = getattr(self._tree, "credentials", None)
            if credentials is not None:
                joining.save_session(self._me.run_dir, credentials)
            self._resign()
        self._office.holder = NOBODY if not self._office.ours else self._office.holder
        if self.elected is not None:
            self.elected.reconnected()

    def _catch_up(self) -> None:
        """What could not be done yet: registration, election, configs."""
        if not self._registered and not self._replicas.recovering:
            self._register()
        if self._registered and self._office.holder == NOBODY:
            self._run_for_office()
        if self._read_configs:
            self._load_configs()
        if self._unread:
            self._load_topic_configs()

    def _register(self) -> None:
        path = f"{znodes.BROKER_IDS}/{self._view.broker}"
        try:
            self._tree.create(path, self._registration, ephemeral=True)
        except NodeExists:
            stat = self._tree.exists(path)
            if stat is None or stat.owner != self._tree.session:
                log.warning("broker %d is registered by somebody else: waiting", self._view.broker)
                return
        stat = self._tree.exists(path)
        if stat is not None and stat.owner == self._tree.session:
            self.orders.broker_epoch = stat.czxid
            self._registered = True
            log.info("registered as broker %d, epoch %d", self._view.broker, stat.czxid)

    # -- the office

    def _run_for_office(self) -> None:
        if not self._registered:
            return
        taken = self._office.run()
        if not self._office.ours:
            self._resign()
            self._watch_holder()
        elif taken:
            self._take_office()

    def _take_office(self) -> None:
        self._watch(None)
        if self.elected is not None:
            self.elected.close()
        self.elected = Elected(
            self.config, self._tree, self._office, self.orders, self._sources, self._topic_setting, self._deposed
        )

    def _topic_setting(self, topic: str, name: str) -> Any:
        overrides = self._view.topics[topic]["config"] if topic in self._view.topics else {}
        return configdef.resolve_one(name, overrides, self.snapshot.dynamic_layers(self._view.broker), self.config)

    def _deposed(self) -> None:
        """A write of ours was refused: another controller was elected."""
        self._resign()
        self._again_at = 0.0

    def _resign(self) -> None:
        if self.elected is not None:
            self.elected.close()
            self.elected = None
        if self._office.ours:
            self._office.resign()

    def _watch_holder(self) -> None:
        """Keep a connection to the controller's broker, which the kernel closes when that dies."""
        holder = self._office.holder
        if self._watched is not None and self._watched.broker == holder:
            return
        data = self._tree.find(f"{znodes.BROKER_IDS}/{holder}")
        if data is None:
            self._watch(None)
            return
        address = znodes.decode_broker(data).endpoints[joining.between_brokers(self.config)]
        self._watch(Peer(holder, address, self._sources, self._holder_changed))

    def _watch(self, peer: Peer | None) -> None:
        if self._watched is not None:
            self._watched.close()
        self._watched = peer

    def _holder_changed(self, broker: int, standing: str) -> None:
        if standing == REFUSED and broker == self._office.holder and self._connected:
            self._guarded(self._depose)

    def _depose(self) -> None:
        self._watch(None)
        self._office.challenge()
        self._run_for_office()

    # -- configs

    def _load_configs(self) -> None:
        """All configs, with a watch on the node that tells of changes."""
        self._tree.children(znodes.CONFIG_CHANGES, watch=True)
        before = self.broker_setting(_MIN_ISR)
        names = self._tree.children(znodes.BROKER_CONFIGS)
        found = self._tree.get_many([f"{znodes.BROKER_CONFIGS}/{name}" for name in names])
        self._view.dynamic = {
            "" if name == znodes.CLUSTER_WIDE else name: znodes.decode_config(node[0] if node else None)
            for name, node in zip(names, found, strict=True)
        }
        self._read_configs = False
        self._unread |= set(self._view.topics)
        self.changed = True
        if self.broker_setting(_MIN_ISR) != before:
            self._replicas.configs_changed(self._view.topics)

    def _load_topic_configs(self) -> None:
        names = sorted(self._unread & self._view.topics.keys())
        found = self._tree.get_many([f"{znodes.TOPIC_CONFIGS}/{name}" for name in names])
        self._unread.clear()
        for name, node in zip(names, found, strict=True):
            configs = znodes.decode_config(node[0] if node else None)
            if configs != self._view.topics[name]["config"]:
                self._view.topics[name]["config"] = configs
                self.changed = True
        self._replicas.configs_changed(names)

    # -- for the handlers of requests

    def _stored(self, write: Callable[[], T]) -> T:
        try:
            return write()
        except TreeError as error:
            log.error("metadata: %r", error)
            raise ApiError(KAFKA_STORAGE_ERROR, f"ZooKeeper cannot be written: {error!r}") from error

    def check_office(self) -> None:
        """ApiError NOT_CONTROLLER unless this broker is the elected controller."""
        if self.elected is None:
            raise ApiError(NOT_CONTROLLER, "This is not the correct controller for this cluster.")

    def create_topic(self, plan: TopicPlan) -> bytes:
        """Make a topic; its id. The elected controller, which may be this broker, gives it leaders."""
        topic_id = self._stored(lambda: admin.create_topic(self._tree, plan))
        self._seen_to()
        return topic_id

    def add_partitions(self, name: str, replicas: dict[int, list[int]]) -> None:
        """Add planned partitions to a topic."""
        self._stored(lambda: admin.add_partitions(self._tree, name, replicas))
        self._seen_to()

    def _seen_to(self) -> None:
        """If this broker is the controller, at once; else its watch is as quick as may be."""
        if self.elected is not None:
            self._guarded(self.elected.topics_changed)

    def delete_topic(self, name: str, done: Callable[[ApiError | None], None]) -> None:
        """Delete a topic; `done` when it is gone."""
        self.check_office()
        assert self.elected is not None
        self._stored(lambda: admin.delete_topic(self._tree, name))
        self.elected.deletions.when_gone(name, done)
        self._guarded(self.elected.deletions.changed)

    def set_topic_config(self, name: str, configs: dict[str, str]) -> None:
        """Replace a topic's overrides (already validated)."""
        self._stored(lambda: admin.set_topic_config(self._tree, name, configs))
        self._unread.add(name)
        self._guarded(self._load_topic_configs)

    def set_broker_config(self, broker: int | None, configs: dict[str, str]) -> None:
        """Replace dynamic broker configs (already validated)."""
        self._stored(lambda: admin.set_broker_config(self._tree, broker, configs))
        self._guarded(self._load_configs)

    def broker_setting(self, name: str) -> Any:
        """A broker config in force on this broker."""
        return self.snapshot.broker_config(name, self._view.broker)

    def producer_ids(self) -> tuple[int, int]:
        """(first, count) of a block of producer ids. ApiError KAFKA_STORAGE_ERROR."""
        return self._stored(lambda: admin.producer_ids(self._tree, self._view.broker))

    def commit_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        """Where ZooKeeper-based consumers look for it."""
        self.store.commit_offset(group, topic, partition, offset)

    def committed_offset(self, group: str, topic: str, partition: int) -> int | None:
        """Where ZooKeeper-based consumers wrote it."""
        return self.store.committed_offset(group, topic, partition)


def open_member(me: Process, former: Snapshot | None) -> Member:
    """Join the cluster: read what it says of this broker's replicas, give them slots. Raises BootError.

    `former`: what a controller process before this one has published into this broker's memory, whose session and
    slots are gone on with.
    """
    tree = joining.open_tree(me.config, joining.former_session(me.run_dir) if former else None)
    try:
        return _open_member(me, tree, former)
    except TreeError as error:
        tree.close()
        raise BootError(f"ZooKeeper at {me.config['zookeeper.connect']}: {error!r}") from None


def _open_member(me: Process, tree: Tree, former: Snapshot | None) -> Member:
    broker = me.config["broker.id"]
    store = ClusterState(tree, broker)
    view = View(broker, store.prepare(None))
    start = store.count_start()
    _load(tree, view)
    dirs = PartitionDirs(me.config.log_dirs, me.shared.failed_dirs)
    book = SlotBook(me.shared, PartitionLocks(Path(me.run_dir) / "partition.lock"), start)
    replicas = Replicas(view, dirs, book, me.shared, me.run_dir, me.config)
    replicas.open(former)
    endpoints = {endpoint.name: (endpoint.host, endpoint.port) for endpoint in me.config.advertised}
    known = listeners.parse_protocol_map(me.config["listener.security.protocol.map"])
    protocols = {name: known.get(name, name) for name in endpoints}
    now_ms = time.time_ns() // 1_000_000
    registration = znodes.encode_broker(endpoints, protocols, me.config["broker.rack"], now_ms)
    return Member(me, tree, store, view, replicas, registration)


def _load(tree: Tree, view: View) -> None:
    """Topics, configs, partitions and brokers as the tree has them: good enough until the controller tells."""
    names = tree.children(znodes.TOPICS)
    nodes = tree.get_many([znodes.topic_path(name) for name in names])
    configs = tree.get_many([f"{znodes.TOPIC_CONFIGS}/{name}" for name in names])
    for name, node, config in zip(names, nodes, configs, strict=True):
        if node is not None:
            _load_topic(tree, view, name, znodes.decode_topic(node[0]))
            if name in view.topics:
                view.topics[name]["config"] = znodes.decode_config(config[0] if config else None)
    ids = tree.children(znodes.BROKER_IDS)
    found = zip(ids, tree.get_many([f"{znodes.BROKER_IDS}/{number}" for number in ids]), strict=True)
    brokers = {int(number): znodes.decode_broker(node[0]) for number, node in found if node is not None}
    view.set_brokers(raw_broker(number, node) for number, node in brokers.items())


def _load_topic(tree: Tree, view: View, name: str, topic: TopicNode) -> None:
    indexes = sorted(topic.replicas)
    states = tree.get_many([znodes.state_path(name, index) for index in indexes])
    for index, found in zip(indexes, states, strict=True):
        state = znodes.decode_state(found[0]) if found else PartitionState(NO_LEADER, -1, [], 0)
        view.tell(
            Told(
                name, topic.id or NO_ID, index, state.controller_epoch, state.leader, state.leader_epoch, state.isr,
                found[1].version if found else -1, topic.replicas[index],
            )
        )  # fmt: skip
