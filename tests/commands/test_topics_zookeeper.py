"""`odradek topics --zookeeper` and `console-consumer --zookeeper` as scripts of 0.8.2 use them.

No controller runs: the tests write the partition states that a controller would write.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from odradek.cluster.tree import znodes
from odradek.cluster.tree.tree import Tree
from odradek.cluster.tree.zookeeper import ZooKeeperTree

from ..harness.zookeeper import ZooKeeper
from .conftest import SECONDS, command_line

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1")]

SESSION_MS = 60_000  # registrations outlive a stalled test; a server grants at most 20 ticks

Topics = Callable[..., str]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    running = ZooKeeper(tmp_path_factory.mktemp("zookeeper"), SESSION_MS // 20).start()
    yield running
    running.kill()


@pytest.fixture
def connect(server: ZooKeeper) -> str:
    """`zookeeper.connect` of a cluster for this test only."""
    return f"{server.connect}/test-{time.monotonic_ns()}"


@pytest.fixture
def tree(connect: str) -> Iterator[Tree]:
    opened = ZooKeeperTree(connect, SESSION_MS)
    yield opened
    opened.close()


def register(tree: Tree, broker: int, port: int, rack: str | None = None) -> None:
    """Create the node of a live broker."""
    tree.ensure(znodes.BROKER_IDS)
    data = znodes.encode_broker({"PLAINTEXT": ("127.0.0.1", port)}, {"PLAINTEXT": "PLAINTEXT"}, rack, 0)
    tree.create(f"{znodes.BROKER_IDS}/{broker}", data, ephemeral=True)


def lead(tree: Tree, topic: str, partition: int, leader: int, *isr: int) -> None:
    """Create the node of a partition's state."""
    tree.ensure(znodes.partition_path(topic, partition))
    tree.create(znodes.state_path(topic, partition), znodes.encode_state(znodes.PartitionState(leader, 0, [*isr], 1)))


@pytest.fixture
def cluster(tree: Tree) -> Tree:
    """Three registered brokers without a listening process."""
    for broker in range(3):
        register(tree, broker, 9 + broker)
    return tree


def call(connect: str, command: str, *words: str) -> subprocess.CompletedProcess[str]:
    line = command_line(command, "--zookeeper", connect, *words)
    return subprocess.run(line, capture_output=True, text=True, timeout=SECONDS)


@pytest.fixture
def topics(connect: str) -> Topics:
    """The output of `topics("--list")`; asserts the exit code, by default 0."""

    def run(*words: str, code: int = 0) -> str:
        done = call(connect, "topics", *words)
        assert done.returncode == code, done
        assert "Traceback" not in done.stderr
        return done.stdout or done.stderr

    return run


def assignment(tree: Tree, topic: str) -> dict[int, list[int]]:
    return znodes.decode_topic(tree.get(znodes.topic_path(topic))[0]).replicas


def configs(tree: Tree, topic: str) -> dict[str, str]:
    return znodes.decode_config(tree.find(f"{znodes.TOPIC_CONFIGS}/{topic}"))


def test_created_topics_are_listed(topics: Topics, cluster: Tree) -> None:
    words = ("--replication-factor", "3", "--partitions", "7", "--config", "retention.ms=5000")
    assert topics("--create", "--topic", "one", *words) == 'Created topic "one".\n'
    topics("--create", "--topic", "two", "--replica-assignment", "2:1,0:2")
    assert topics("--list") == "one\ntwo\n"
    assert topics("--list", "--topic", "o.*") == "one\n"
    assert {tuple(sorted(replicas)) for replicas in assignment(cluster, "one").values()} == {(0, 1, 2)}
    assert sorted(replicas[0] for replicas in assignment(cluster, "one").values())[::3] == [0, 1, 2]
    assert assignment(cluster, "two") == {0: [2, 1], 1: [0, 2]}
    assert configs(cluster, "one") == {"retention.ms": "5000"} and configs(cluster, "two") == {}
    assert znodes.decode_topic(cluster.get(znodes.topic_path("one"))[0]).id


def test_invalid_topics_are_refused(topics: Topics, cluster: Tree) -> None:
    size = ("--replication-factor", "1", "--partitions", "1")
    topics("--create", "--topic", "there", *size)
    assert 'Topic "there" already exists.' in topics("--create", "--topic", "there", *size, code=1)
    topics("--create", "--topic", "there", *size, "--if-not-exists")
    assert "available brokers: 3" in topics("--create", "--topic", "t", *size[2:], "--replication-factor", "4", code=1)
    assert "invalid" in topics("--create", "--topic", "no name", *size, code=1)
    assert "retention.ms" in topics("--create", "--topic", "t", *size, "--config", "retention.ms=soon", code=1)
    topics("--create", "--topic", "a.b", *size)
    assert "collides" in topics("--create", "--topic", "a_b", *size, code=1)
    topics("--create", "--topic", "t", code=2)
    assert topics("--list") == "a.b\nthere\n"


def test_replicas_are_spread_over_racks(topics: Topics, tree: Tree) -> None:
    for broker in range(4):
        register(tree, broker, 9, rack="left" if broker < 2 else "right")
    topics("--create", "--topic", "t", "--partitions", "8", "--replication-factor", "2")
    assert all((a < 2) != (b < 2) for a, b in assignment(tree, "t").values())


