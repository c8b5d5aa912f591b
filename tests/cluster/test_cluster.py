"""A cluster of three brokers on ZooKeeper with real clients, one failure after the other."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.cluster.tree import znodes
from odradek.cluster.tree.zookeeper import ZooKeeperTree

from ..clients.raw.batches import batch
from ..clients.raw.calls import produce
from ..harness.cluster import Cluster
from ..harness.process import free_port, wait_until
from .replicas import differences

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1")]

NOT_ENOUGH_REPLICAS = 19


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), replica_lag_time_max_ms=3000) as running:
        yield running


@pytest.fixture(autouse=True)
def healed(cluster: Cluster) -> Iterator[None]:
    """Start each test with all three brokers."""
    yield
    for number, broker in enumerate(cluster.brokers):
        if broker.process is None:
            cluster.restart(number)


def make_topic(cluster: Cluster, partitions: int = 1, factor: int = 3, **config: Any) -> str:
    name = f"topic-{time.monotonic_ns()}"
    options = {key.replace("_", "."): str(value) for key, value in ({"min_insync_replicas": 2} | config).items()}
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(name, partitions, factor, config=options)])[name].result(30)
    return name


def _can_make_topics(cluster: Cluster) -> bool:
    try:
        return bool(make_topic(cluster))
    except KafkaException:
        return False


def producer(cluster: Cluster, **options: Any) -> Producer:
    settings = {"acks": "all", "linger.ms": 0, "message.timeout.ms": 60_000, "retry.backoff.ms": 50}
    return Producer({"bootstrap.servers": cluster.bootstrap, **settings, **options})


class Sender:
    """Sends numbers to partition 0, and records the offsets of acknowledged ones."""

    def __init__(self, cluster: Cluster, topic: str, **options: Any) -> None:
        self.acked: dict[int, int] = {}
        self.errors: list[Any] = []
        self._topic = topic
        self._next = 0
        self._producer = producer(cluster, **options)

    def send(self, count: int = 1) -> None:
        """Hand over the next `count` numbers."""
        for _ in range(count):
            self._producer.produce(self._topic, b"%d" % self._next, partition=0, on_delivery=self._told)
            self._next += 1
            self._producer.poll(0.001)

    def _told(self, error: Any, message: Any) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            self.acked[int(message.value() or b"")] = message.offset()

    def finish(self) -> dict[int, int]:
        """Wait for all answers."""
        assert self._producer.flush(60) == 0
        return self.acked


def read_all(cluster: Cluster, topic: str) -> list[int]:
    """The numbers in partition 0, in the order of their offsets."""
    consumer = Consumer({
        "bootstrap.servers": cluster.bootstrap, "group.id": "reader", "enable.partition.eof": True,
        "enable.auto.commit": False,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    numbers: list[int] = []
    try:
        while (message := consumer.poll(30)) is not None:
            if message.error():
                return numbers
            numbers.append(int(message.value() or b""))
    finally:
        consumer.close()
    raise AssertionError("the partition does not end")


def check(cluster: Cluster, topic: str, sender: Sender) -> None:
    """Check that every acknowledged record exists once and in order, and that all replicas have the same bytes."""
    acked, found = sender.finish(), read_all(cluster, topic)
    assert not sender.errors, sender.errors[:3]
    assert set(acked) <= set(found), f"lost: {sorted(set(acked) - set(found))[:10]}"
    assert all(before < after for before, after in pairwise(found)), "doubled, or out of order"
    cluster.wait_isr(topic, 0, 3)
    wait_until(lambda: not differences(cluster, topic), 30, f"equal replicas: {differences(cluster, topic)}")


def controller(tree: ZooKeeperTree) -> int:
    data = tree.find(znodes.CONTROLLER)
    return -1 if data is None else znodes.decode_controller(data)


@pytest.mark.smoke
def test_all_replicas_of_a_new_topic_are_in_sync(cluster: Cluster, tree: ZooKeeperTree) -> None:
    topic = make_topic(cluster, partitions=2)
    sender = Sender(cluster, topic)
    sender.send(500)
    check(cluster, topic, sender)
    state = znodes.decode_state(tree.get(znodes.state_path(topic, 0))[0])
    assert state.leader == cluster.wait_leader(topic)
    assert sorted(state.isr) == [0, 1, 2]
    assert sorted(znodes.decode_topic(tree.get(znodes.topic_path(topic))[0]).replicas[0]) == [0, 1, 2]


@pytest.mark.smoke
@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_no_acknowledged_record_is_lost_when_the_leader_is_killed(cluster: Cluster, compression: str) -> None:
    topic = make_topic(cluster)
    sender = Sender(cluster, topic, **{"enable.idempotence": True, "compression.type": compression})
    sender.send(300)
    leader = cluster.wait_leader(topic)
    cluster.kill(leader)
    sender.send(300)
    assert cluster.wait_leader(topic, other_than=leader) != leader
    sender.send(300)
    sender.finish()
    cluster.restart(leader)
    check(cluster, topic, sender)


def test_another_controller_is_elected_when_the_controller_is_killed(cluster: Cluster, tree: ZooKeeperTree) -> None:
    topic = make_topic(cluster)
    sender = Sender(cluster, topic, **{"enable.idempotence": True})
    sender.send(100)
    before = controller(tree)
    cluster.kill(before)
    wait_until(lambda: controller(tree) not in (-1, before), 30, "another controller")
    sender.send(100)
    other = make_topic(cluster, factor=2)
    assert cluster.wait_leader(other) != before
    cluster.restart(before)
    check(cluster, topic, sender)


def test_no_acknowledged_record_is_lost_when_leader_and_controller_are_killed(
    cluster: Cluster, tree: ZooKeeperTree
) -> None:
    """A record that only the surviving broker has is unacknowledged because of min.insync.replicas."""
    topic = make_topic(cluster)
    sender = Sender(cluster, topic, **{"enable.idempotence": True})
    sender.send(200)
    sender.finish()
    victims = {cluster.wait_leader(topic), controller(tree)}
    for victim in victims:
        cluster.brokers[victim].process.kill()  # type: ignore[union-attr]  # it runs
    for victim in victims:
        cluster.kill(victim)
    sender.send(100)
    for victim in victims:
        cluster.restart(victim)
    check(cluster, topic, sender)


def test_produce_is_refused_with_too_few_in_sync_replicas(cluster: Cluster) -> None:
    topic = make_topic(cluster)
    leader = cluster.wait_leader(topic)
    others = [number for number in range(3) if number != leader]
    for number in others:
        cluster.kill(number)
    cluster.wait_isr(topic, 0, 1)
    with cluster.brokers[leader].wire() as wire:
        assert produce(wire, topic, batch([b"refused"])).error_code == NOT_ENOUGH_REPLICAS
    lone = Sender(cluster, topic, acks=1)
    lone.send()
    assert lone.finish() == {0: 0}, "acks=1 needs only the leader"
    for number in others:
        cluster.restart(number)
    cluster.wait_isr(topic, 0, 3)
    together = Sender(cluster, topic)
    together.send()
    assert together.finish() == {0: 1}


def test_rolling_restart_fails_no_produce(cluster: Cluster) -> None:
    topic = make_topic(cluster, partitions=1)
    sender = Sender(cluster, topic, **{"enable.idempotence": True})
    for number in range(3):
        sender.send(100)
        cluster.brokers[number].stop()
        sender.send(100)
        cluster.restart(number)
        sender.send(100)
        cluster.wait_isr(topic, 0, 3)
    check(cluster, topic, sender)


def test_killed_process_does_not_disturb_others(cluster: Cluster, tree: ZooKeeperTree) -> None:
    topic = make_topic(cluster)
    sender = Sender(cluster, topic, **{"enable.idempotence": True})
    follower = next(number for number in range(3) if number not in (cluster.wait_leader(topic), controller(tree)))
    path = f"{znodes.BROKER_IDS}/{follower}"
    registered = tree.exists(path)
    for role in ("replicator", "controller", "worker", "coordinator", "janitor"):
        dead = cluster.broker(follower).kill_role(role)
        sender.send(50)
        cluster.broker(follower).await_respawn(role, dead)
        sender.send(50)
    check(cluster, topic, sender)
    assert tree.exists(path) == registered, "the session continued, so the registration is the same"


def test_topic_is_deleted_when_all_its_brokers_are_up(cluster: Cluster, tree: ZooKeeperTree) -> None:
    topic = make_topic(cluster)
    sender = Sender(cluster, topic)
    sender.send(10)
    sender.finish()
    away = next(number for number in range(3) if number != controller(tree))
    cluster.kill(away)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    with pytest.raises(KafkaException):
        admin.delete_topics([topic], operation_timeout=1, request_timeout=60)[topic].result(90)
    assert tree.exists(f"{znodes.DELETE_TOPICS}/{topic}") is not None, "the deletion waits for the broker that is away"
    cluster.restart(away)
    wait_until(
        lambda: tree.exists(f"{znodes.DELETE_TOPICS}/{topic}") is None,
        60,
        "the removal of the mark, which is the last step",
    )
    assert tree.exists(znodes.topic_path(topic)) is None
    assert tree.exists(f"{znodes.TOPIC_CONFIGS}/{topic}") is None
    for broker in cluster.brokers:
        wait_until(lambda b=broker: not Path(b.data_dir, f"{topic}-0").exists(), 30, "the removal of its directories")  # type: ignore[misc]  # a default in a lambda


def test_partitions_are_added(cluster: Cluster) -> None:
    topic = make_topic(cluster)
    done = cluster.broker(0).command(
        "topics", "--alter", "--topic", topic, "--partitions", "3", "--bootstrap-server", cluster.bootstrap
    )
    assert done.returncode == 0, done.stderr
    for partition in range(3):
        cluster.wait_isr(topic, partition, 3)


def test_leaders_serve_during_a_zookeeper_outage(cluster: Cluster) -> None:
    """Leaders continue; changes that need ZooKeeper follow when it is back."""
    topic = make_topic(cluster)
    sender = Sender(cluster, topic, **{"enable.idempotence": True})
    sender.send(50)
    sender.finish()
    cluster.zookeeper.kill()
    sender.send(100)
    assert len(sender.finish()) == 150
    cluster.zookeeper.start()
    leader = cluster.wait_leader(topic)
    wait_until(lambda: _can_make_topics(cluster), 60, "the creation of a topic")
    cluster.kill(leader)
    cluster.wait_leader(topic, other_than=leader)
    sender.send(50)
    cluster.restart(leader)
    check(cluster, topic, sender)


def test_second_broker_with_same_id_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    second = tmp_path / "second.properties"
    second.write_text(
        f"broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:{free_port()}\nlog.dirs={tmp_path}/data\n"
        f"zookeeper.connect={cluster.zookeeper.connect}\nzookeeper.session.timeout.ms=6000\n"
    )
    done = cluster.broker(0).command("start", str(second))
    assert done.returncode == 3
    assert "broker.id=1 is another broker's" in done.stderr + done.stdout


def test_log_dir_of_another_cluster_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "meta.properties").write_text("version=0\nbroker.id=7\ncluster.id=AAAAAAAAAAAAAAAAAAAAAQ\n")
    properties = tmp_path / "server.properties"
    properties.write_text(
        f"broker.id=7\nlisteners=PLAINTEXT://127.0.0.1:{free_port()}\nlog.dirs={data}\n"
        f"zookeeper.connect={cluster.zookeeper.connect}\n"
    )
    done = cluster.broker(0).command("start", str(properties))
    assert done.returncode == 3
    assert "belongs to cluster.id AAAAAAAAAAAAAAAAAAAAAQ" in done.stderr + done.stdout


def test_preferred_leaders_are_elected(cluster: Cluster) -> None:
    topic = make_topic(cluster)
    preferred = cluster.wait_leader(topic)
    cluster.kill(preferred)
    cluster.wait_leader(topic, other_than=preferred)
    cluster.restart(preferred)
    cluster.wait_isr(topic, 0, 3)
    done = cluster.broker(0).command(
        "leader-election", "--election-type", "preferred", "--topic", topic, "--partition", "0",
        "--bootstrap-server", cluster.bootstrap,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    wait_until(lambda: cluster.leader(topic) == preferred, 60, "the preferred leader")


def test_partition_is_reassigned(cluster: Cluster, tree: ZooKeeperTree) -> None:
    """The partition moves from one broker to the others: they are in sync, one leads, and the old log is deleted."""
    topic = make_topic(cluster, factor=1, min_insync_replicas=1)
    old = cluster.wait_leader(topic)
    sender = Sender(cluster, topic, **{"enable.idempotence": True})
    sender.send(500)
    others = [number for number in range(3) if number != old]
    wanted = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": others}]}
    tree.create("/admin/reassign_partitions", znodes.to_json(wanted))  # as Kafka's tools did before 2.4
    wait_until(lambda: znodes.decode_topic(tree.get(znodes.topic_path(topic))[0]).replicas[0] == others, 60, "the move")
    sender.send(100)
    acked = sender.finish()
    assert sorted(cluster.wait_isr(topic, 0, 2)) == others
    assert cluster.wait_leader(topic, other_than=old) == others[0]
    assert set(acked) == set(read_all(cluster, topic))
    assert not sender.errors
    wait_until(lambda: not Path(cluster.broker(old).data_dir, f"{topic}-0").exists(), 30, "the removal of the old log")
    node = znodes.decode_topic(tree.get(znodes.topic_path(topic))[0])
    assert not node.adding
    assert not node.removing
    wait_until(
        lambda: tree.exists("/admin/reassign_partitions") is None,
        30,
        "the removal of the request, which is the last step",
    )
