"""Partitions moved under a throttle (KIP-73) are copied at the rate; other partitions are not slowed.

A rate is measured by bytes and time: the copy may be no faster. These tests hold on a slow machine, too.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from kafka.admin import ConfigResource as PythonResource
from kafka.admin import ConfigResourceType, KafkaAdminClient

from odradek.broker.commands.reassign_partitions.throttles import FOLLOWER_RATE, FOLLOWERS, LEADER_RATE, LEADERS

from ..harness.cluster import Cluster
from ..harness.process import wait_until
from .replicas import differences

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1")]

KB = bytes(range(256)) * 4
MB = 1 << 20
SLOW = 50_000  # bytes a second


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with a short quota window, so that no test gets unused budget of an earlier one."""
    with Cluster(tmp_path_factory.mktemp("cluster"), odradek_workers=2, replication_quota_window_num=2) as running:
        yield running


@pytest.fixture
def admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


def make(admin: AdminClient, *brokers: int, **config: str) -> str:
    """Create a topic of one partition with replicas on `brokers`, the first of which leads."""
    name = f"topic-{time.monotonic_ns()}"
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, 1, replica_assignment=[list(brokers)], config=settings)])[name].result(30)
    return name


def fill(cluster: Cluster, topic: str, megabytes: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 50, "batch.size": 200_000})
    for _ in range(megabytes << 10):
        producer.produce(topic, KB)
        producer.poll(0)
    assert producer.flush(60) == 0


def acknowledged(cluster: Cluster, topic: str, seconds: float) -> int:
    """The number of records acknowledged by all replicas, sent one after the other."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0})
    count, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        producer.produce(topic, b"x")
        assert producer.flush(60) == 0
        count += 1
    return count


def reassign(cluster: Cluster, action: str, file: Path, *words: str) -> str:
    done = cluster.brokers[0].command(
        "reassign-partitions", "--bootstrap-server", cluster.bootstrap, action,
        "--reassignment-json-file", str(file), *words,
    )  # fmt: skip
    assert done.returncode == 0, done
    return done.stdout


def move_to(folder: Path, topic: str, *brokers: int) -> Path:
    file = folder / f"{topic}-{len(brokers)}.json"
    moves = [{"topic": topic, "partition": 0, "replicas": brokers}]
    file.write_text(json.dumps({"version": 1, "partitions": moves}))
    return file


def await_move(cluster: Cluster, file: Path, seconds: float) -> None:
    wait_until(
        lambda: "is completed" in reassign(cluster, "--verify", file, "--preserve-throttles"), seconds, "the move"
    )


def copied(cluster: Cluster, topic: str, *brokers: int) -> int:
    """The size of the topic's partition on these brokers, in bytes."""
    folders = [cluster.brokers[number].data_dir / f"{topic}-0" for number in brokers]
    return sum(file.stat().st_size for folder in folders for file in folder.glob("*.log"))


def rates(cluster: Cluster, admin: AdminClient) -> dict[str, str]:
    """The rates in force at all brokers, and the throttled replicas of all topics."""
    brokers = [ConfigResource(ResourceType.BROKER, str(number)) for number in range(len(cluster.brokers))]
    topics = [ConfigResource(ResourceType.TOPIC, topic) for topic in admin.list_topics(timeout=30).topics]
    found = {}
    for resource in [*brokers, *topics]:
        (described,) = admin.describe_configs([resource]).values()
        for name, entry in described.result(30).items():
            if name in (LEADER_RATE, FOLLOWER_RATE, LEADERS, FOLLOWERS) and entry.value:
                found[f"{resource.name} {name}"] = entry.value
    return found


