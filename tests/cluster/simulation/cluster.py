"""The simulated cluster: brokers, ZooKeeper, the network, and the operations of tools and producers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek.cluster import admin_writes
from odradek.cluster.decisions.planning import TopicPlan
from odradek.cluster.tree import znodes
from odradek.cluster.tree.tree import Create, NodeExists, Operation, Set, TreeError, parent
from odradek.ipc import slots
from odradek.protocol import errors

from .broker import Broker
from .invariants import Invariants
from .network import UP, Network
from .seams import Codec
from .serving import Batch
from .session import Session
from .sockets import Sockets
from .tree import ZooKeeper
from .world import Process, World

CONFIG: dict[str, Any] = {
    "replica.lag.time.max.ms": 1500, "zookeeper.session.timeout.ms": 2000, "replica.fetch.wait.max.ms": 400,
    "replica.fetch.backoff.ms": 200, "controlled.shutdown.retry.backoff.ms": 500, "min.insync.replicas": 1,
    "leader.imbalance.check.interval.seconds": 8, "replica.socket.timeout.ms": 3000,
    "controller.socket.timeout.ms": 2500,
}  # fmt: skip

NONSENSE = b"{"


class Cluster:
    """The whole cluster."""

    def __init__(self, world: World, brokers: int, unclean: bool = False, busy: float = 0.05, **config: Any) -> None:
        self.world = world
        self.busy = busy
        self.aside = 0.0  # how many truncations are not carried out in the replicators' loops
        self.config = CONFIG | {"unclean.leader.election.enable": unclean} | config
        self.codec = Codec()
        self.network = Network(world)
        self.sockets = Sockets(self.network)
        self.zookeeper = ZooKeeper(world)
        self.invariants = Invariants(self, unclean)
        self.zookeeper.written = self._written
        self.cut_off: set[int] = set()  # brokers that do not reach ZooKeeper
        self.brokers = {number: Broker(self, number) for number in range(1, brokers + 1)}
        self.made = 0
        self.sense: dict[str, bytes] = {}  # what nodes of topics have said last that made sense
        self._topic_configs: dict[str, dict[str, str]] = {}
        self._values = 0
        self.counts = {"acks=1": 0, "acks=all": 0, "acknowledged": 0, "refused": 0}
        world.checks.append(self.invariants.check)

    # -- ZooKeeper

    def _note(self, operation: Create | Set) -> None:
        if parent(operation.path) == znodes.TOPICS and operation.data != NONSENSE:
            self.sense[operation.path] = operation.data

    def _written(self, session: Any, operation: Operation, before: bytes | None) -> None:
        if isinstance(operation, (Create, Set)):
            self._note(operation)
        self.invariants.written(session, operation, before)

    def spoilt(self) -> list[str]:
        """Invalid nodes of topics."""
        paths = map(znodes.topic_path, self.topics)
        return [path for path in paths if self.zookeeper.nodes[path].data == NONSENSE]

    def placed(self, session: Session) -> None:
        """A session was created: it has the same connectivity as the broker's last one."""
        session.cut = session.broker in self.cut_off

    def cut_from_zookeeper(self, broker: int, cut: bool) -> None:
        """The broker cannot reach ZooKeeper, or can again."""
        (self.cut_off.add if cut else self.cut_off.discard)(broker)
        session = self.brokers[broker].session
        if session is not None:
            session.cut = cut

    def died(self, broker: Broker) -> None:
        """Called when a broker is killed."""

    # -- topics

    @property
    def topics(self) -> list[str]:
        """The topics in the tree."""
        return sorted(self.zookeeper.nodes[znodes.TOPICS].children) if znodes.TOPICS in self.zookeeper.nodes else []

    def going(self) -> list[str]:
        """The topics that are being deleted."""
        node = self.zookeeper.nodes.get(znodes.DELETE_TOPICS)
        return sorted(node.children) if node else []

    def tool(self, action: Callable[[Session], object]) -> None:
        """A command of an administrator, which may find ZooKeeper away."""
        process = Process("tool", 0)

        def act() -> None:
            try:
                session = self.zookeeper.connect(0, lambda: None)
                action(session)
                session.close()
            except (TreeError, znodes.MalformedNode) as error:
                self.world.say(f"tool: {error!r}")

        self.world.after(0.0, process, act)

    def create_topic(self, name: str, replicas: dict[int, list[int]]) -> None:
        """As `topics --create --zookeeper`."""
        self.world.say(f"create {name}: {replicas}")

        def create(tree: Session) -> None:
            try:
                admin_writes.create_topic(tree, TopicPlan(name, replicas, {}))
                self.made += 1
            except NodeExists:
                pass

        self.tool(create)

    def delete_topic(self, name: str) -> None:
        """As `topics --delete --zookeeper`."""
        self.world.say(f"delete {name}")
        self.tool(lambda tree: admin_writes.delete_topic(tree, name))

    def add_partitions(self, name: str, replicas: dict[int, list[int]]) -> None:
        """As `topics --alter --partitions`."""
        self.world.say(f"add partitions to {name}: {replicas}")
        self.tool(lambda tree: admin_writes.add_partitions(tree, name, replicas))

    def configure(self, name: str, key: str, value: str) -> None:
        """As `configs --alter`."""
        self.world.say(f"configure {name}: {key}={value}")
        configs = self._topic_configs.setdefault(name, {})
        configs[key] = value
        self.tool(lambda tree: admin_writes.set_topic_config(tree, name, configs))

    def configure_brokers(self, key: str, value: str) -> None:
        """As `configs --alter` for all brokers."""
        self.world.say(f"configure all brokers: {key}={value}")
        self.tool(lambda tree: admin_writes.set_broker_config(tree, None, {key: value}))

    def remake_topic(self, name: str, replicas: dict[int, list[int]]) -> None:
        """An administrator removes its nodes from ZooKeeper by hand (rmr) and creates another topic of that name."""
        self.world.say(f"remake {name}: {replicas}")

        def remake(tree: Session) -> None:
            tree.multi(tree.removal(znodes.topic_path(name)))
            self.world.elapse(self.world.between(0.0, 1.0))
            admin_writes.create_topic(tree, TopicPlan(name, replicas, {}))

        self.tool(remake)

    def move(self, name: str, replicas: dict[int, list[int]]) -> None:
        """As Kafka's tool did before 2.4."""
        self.world.say(f"move {name}: {replicas}")
        rows = [{"topic": name, "partition": index, "replicas": some} for index, some in replicas.items()]
        node = znodes.to_json({"version": 1, "partitions": rows})
        self.tool(lambda tree: tree.create(znodes.REASSIGN_PARTITIONS, node))

    def state(self, topic: str, index: int) -> Any:
        """The state node of a partition, None while there is none."""
        node = self.zookeeper.nodes.get(znodes.state_path(topic, index))
        return None if node is None else znodes.decode_state(node.data)

    def registered_since(self, topic: str, index: int, broker: int) -> bool:
        """Whether a broker registered after a partition's state was written: a controller may not have seen it."""
        nodes = self.zookeeper.nodes
        there = nodes.get(f"{znodes.BROKER_IDS}/{broker}")
        return there is None or there.czxid > nodes[znodes.state_path(topic, index)].mzxid

    def suspected(self) -> set[int]:
        """The brokers that a controller treats as failed."""
        return {broker for elected in self._elected() for broker in elected.brokers.suspected}

    def led(self) -> bool:
        """Whether a controller has read the whole tree and has sent all its decisions.

        One that still reads knows parts of it; a broker without its requests may lead what the tree assigns to others.
        """
        return any(not elected._stale and self._told(elected) for elected in self._elected())

    def _told(self, elected: Any) -> bool:
        between_turns = self.brokers[elected._own].loop not in self.world.running
        return between_turns and all(peer.idle for peer in elected.brokers.peers.values())

    def _elected(self) -> list[Any]:
        chosen = [one.controller.owner.elected for one in self.brokers.values() if one.controller is not None]
        return [elected for elected in chosen if elected is not None]

    def topic(self, name: str) -> Any:
        """The node of a topic."""
        path = znodes.topic_path(name)
        data = self.zookeeper.nodes[path].data
        return znodes.decode_topic(self.sense[path] if data == NONSENSE else data)

    # -- producers

    def produce(self, topic: str, index: int, to: int, acks_all: bool) -> None:
        """Send one record to a broker, whether it leads or not."""
        broker = self.brokers[to]
        if not broker.up or self.network.hosts.get(to) != UP:
            return
        self._values += 1
        life = broker.workers

        def decided(batch: Batch) -> None:
            if batch.error != errors.NONE:
                self.counts["refused"] += 1
            elif acks_all and topic not in self.going():
                self.counts["acknowledged"] += 1
                record = batch.epoch, batch.value
                min_isr = batch.slot.read()[slots.F_MIN_ISR]
                self.invariants.acknowledged(topic, batch.key, batch.base_offset, record, min_isr)

        batch = Batch(self._values, acks_all, 2000, decided)
        self.counts["acks=all" if acks_all else "acks=1"] += 1
        self.world.after(self.network.latency(), life.process, lambda: life.produce(topic, index, batch))

    def delete_records(self, topic: str, index: int, to: int, offset: int) -> None:
        """Send DeleteRecords to a broker, whether it leads or not."""
        broker = self.brokers[to]
        if broker.up and self.network.hosts.get(to) == UP:
            life = broker.workers
            self.world.after(self.network.latency(), life.process, lambda: life.delete(topic, index, offset))

    # -- whether it is well

    def ill(self) -> str:
        """The first violation once all faults are over; "" when there is none."""
        for broker in self.brokers.values():
            if not broker.up or not broker.registered or broker.controller is None:
                return f"broker {broker.number} is not registered"
        if sum(broker.is_elected for broker in self.brokers.values()) != 1:
            return "there is not one controller"
        if self.going():
            return f"topics {self.going()} are not deleted"
        return next((why for name in self.topics if (why := self._ill_topic(name))), "") or self._left_over()

    def astray(self) -> str:
        """The first violation when log directories may still be broken: of each partition with in-sync replicas on
        working disks, these are the ISR, one of them leads, and all of them have the same records.
        """
        if sum(broker.is_elected for broker in self.brokers.values()) != 1:
            return "there is not one controller"
        for name in self.topics:
            node = self.topic(name)
            if name not in self.going() and not node.adding and not node.removing:
                for index, replicas in node.replicas.items():
                    state, working = self.state(name, index), [one for one in replicas if self._works(one, name, index)]
                    if state is None or not set(working) & set(state.isr):
                        continue
                    if state.leader not in working or set(state.isr) != set(working):
                        return f"{name}-{index}: {working} work: {state}"
                    why = self._ill_partition(name, index, state, working)
                    if why:
                        return f"{name}-{index}: {why}"
        return ""

    def _works(self, number: int, name: str, index: int) -> bool:
        broker = self.brokers[number]
        directory = broker.disk.find(name, (self.topic(name).id, index))
        return broker.up and directory is not None and not directory.log_dir.broken

    def _ill_topic(self, name: str) -> str:
        for index, replicas in self.topic(name).replicas.items():
            state = self.state(name, index)
            if self.topic(name).adding or self.topic(name).removing:
                return f"{name} moves"
            if state is None or state.leader < 0:
                return f"{name}-{index} has no leader: {state}"
            if set(state.isr) != set(replicas):
                return f"{name}-{index}: only {state.isr} are in sync"
            why = self._ill_partition(name, index, state, replicas)
            if why:
                return f"{name}-{index}: {why}"
        return ""

    def _ill_partition(self, name: str, index: int, state: Any, replicas: list[int]) -> str:
        logs: list[Any] = []
        starts: list[int] = []
        for number in replicas:
            partition = self.brokers[number].workers.log.get(name, index)
            if partition is None:
                return f"not on broker {number}"
            values = partition.slot.read()
            leads = values[slots.F_STATE] == slots.LEADER
            if leads != (number == state.leader) or values[slots.F_LEADER_EPOCH] != state.leader_epoch:
                return f"broker {number} is in epoch {values[slots.F_LEADER_EPOCH]}, {leads=}; the tree: {state}"
            if values[slots.F_MIN_ISR] != min(self._min_isr(name), len(self.topic(name).replicas[index])):
                return f"broker {number} has min.insync.replicas {values[slots.F_MIN_ISR]}"
            if leads and values[slots.F_ISR_COUNT] != len(state.isr):
                return f"broker {number} leads {values[slots.F_ISR_COUNT]} in sync; the tree: {state}"
            if values[slots.F_HW] != values[slots.F_LEO]:
                return f"broker {number} shows {values[slots.F_HW]} of {values[slots.F_LEO]}"
            logs.append(partition.directory.records)
            starts.append(values[slots.F_LOG_START])
        logs = [log[max(starts) :] for log in logs]
        return "" if all(log == logs[0] for log in logs) else f"logs differ: {[len(log) for log in logs]}"

    def _min_isr(self, name: str) -> int:
        """The config in the tree; without a node the brokers' default."""
        node = self.zookeeper.nodes.get(f"{znodes.TOPIC_CONFIGS}/{name}")
        given = znodes.decode_config(node.data) if node is not None else {}
        return int(given.get("min.insync.replicas", self.config["min.insync.replicas"]))

    def _left_over(self) -> str:
        topics = {name: self.topic(name) for name in self.topics}
        for broker in self.brokers.values():
            for directory in broker.disk.all():
                name, index = directory.topic, directory.index
                node = topics.get(name)
                if node is None or node.id != directory.topic_id or broker.number not in node.replicas[index]:
                    return f"broker {broker.number} still has {name}-{index}"
        return ""
