"""Transactions whose coordinators and leaders fail: each is complete or absent, and its records exist once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ..harness.cluster import Cluster
from ..harness.process import wait_until
from .clients import Feed, Thread, coordinator, make_topic, running

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1")]

INTERNAL = ("__consumer_offsets", "__transaction_state")
PARTITIONS = 3
ABORTED = -1


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("transactions")
    settings = {"transaction_state_log_min_isr": 2, "transaction_state_log_num_partitions": 4}
    with Cluster(folder, replica_lag_time_max_ms=3000, **settings) as running:
        yield running


@pytest.fixture(autouse=True)
def healed(cluster: Cluster) -> Iterator[None]:
    """Each test begins with all three brokers."""
    yield
    for number, broker in enumerate(cluster.brokers):
        if broker.process is None:
            cluster.restart(number)


def in_sync(cluster: Cluster, *topics: str) -> None:
    for name in topics:
        for row in cluster.metadata(name).topics[0].partitions:
            cluster.wait_isr(name, row.partition_index, 3)


class Copier(Thread):
    """Consume, process, produce: copies each record of one topic once, offsets included, in transactions."""

    def __init__(self, cluster: Cluster, source: str, target: str, name: str) -> None:
        super().__init__()
        self.committed = 0
        self.aborted: list[str] = []
        self._cluster, self._source, self._target, self._name = cluster, source, target, name
        self._consumer = Consumer({
            "bootstrap.servers": cluster.bootstrap, "group.id": name, "enable.auto.commit": False, "log_level": 0,
            "auto.offset.reset": "earliest", "isolation.level": "read_committed", "session.timeout.ms": 10_000,
            "retry.backoff.ms": 50, "reconnect.backoff.max.ms": 500,
        })  # fmt: skip
        self._consumer.subscribe([source])
        self._producer = self._start()

    def _start(self) -> Producer:
        producer = Producer({
            "bootstrap.servers": self._cluster.bootstrap, "transactional.id": self._name, "log_level": 0,
            "transaction.timeout.ms": 20_000, "retry.backoff.ms": 50, "reconnect.backoff.max.ms": 500, "linger.ms": 1,
        })  # fmt: skip
        producer.init_transactions(60)
        return producer

    def turn(self) -> None:
        messages = [m for m in self._consumer.consume(100, 0.05) if not m.error()]
        if not messages:
            return
        try:
            if self.committed % 5 == 4:
                self._leave_one()
            self._copy(messages)
            self.committed += 1
        except KafkaException as exception:
            self._recover(exception)

    def _copy(self, messages: list[Message]) -> None:
        self._producer.begin_transaction()
        for message in messages:
            number = int(message.value() or b"")
            self._producer.produce(self._target, b"%d" % number, partition=number % 7 % PARTITIONS)
        self._send_offsets(self._consumer.position(self._consumer.assignment()))
        while True:
            try:
                self._producer.commit_transaction(30)
                return
            except KafkaException as exception:
                if not exception.args[0].retriable():
                    raise

    def _send_offsets(self, offsets: list[TopicPartition]) -> None:
        self._producer.send_offsets_to_transaction(offsets, self._consumer.consumer_group_metadata(), 30)

    def _leave_one(self) -> None:
        """Leave an aborted transaction, whose records no consumer may see."""
        self._producer.begin_transaction()
        for partition in range(PARTITIONS):
            self._producer.produce(self._target, b"%d" % ABORTED, partition=partition)
        self._producer.flush(5)
        self._producer.abort_transaction(30)

    def _recover(self, exception: KafkaException) -> None:
        """Go back to the end of the last transaction."""
        error = exception.args[0]
        self.aborted.append(str(error))
        if error.txn_requires_abort():
            self._producer.abort_transaction(30)
        else:
            self._producer = self._start()
        for one in self._consumer.committed(self._consumer.assignment(), timeout=30):
            self._consumer.seek(one if one.offset >= 0 else TopicPartition(one.topic, one.partition, 0))

    def close(self) -> None:
        self._consumer.close()


class Reader(Thread):
    """All committed records of a topic's partitions."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        super().__init__()
        self.seen: Counter[int] = Counter()
        self._consumer = Consumer({
            "bootstrap.servers": cluster.bootstrap, "group.id": "reader", "enable.auto.commit": False, "log_level": 0,
            "isolation.level": "read_committed", "reconnect.backoff.max.ms": 500,
        })  # fmt: skip
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])

    def turn(self) -> None:
        self.seen.update(int(m.value() or b"") for m in self._consumer.consume(100, 0.1) if not m.error())

    def close(self) -> None:
        self._consumer.close()


def lose(cluster: Cluster, victim: int, copier: Copier, *topics: str) -> None:
    """Kill a broker, wait until transactions continue, start it again."""
    cluster.kill(victim)
    before = copier.committed
    wait_until(lambda: copier.committed > before + 5, 60, "transactions without it")
    cluster.restart(victim)
    in_sync(cluster, *topics, *INTERNAL)


def committed(cluster: Cluster, group: str, topic: str) -> int:
    """The sum of a group's offsets, once all are decided."""
    asker = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "isolation.level": "read_committed"})
    try:
        found = asker.committed([TopicPartition(topic, partition) for partition in range(PARTITIONS)], timeout=30)
    finally:
        asker.close()
    return sum(one.offset for one in found)


def test_exactly_once_while_brokers_are_killed(cluster: Cluster) -> None:
    source, target = make_topic(cluster, PARTITIONS), make_topic(cluster, PARTITIONS)
    feed, reader = Feed(cluster, source, PARTITIONS), Reader(cluster, target)
    copier = Copier(cluster, source, target, "copier")
    in_sync(cluster, source, target, *INTERNAL)
    with running(reader, copier, feed):
        wait_until(lambda: copier.committed > 5, 60, "the first transactions")
        first = coordinator(cluster, "copier", 1)
        for victim in (first, (first + 1) % 3, (first + 2) % 3):
            lose(cluster, victim, copier, source, target)
        feed.stop()
        wait_until(lambda: feed.acked <= reader.seen.keys(), 90, "all records to be copied")
    assert not feed.errors, feed.errors[:3]
    doubled = [number for number, times in reader.seen.items() if times > 1]
    assert not doubled, f"{doubled[:10]}, aborted: {copier.aborted}"
    assert feed.acked == reader.seen.keys()
    assert committed(cluster, "copier", source) == len(feed.acked)


def test_next_coordinator_completes_decided_transaction(cluster: Cluster) -> None:
    """The markers cannot be written without their leader; then the coordinator dies, too."""
    name = "decided"
    deciding = coordinator(cluster, name, 1)
    away, topic = (deciding + 1) % 3, f"only-there-{time.monotonic_ns()}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, replica_assignment=[[away]] * PARTITIONS)])[topic].result(30)
    in_sync(cluster, *INTERNAL)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": name, "log_level": 0})
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in range(30):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(30) == 0
    cluster.kill(away)
    wait_until(lambda: cluster.leader(topic) == -1, 60, "the partitions to have no leader")
    producer.commit_transaction(30)
    cluster.kill(deciding)
    coordinator(cluster, name, 1, other_than=deciding)
    cluster.restart(away)
    reader = Reader(cluster, topic)
    with running(reader):
        wait_until(lambda: len(reader.seen) == 30, 60, "the transaction to be seen")
    assert sorted(reader.seen.elements()) == list(range(30))