def test_reassignment_obeys_rate_and_slows_no_other_topic(cluster: Cluster, admin: AdminClient, tmp_path: Path) -> None:
    """Two copies of 10 MB from one broker, whose workers may send 2 MB/s in total, take ten seconds.

    Another topic is throttled as a whole, but in sync, so the used-up quota does not affect it.
    """
    moved, steady = make(admin, 0), make(admin, 0, 1, 2)
    fill(cluster, moved, 10)
    cluster.wait_isr(steady, 0, 3)
    change(admin, ResourceType.TOPIC, steady, {LEADERS: "*", FOLLOWERS: "*"})
    file = move_to(tmp_path, moved, 1, 2)
    usual = acknowledged(cluster, steady, 2)
    began = time.monotonic()
    told = reassign(cluster, "--execute", file, "--throttle", str(2 * MB))
    assert f"The inter-broker throttle limit was set to {2 * MB} B/s" in told
    wait_until(lambda: rates(cluster, admin).get(f"0 {LEADER_RATE}") == str(2 * MB), 30, "the rate to be in force")
    meanwhile = acknowledged(cluster, steady, 2)
    if meanwhile <= usual / 4:  # the machine may have stalled
        meanwhile = acknowledged(cluster, steady, 2)
    wait_until(lambda: copied(cluster, moved, 1, 2), 60, "the move to begin")
    moved_bytes, so_far = copied(cluster, moved, 1, 2), time.monotonic() - began
    assert 0 < moved_bytes < 2 * 2 * MB * so_far, f"{moved_bytes} bytes in {so_far:.1f} s"
    assert meanwhile > usual / 4, f"{meanwhile} records were acknowledged one after the other, before that {usual}"
    assert len(cluster.partition(steady).isr_nodes) == 3
    await_move(cluster, file, 60)
    took = time.monotonic() - began
    assert took >= 5, f"{took:.1f} s"
    assert "Clearing broker-level throttles on brokers 0,1,2" in reassign(cluster, "--verify", file)
    left = lambda: {name for name in rates(cluster, admin) if not name.startswith(steady)}  # noqa: E731
    wait_until(lambda: not left(), 30, "`--verify` to remove what `--execute` set")
    cluster.wait_isr(moved, 0, 2)
    assert not differences(cluster, moved)


@pytest.mark.parametrize("side", ["leader", "follower"])
@pytest.mark.parametrize("client", ["confluent", "kafka-python"])
def test_leader_and_follower_rates_apply_alone(
    cluster: Cluster, admin: AdminClient, tmp_path: Path, side: str, client: str
) -> None:
    """An AdminClient sets the rate and removes it long before the end: the rest is copied faster.

    Another partition of that size, moved at the same time without a throttle, is complete before half of this one is.
    """
    topic, other = make(admin, 0), make(admin, 0)
    for one in (topic, other):
        fill(cluster, one, 10)
    broker, rate, who = {"leader": (0, LEADER_RATE, LEADERS), "follower": (1, FOLLOWER_RATE, FOLLOWERS)}[side]
    set_config = change if client == "confluent" else python_change
    set_config(admin, ResourceType.BROKER, str(broker), {rate: str(SLOW)}, cluster)
    set_config(admin, ResourceType.TOPIC, topic, {who: f"0:{broker}"}, cluster)
    wait_until(lambda: f"{topic} {who}" in rates(cluster, admin), 30, "the throttle to be known")
    file, freely = move_to(tmp_path, topic, 1), move_to(tmp_path, other, 1)
    reassign(cluster, "--execute", file)
    reassign(cluster, "--execute", freely, "--additional")
    wait_until(lambda: copied(cluster, topic, 1), 60, "the move to begin")
    await_move(cluster, freely, 60)
    assert copied(cluster, topic, 1) < 5 * MB
    set_config(admin, ResourceType.BROKER, str(broker), {rate: None}, cluster)
    await_move(cluster, file, 60)  # at that rate the rest would take 100 s
    assert reassign(cluster, "--verify", file)
    assert not rates(cluster, admin).keys() & {f"{topic} {who}", f"{broker} {rate}"}


def change(admin: AdminClient, kind: ResourceType, name: str, values: dict[str, str | None], _: Any = None) -> None:
    """Set configs, or unset those that are None, with confluent-kafka."""
    entries = [
        ConfigEntry(
            key, value or "", incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        )
        for key, value in values.items()
    ]
    (done,) = admin.incremental_alter_configs([ConfigResource(kind, name, incremental_configs=entries)]).values()
    done.result(30)


def python_change(
    _: AdminClient, kind: ResourceType, name: str, values: dict[str, str | None], cluster: Cluster
) -> None:
    """As `change`, with kafka-python."""
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    changes = {key: ("DELETE", None) if value is None else value for key, value in values.items()}
    try:
        resource = PythonResource(ConfigResourceType[kind.name], name, configs=changes)
        admin.alter_configs([resource], raise_on_unknown=False)  # rates are listed only where they are set
    finally:
        admin.close()
