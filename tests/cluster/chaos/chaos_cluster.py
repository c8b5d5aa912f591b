"""Three brokers, each on its own host with its own disk, on a network with injectable faults."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from ...clients.admin import topic_id, unique
from ...faults.mounts import Mounts
from ...harness.broker import Broker
from ...harness.cluster import Cluster
from ...harness.process import wait_until
from ...harness.wire import Wire
from .administrator import Administrator
from .network import HUB, Network
from .security import ADMIN, Clients, Security

DISK_MIB = 512
HEAL_S = 180
SEAM = Path(__file__).parent / "seam"
PROPERTIES = {
    "auto_create_topics_enable": "false",  # a producer that still runs would recreate a deleted topic
    "replica_lag_time_max_ms": 4000,
    "min_insync_replicas": 2,
    "offsets_topic_num_partitions": 4,
    "log_segment_bytes": 100_000,
    "replica_high_watermark_checkpoint_interval_ms": 1000,
    "log_flush_offset_checkpoint_interval_ms": 1000,
    "log_flush_scheduler_interval_ms": 500,
    "log_flush_interval_ms": 1000,
    "group_min_session_timeout_ms": 1000,
    "odradek_log_levels": "odradek.storage.log.append=DEBUG",  # logs why a producer's batch was refused
}


class ChaosCluster:
    """The cluster with its network and disks; a context manager of the thread that starts brokers.

    Within its block that thread is in the hub, so that its clients are there, too.
    """

    def __init__(self, folder: Path, brokers: int = 3, between: str | None = None, /, **overrides: Any) -> None:
        """`overrides` are server properties with `_` for `.`; `between`: what secures it, see `Security`."""
        self._stack = ExitStack()
        self.network = Network(brokers)
        self._stack.callback(self.network.close)
        self._stack.enter_context(self.network.entered())
        self.cluster = Cluster(folder, brokers, **{**PROPERTIES, **overrides})
        self.zookeeper = self.cluster.zookeeper
        self._open_zookeeper()
        hosts = map(self.network.address, range(brokers))
        self.security = Security(folder / "security", between, hosts) if between else None
        self.disks = [self._settle(broker) for broker in self.cluster.brokers]
        self.administrator, self.configurator = Administrator(self), Administrator(self)
        for one in (self.administrator, self.configurator):
            self._stack.callback(one.end)
        self.deleted: set[str] = set()  # topics that administrators have deleted since the last check

    def _open_zookeeper(self) -> None:
        """Hosts reach it by the hub's address."""
        settings = self.zookeeper.config.read_text()
        self.zookeeper.config.write_text(settings.replace("clientPortAddress=127.0.0.1", "clientPortAddress=0.0.0.0"))
        self.zookeeper.connect = f"{HUB}:{self.zookeeper.port}"

    def _settle(self, broker: Broker) -> Mounts:
        """A broker on its host, with its disk."""
        number = self.cluster.brokers.index(broker)
        broker.host = self.network.address(number)
        broker.data_dir.mkdir(parents=True, exist_ok=True)
        disk = Mounts({broker.data_dir: DISK_MIB})
        self._stack.callback(disk.close)
        broker.prefix = [*self.network.prefix(number), *disk.prefix]
        broker.env |= {
            "PYTHONPATH": os.pathsep.join(filter(None, [str(SEAM), broker.env.get("PYTHONPATH")])),
            "ODRADEK_TEST_SLOW": str(broker.folder / "slow"),
            "ODRADEK_TEST_CLOCK": str(broker.folder / "clock"),
            "ODRADEK_TEST_FAULTS": str(broker.folder / "faults"),
        }
        listeners = f"PLAINTEXT://{broker.host}:{broker.port}"
        broker.set(listeners=listeners, zookeeper_connect=self.zookeeper.connect)
        if self.security:
            self.security.settle(broker)
        return disk

    def __enter__(self) -> ChaosCluster:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self) -> None:
        if not self.security:
            self.cluster.start()
            return
        self.cluster.start(self.security.add_users)
        self.security.grant(self.cluster.brokers)

    def __exit__(self, *_: object) -> None:
        try:
            self.cluster.stop()
        finally:
            self._stack.close()

    # -- state

    @property
    def ids(self) -> list[int]:
        """The ids of all brokers."""
        return list(range(len(self.cluster.brokers)))

    @property
    def clients(self) -> Clients:
        """The settings of clients that have rights."""
        return self.security.clients() if self.security else Clients.of(self.cluster.bootstrap)

    def wire(self, number: int, seconds: float) -> Wire:
        """An administrator's raw connection to a broker."""
        broker = self.broker(number)
        return self.security.wire(broker, seconds) if self.security else Wire(broker.bootstrap, seconds)

    def broker(self, number: int) -> Broker:
        """The broker with that id."""
        return self.cluster.brokers[number]

    def data(self, number: int) -> Path:
        """A broker's data directory, as a path of this process."""
        return self.disks[number].path(self.broker(number).data_dir)

    def metadata(self, number: int, *topics: str) -> Any:
        """One broker's metadata of these topics, or of all; None without an answer in two seconds."""
        try:
            with self.wire(number, 2) as wire:
                return wire.metadata(*topics)
        except (OSError, EOFError):
            return None

    def leader(self, topic: str, partition: int = 0) -> int:
        """The leader of a partition, from the metadata of a broker that has a controller."""

        def led() -> list[int]:
            found = [self._leader(number, topic, partition) for number in self.ids if self.broker(number).process]
            return [one for one in found if one >= 0 and self.broker(one).process is not None]

        return wait_until(led, HEAL_S, f"{topic}-{partition} has a leader")[0]

    def _leader(self, asked: int, topic: str, partition: int) -> int:
        answer = self.metadata(asked, topic)
        rows = answer.topics[0].partitions if answer is not None else []
        return next((row.leader_id for row in rows if row.partition_index == partition), -1)

    def controller(self) -> int:
        """The elected controller, from the first broker that names one."""

        def known() -> list[int]:
            answers = [self.metadata(number) for number in self.ids if self.broker(number).process]
            found = [answer.controller_id for answer in answers if answer is not None]
            return [one for one in found if one >= 0 and self.broker(one).process is not None]

        return wait_until(known, HEAL_S, "the cluster has a controller")[0]

    def known_controller(self) -> int | None:
        """The elected controller that some running broker names at once, or None."""
        for answer in filter(None, map(self.metadata, self._running())):
            if answer.controller_id >= 0 and self.broker(answer.controller_id).process is not None:
                return int(answer.controller_id)
        return None

    def partitions(self) -> list[tuple[str, int]]:
        """(topic, partition) of the topic under load and of the internal ones, as some broker knows them."""

        def known() -> list[tuple[str, int]]:
            for answer in filter(None, map(self.metadata, self._running())):
                topics = [topic for topic in answer.topics if topic.name.startswith(("load", "__"))]
                return [(topic.name, row.partition_index) for topic in topics for row in topic.partitions]
            return []

        return sorted(wait_until(known, HEAL_S, "a broker lists the topics"))

    def isr(self, topic: str) -> set[int]:
        """The in-sync replicas of partition 0 that all running brokers name; empty while they differ."""
        answers = [self.metadata(number, topic) for number in self._running()]
        rows = [
            {frozenset(row.isr_nodes) for row in answer.topics[0].partitions if row.partition_index == 0}
            for answer in answers
            if answer is not None
        ]
        return set(*rows[0]) if rows and rows[0] and all(row == rows[0] for row in rows) else set()

    def topic_id(self, name: str) -> uuid.UUID | None:
        """The id that some running broker knows the topic by."""
        for number in self._running():
            with suppress(OSError, EOFError, AssertionError), self.wire(number, 2) as wire:
                return topic_id(wire, name)
        return None

    def _running(self) -> list[int]:
        return [number for number in self.ids if self.broker(number).process is not None]

    def dispensable(self, broker: int) -> bool:
        """Whether every partition has a leader and a replica in sync other than this broker's, or none here."""
        others = [number for number in self.ids if number != broker and self.broker(number).process is not None]
        answers = [answer for number in others if (answer := self.metadata(number)) is not None]
        rows = [row for answer in answers for topic in answer.topics for row in topic.partitions]
        return bool(answers) and all(row.leader_id >= 0 and set(row.isr_nodes) - {broker} for row in rows)

    # -- topics

    def create_topic(self, stem: str, partitions: int = 3, **config: Any) -> str:
        """Create a topic with a replica on each broker; retried while brokers are away."""
        from confluent_kafka.admin import NewTopic

        name, admin = unique(stem), self._admin()
        settings = {key.replace("_", "."): str(value) for key, value in config.items()}
        topic = NewTopic(name, partitions, len(self.ids), config=settings)
        made = lambda: _done(admin.create_topics([topic])[name], "TOPIC_ALREADY_EXISTS")  # noqa: E731
        wait_until(made, HEAL_S, f"{name} is created")
        self.healed(name, partitions)
        return name

    def delete_topic(self, name: str) -> None:
        """Delete a topic, with retries until ZooKeeper is back, and wait until no broker has a directory of it."""
        admin = self._admin()
        gone = lambda: _done(admin.delete_topics([name], operation_timeout=30)[name], "UNKNOWN_TOPIC_OR_PART")  # noqa: E731
        wait_until(gone, HEAL_S, f"{name} is deleted")
        self._await_gone(name)

    def _admin(self) -> Any:
        """A new admin client, which knows the controller; an old one refreshes it only every five minutes."""
        from confluent_kafka.admin import AdminClient

        clients = self.security.clients(ADMIN) if self.security else self.clients
        return AdminClient({**clients.librdkafka, "log_level": 0, "topic.metadata.refresh.interval.ms": 1000})

    def tidy(self) -> None:
        """Wait until no broker has a directory of a topic that administrators have deleted."""
        for name in sorted(self.deleted):
            self._await_gone(name)
        self.deleted.clear()

    def _await_gone(self, name: str) -> None:
        wait_until(lambda: not self._left_of(name), HEAL_S, f"no broker has a directory of {name}")

    def _left_of(self, name: str) -> list[Path]:
        """The topic's directories, except strays: replicas that were moved away while their broker was down."""
        found = [path for one in self.ids for path in self.data(one).glob(f"{name}-*")]
        return [path for path in found if not path.name.endswith("-stray")]

    def healed(self, topic: str, partitions: int, seconds: float = HEAL_S) -> None:
        """Wait until every broker runs and reports all replicas in sync, and all report the same leaders."""
        wait_until(
            lambda: self._whole(topic, partitions), seconds, f"all brokers report all replicas of {topic} in sync"
        )

    def _whole(self, topic: str, partitions: int) -> bool:
        said = [self._standing(number, topic) for number in self.ids]
        return len(said[0]) == partitions and all(one == said[0] for one in said) and self._in_sync(said[0])

    def _standing(self, number: int, topic: str) -> dict[int, tuple[int, int, tuple[int, ...]]]:
        answer = self.metadata(number, topic)
        rows = answer.topics[0].partitions if answer is not None else []
        return {row.partition_index: (row.leader_id, row.leader_epoch, tuple(row.isr_nodes)) for row in rows}

    def _in_sync(self, standing: dict[int, tuple[int, int, tuple[int, ...]]]) -> bool:
        return all(leader >= 0 and len(isr) == len(self.ids) for leader, _, isr in standing.values())

    # -- judging

    def check(self) -> list[str]:
        """Stop all brokers cleanly, run `odradek check` on every data directory, and start them again."""
        self.stop_all()
        found = []
        for number in self.ids:
            broker = self.broker(number)
            words = [*broker.prefix, sys.executable, "-m", "odradek.broker", "check", str(broker.data_dir)]
            done = subprocess.run(words, capture_output=True, text=True, env=broker.env, timeout=300)
            if done.returncode:
                found.append(f"check: broker {number}: {done.stdout[-2000:]}{done.stderr[-1000:]}")
        self.start_all()
        return found

    def stop_all(self) -> None:
        """SIGTERM to all brokers, one after the other."""
        for broker in self.cluster.running():
            broker.stop()

    def start_all(self) -> None:
        """Start all brokers that do not run, together."""
        stopped = [broker for broker in self.cluster.brokers if broker.process is None]
        for broker in stopped:
            broker.launch()
        for broker in stopped:
            broker.await_ready()
        wait_until(self._informed, HEAL_S, "every broker lists all brokers")

    def _informed(self) -> bool:
        """Whether all brokers have metadata; without it, their clients get no brokers."""
        answers = [self.metadata(number, "none") for number in self.ids]
        return all(answer is not None and len(answer.brokers) == len(self.ids) for answer in answers)


def _done(asked: Any, already: str) -> bool:
    """Whether an admin request has succeeded; a refusal as `already` done counts as success."""
    from confluent_kafka import KafkaException

    try:
        asked.result(60)
    except KafkaException as error:
        return error.args[0].name() == already
    return True
