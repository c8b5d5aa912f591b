"""Clients that run while brokers fail: a producer, group members, and what was acknowledged to them."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ..harness.broker import Broker
from ..harness.cluster import Cluster
from ..harness.process import wait_until
from .moved_coordinator import assign_again

BREATH_S = 0.005


def make_topic(cluster: Cluster, partitions: int = 3, **config: Any) -> str:
    """Create a topic of factor 3 that loses nothing while one broker is down."""
    name = f"topic-{time.monotonic_ns()}"
    options = {key.replace("_", "."): str(value) for key, value in ({"min_insync_replicas": 2} | config).items()}
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(name, partitions, 3, config=options)])[name].result(30)
    wait_until(lambda: all(_led(one, name, partitions) for one in cluster.running()), 60, f"all to know of {name}")
    return name


def _led(broker: Broker, topic: str, partitions: int) -> bool:
    """Whether a broker knows a leader of each partition; brokers that did not create the topic learn of it later."""
    try:
        with broker.wire() as wire:
            answer = wire.metadata(topic)
    except (OSError, EOFError):
        return False
    return [row.leader_id >= 0 for row in answer.topics[0].partitions] == [True] * partitions


def coordinator(
    cluster: Cluster, key: str, kind: int = 0, *, other_than: int = -1, of: Sequence[Broker] = (), seconds: float = 60
) -> int:
    """The id of the broker that coordinates a group (or with `kind` 1 a transactional id), once one of `of` (by default
    any running broker) names one."""
    from kafka.protocol.metadata import FindCoordinatorRequest as Request

    found: list[int] = []

    def ask() -> bool:
        for broker in of or cluster.running():
            try:
                with broker.wire() as wire:
                    answer = wire.call(Request[1](key=key, key_type=kind))
            except (OSError, EOFError):
                continue
            if not answer.error_code and answer.node_id != other_than:
                found[:] = [answer.node_id]
                return True
        return False

    wait_until(ask, seconds, f"a coordinator of {key}")
    return found[0]


def read_all(cluster: Cluster, topic: str, partitions: int, **options: Any) -> dict[int, list[int]]:
    """The numbers in each partition, in the order of their offsets."""
    consumer = Consumer({
        "bootstrap.servers": cluster.bootstrap, "group.id": "all", "enable.partition.eof": True,
        "enable.auto.commit": False, **options,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    found: dict[int, list[int]] = defaultdict(list)
    ended: set[int] = set()
    try:
        while len(ended) < partitions:
            message = consumer.poll(30)
            assert message is not None, "nothing for 30 s"
            if message.error():
                ended.add(message.partition() or 0)
            else:
                found[message.partition() or 0].append(int(message.value() or b""))
    finally:
        consumer.close()
    return found


class Thread:
    """A thread that runs until it is stopped; `stop` raises its exception."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                self.turn()
        except BaseException as error:
            self._error = error
        finally:
            self.close()

    def turn(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        pass

    def stop(self, seconds: float = 60) -> None:
        self._over.set()
        self._thread.join(seconds)
        assert not self._thread.is_alive(), f"{self} does not end"
        if self._error is not None:
            raise self._error


class Feed(Thread):
    """Sends numbers to all partitions in turn, without end. `acked`: the acknowledged ones."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int = 3, **options: Any) -> None:
        super().__init__()
        self.acked: set[int] = set()
        self.errors: list[Any] = []
        self._topic, self._partitions, self._next = topic, partitions, 0
        self._producer = Producer({
            "bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 2, "message.timeout.ms": 60_000,
            "retry.backoff.ms": 50, "log_level": 0, "enable.idempotence": True, **options,
        })  # fmt: skip

    def turn(self) -> None:
        number, self._next = self._next, self._next + 1
        partition = number % self._partitions
        self._producer.produce(self._topic, b"%d" % number, partition=partition, on_delivery=self._told)
        self._producer.poll(BREATH_S)

    def _told(self, error: Any, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            self.acked.add(int(message.value() or b""))

    def close(self) -> None:
        self._producer.flush(60)


class Commits:
    """The offsets that a group has read back: none may decrease. Shared by its members and the observer."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self._floor: dict[int, int] = defaultdict(int)
        self._lock = threading.Lock()

    def floor(self, partition: int) -> int:
        """The highest offset that was acknowledged or read so far."""
        with self._lock:
            return self._floor[partition]

    def raise_floor(self, partition: int, offset: int) -> None:
        with self._lock:
            self._floor[partition] = max(self._floor[partition], offset)

    def told(self, who: str, partition: int, offset: int, floor: int) -> None:
        """A client read `offset`; the highest was `floor` when it sent its request."""
        if offset < floor:
            self.faults.append(f"{who}: partition {partition} is at {offset}, where it was at {floor}")
        self.raise_floor(partition, offset)


class Member(Thread):
    """A consumer of a group that commits what it has seen, a few records at a time."""

    def __init__(self, cluster: Cluster, topic: str, group: str, commits: Commits, **options: Any) -> None:
        super().__init__()
        self.seen: set[int] = set()
        self.assigned = 0
        self._commits = commits
        self._last = 0.0
        self._consumer = Consumer({
            "bootstrap.servers": cluster.bootstrap, "group.id": group, "enable.auto.commit": False,
            "auto.offset.reset": "earliest", "session.timeout.ms": 10_000, "heartbeat.interval.ms": 500,
            "retry.backoff.ms": 50, "log_level": 0, "reconnect.backoff.max.ms": 500, **options,
        })  # fmt: skip
        self._consumer.subscribe([topic], on_assign=self._assigned)

    def _assigned(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assigned += 1

    def turn(self) -> None:
        message = self._consumer.poll(0.1)
        assign_again(self._consumer, message)
        if message is not None and not message.error():
            self.seen.add(int(message.value() or b""))
        if time.monotonic() - self._last > 0.05:
            self._last = time.monotonic()
            self._commit()

    def _commit(self) -> None:
        try:
            done = self._consumer.commit(asynchronous=False) or []
        except KafkaException:  # not assigned, rebalancing, no coordinator: the next commit includes it
            return
        for one in done:
            if one.error is None and one.offset >= 0:
                self._commits.raise_floor(one.partition, one.offset)

    def close(self) -> None:
        self._consumer.close()


class Observer(Thread):
    """Requests a group's offsets continuously, without being a member."""

    def __init__(self, cluster: Cluster, topic: str, group: str, commits: Commits, partitions: int = 3) -> None:
        super().__init__()
        self.answers = 0
        self.gaps: list[float] = []  # seconds between answers, where they were long
        self._last = time.monotonic()
        self._topic, self._partitions, self._commits = topic, range(partitions), commits
        self._consumer = Consumer({
            "bootstrap.servers": cluster.bootstrap, "group.id": group, "enable.auto.commit": False,
            "retry.backoff.ms": 50, "log_level": 0, "reconnect.backoff.max.ms": 500,
        })  # fmt: skip

    def turn(self) -> None:
        floors = [self._commits.floor(partition) for partition in self._partitions]
        try:
            found = self._consumer.committed([TopicPartition(self._topic, p) for p in self._partitions], timeout=1)
        except KafkaException:
            return
        now = time.monotonic()
        if now - self._last > 0.5:
            self.gaps.append(now - self._last)
        self._last = now
        self.answers += 1
        for one, floor in zip(found, floors, strict=True):
            if one.error is None:
                self._commits.told("an onlooker", one.partition, max(0, one.offset), floor)
        time.sleep(0.01)

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def running(*threads: Thread) -> Iterator[None]:
    """Run the threads within the block; stop them one after the other at its end."""
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        with ExitStack() as stack:
            for thread in reversed(threads):
                stack.callback(thread.stop)