def test_describe_in_the_layout_of_082(topics: Topics, cluster: Tree) -> None:
    topics(
        "--create", "--topic", "my-replicated-topic", "--replica-assignment", "1:2:0,0:1:2", "--config", "flush.ms=9"
    )
    lead(cluster, "my-replicated-topic", 0, 1, 1, 2, 0)
    header = "Topic:my-replicated-topic\tPartitionCount:2\tReplicationFactor:3\tConfigs:flush.ms=9\n"
    first = "\tTopic: my-replicated-topic\tPartition: 0\tLeader: 1\tReplicas: 1,2,0\tIsr: 1,2,0\n"
    second = "\tTopic: my-replicated-topic\tPartition: 1\tLeader: {}\tReplicas: 0,1,2\tIsr: {}\n"
    describe = ("--describe", "--topic", "my-replicated-topic")
    assert topics(*describe) == header + first + second.format("none", "")
    lead(cluster, "my-replicated-topic", 1, 7, 1, 2)
    assert topics(*describe) == header + first + second.format(7, "1,2")
    assert topics("--describe", "--under-replicated-partitions") == second.format(7, "1,2")
    assert topics("--describe", "--unavailable-partitions") == second.format(7, "1,2")
    assert topics("--describe", "--topics-with-overrides") == header
    assert json.loads(topics(*describe, "--json"))[0]["partitions"][0]["isr"] == [1, 2, 0]
    assert "does not exist" in topics("--describe", "--topic", "nothing", code=1)


def test_alter_adds_partitions(topics: Topics, cluster: Tree) -> None:
    topics("--create", "--topic", "t", "--replica-assignment", "1:2")
    assert topics("--alter", "--topic", "t", "--partitions", "3").endswith("Adding partitions succeeded!\n")
    assert assignment(cluster, "t") == {0: [1, 2], 1: [2, 1], 2: [0, 2]}
    topics("--alter", "--topic", "t", "--partitions", "4", "--replica-assignment", "0:1,0:1,0:1,2:0")
    assert assignment(cluster, "t") == {0: [1, 2], 1: [2, 1], 2: [0, 2], 3: [2, 0]}
    topics("--alter", "--topic", "t", "--partitions", "4", code=1)
    topics("--alter", "--topic", "t", "--partitions", "5", "--replica-assignment", "0:1,0:1,0:1,2:0,2:9", code=1)
    topics("--alter", "--topic", "t", "--partitions", "6", "--replica-assignment", "0:1,0:1,0:1,2:0,2:1", code=1)
    assert len(assignment(cluster, "t")) == 4
    topics("--alter", "--topic", "nothing", "--partitions", "4", code=1)


def test_alter_configs_notifies_brokers(topics: Topics, cluster: Tree) -> None:
    words = ("--replica-assignment", "1:2", "--config", "retention.ms=1", "--config", "segment.ms=2")
    topics("--create", "--topic", "t", *words)
    change = ("--config", "flush.ms=3", "--delete-config", "segment.ms")
    assert topics("--alter", "--topic", "t", *change) == 'Updated config for topic "t".\n'
    assert configs(cluster, "t") == {"retention.ms": "1", "flush.ms": "3"}
    (notice,) = cluster.children("/config/changes")
    assert json.loads(cluster.get(f"/config/changes/{notice}")[0]) == {"version": 2, "entity_path": "topics/t"}
    topics("--alter", "--topic", "t", "--config", "flush.ms=soon", code=1)
    assert cluster.children("/config/changes") == [notice]


def test_delete_marks_the_topic_for_deletion(topics: Topics, cluster: Tree) -> None:
    for name in ("gone", "stays", "__consumer_offsets"):
        topics("--create", "--topic", name, "--replica-assignment", "0")
    assert topics("--delete", "--topic", "gone").startswith("Topic gone is marked for deletion.\nNote: ")
    assert topics("--delete", "--topic", "gone") == "Topic gone is already marked for deletion.\n"
    topics("--delete", "--topic", "__consumer_offsets", code=1)
    assert cluster.children(znodes.DELETE_TOPICS) == ["gone"]
    assert topics("--list", "--exclude-internal") == "gone - marked for deletion\nstays\n"
    topics("--delete", "--topic", "nothing", code=1)
    topics("--delete", "--topic", "nothing", "--if-exists")


def test_zookeeper_and_bootstrap_server_exclude_each_other(topics: Topics) -> None:
    topics("--list", "--bootstrap-server", "127.0.0.1:9", code=2)
    topics("--describe", "--under-min-isr-partitions", code=2)
    none = subprocess.run(command_line("topics", "--list"), capture_output=True, timeout=SECONDS)
    assert none.returncode == 2 and b"--zookeeper" in none.stderr


@pytest.mark.long
def test_console_consumer_finds_brokers_in_zookeeper(
    broker: Any, topic: str, run: Any, connect: str, tree: Tree
) -> None:
    read = ("--topic", topic, "--from-beginning", "--max-messages", "2")
    unregistered = call(connect, "console-consumer", *read)
    assert unregistered.returncode == 1 and "no broker is registered" in unregistered.stderr
    register(tree, 0, broker.port)
    run("console-producer", "--topic", topic, stdin=b"This is a message\nThis is another message\n")
    done = call(connect, "console-consumer", *read)
    assert done.stdout == "This is a message\nThis is another message\n", done.stderr
    both = call(connect, "console-consumer", "--bootstrap-server", broker.bootstrap, *read)
    assert both.returncode == 2
