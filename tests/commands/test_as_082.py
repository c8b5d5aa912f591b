"""Commands print what the tools of Apache Kafka 0.8.2.2 print for the same broker, with the same exit codes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from odradek.broker.commands._shared.client import Cluster
from odradek.cluster.tree.zookeeper import ZooKeeperTree

from ..clients.admin import create_topic
from ..harness import java
from ..harness.broker import Broker
from ..harness.process import wait_until
from ..harness.zookeeper import ZooKeeper
from .conftest import SECONDS, command_line

VERSION = "0.8.2.2"
TOOLS = {
    "consumer-offset-checker": "ConsumerOffsetChecker",
    "simple-consumer-shell": "SimpleConsumerShell",
    "replay-log-producer": "ReplayLogProducer",
}
RECORDS: list[tuple[bytes | None, bytes | None]] = [(b"a", b"one"), (None, b"two"), (b"c", None), (b"d", b"\xff\x00")]

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1", f"java-{VERSION}")]


class World:
    """ZooKeeper, a broker, and a topic of two partitions with RECORDS in the first."""

    def __init__(self, folder: Path) -> None:
        self.zookeeper = ZooKeeper(folder / "zookeeper").start()
        self.broker = Broker(folder, odradek_workers=1)
        self.broker.properties |= {"zookeeper.connect": self.zookeeper.connect}

    def start(self) -> World:
        self.broker.start()
        self.topic = self.make_topic()
        self.send(self.topic, RECORDS)
        return self

    def make_topic(self, partitions: int = 2) -> str:
        name = create_topic(self.broker, "old", partitions)
        with Cluster(self.broker.bootstrap) as cluster:
            wait_until(lambda: not cluster.leaders([(name, partitions - 1)])[1], 30, "a leader")
        return name

    def send(self, topic: str, records: list[Any], codec: str = "none") -> None:
        producer = Producer(
            {"bootstrap.servers": self.broker.bootstrap, "compression.type": codec, "acks": "all", "linger.ms": 20}
        )
        for key, value in records:
            producer.produce(topic, value, key, partition=0)
        assert producer.flush(30) == 0

    def ours(self, command: str, *words: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(command_line(command, *words), capture_output=True, timeout=SECONDS)

    def theirs(self, command: str, *words: str) -> subprocess.CompletedProcess[bytes]:
        return java.run(VERSION, f"kafka.tools.{TOOLS[command]}", *words, check=False)

    def both(self, command: str, *words: str) -> str:
        """What both print to standard output."""
        ours, theirs = self.ours(command, *words), self.theirs(command, *words)
        assert (ours.stdout, ours.returncode) == (theirs.stdout, theirs.returncode), (ours.stderr, theirs.stderr)
        return ours.stdout.decode(errors="replace")

    def committed(self, group: str, offsets: dict[int, int]) -> str:
        """Commit offsets of the topic to Kafka."""
        from kafka.structs import OffsetAndMetadata, TopicPartition

        places = {TopicPartition(self.topic, i): OffsetAndMetadata(at, "", -1) for i, at in offsets.items()}
        with Cluster(self.broker.bootstrap) as cluster:
            cluster.admin.alter_group_offsets(group, places)
        return group


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("old"))
    try:
        yield made.start()
    finally:
        made.broker.close()
        made.zookeeper.kill()


@pytest.fixture
def tree(world: World) -> Iterator[ZooKeeperTree]:
    opened = ZooKeeperTree(world.zookeeper.connect)
    yield opened
    opened.close()


def checked(world: World, *words: str) -> list[list[str]]:
    """The lines of both checkers, as words."""
    printed = world.both("consumer-offset-checker", "--zookeeper", world.zookeeper.connect, *words)
    return [line.split() for line in printed.splitlines()]


def test_offsets_in_kafka(world: World) -> None:
    group = world.committed("kafkas", {0: 1, 1: 0})
    header, first, second = checked(world, "--group", group, "--topic", world.topic)
    assert header == ["Group", "Topic", "Pid", "Offset", "logSize", "Lag", "Owner"]
    assert first == [group, world.topic, "0", "1", "4", "3", "none"]
    assert second == [group, world.topic, "1", "0", "0", "0", "none"]


def test_offsets_and_owners_in_zookeeper(world: World, tree: ZooKeeperTree) -> None:
    """Kafka's offset of a partition comes first; the topics are those with owners."""
    group = world.committed("both", {0: 2})
    for kind, index, data in (("offsets", 1, b"0"), ("owners", 0, b"both_host-1-0")):
        tree.ensure(f"/consumers/{group}/{kind}/{world.topic}")
        tree.create(f"/consumers/{group}/{kind}/{world.topic}/{index}", data)
    rows = checked(world, "--group", group, "--broker-info")
    assert rows[1] == [group, world.topic, "0", "2", "4", "2", "both_host-1-0"]
    assert rows[2] == [group, world.topic, "1", "0", "0", "0", "none"]
    assert rows[3:] == [["BROKER", "INFO"], ["0", "->", world.broker.bootstrap]]


def test_partition_without_an_offset(world: World, tree: ZooKeeperTree) -> None:
    tree.ensure(f"/consumers/part/offsets/{world.topic}")
    tree.create(f"/consumers/part/offsets/{world.topic}/0", b"3")
    rows = checked(world, "--group", "part", "--topic", world.topic)
    assert [row[3:6] for row in rows[1:]] == [["3", "4", "1"], ["-1", "0", "unknown"]]


@pytest.mark.parametrize("topic", ["", "TOPIC", "no-such-topic"])
def test_unknown_groups_and_topics(world: World, topic: str) -> None:
    words = ["--topic", topic.replace("TOPIC", world.topic)] if topic else []
    rows = checked(world, "--group", "nobody", *words)
    assert len(rows) == 1 and (rows[0][0] == "Exiting") == (topic != "no-such-topic")


def test_damaged_offset_is_one_line(world: World, tree: ZooKeeperTree) -> None:
    tree.ensure(f"/consumers/damaged/offsets/{world.topic}")
    tree.create(f"/consumers/damaged/offsets/{world.topic}/0", b"many")
    words = ("--zookeeper", world.zookeeper.connect, "--group", "damaged", "--topic", world.topic)
    done = world.ours("consumer-offset-checker", *words)
    assert done.returncode == 1 and done.stderr.count(b"\n") == 1 and b"many" in done.stderr


def shell(world: World, *words: str) -> str:
    """What both simple consumers print, without waiting at the end."""
    place = ("--broker-list", world.broker.bootstrap, "--topic", world.topic, "--partition", "0")
    return world.both("simple-consumer-shell", *place, "--no-wait-at-logend", *words)


@pytest.mark.smoke
def test_partition_from_its_beginning(world: World) -> None:
    *records, end = shell(world).splitlines()
    assert records[:3] == ["one", "two", "null"]
    assert end == f"Terminating. Reached the end of partition ({world.topic}, 0) at offset 4"


def test_partition_from_its_end(world: World) -> None:
    assert shell(world, "--offset", "-1").splitlines() == shell(world).splitlines()[-1:]


@pytest.mark.parametrize(
    "words",
    [
        ["--print-offsets", "--property", "print.key=true"],
        ["--property", "print.key=true", "--property", "key.separator=:", "--property", "line.separator=;"],
        ["--offset", "1", "--max-messages", "2"],
        ["--max-messages", "0"],
        ["--offset", "99"],
        ["--offset", "-3"],
        ["--replica", "0", "--clientId", "me"],
        ["--replica", "7"],
        ["--fetchsize", "200", "--max-wait-ms", "10"],
        ["--formatter", "kafka.tools.NoOpMessageFormatter"],
        ["--formatter", "kafka.tools.ChecksumMessageFormatter"],
    ],
)
def test_options_of_the_simple_consumer(world: World, words: list[str]) -> None:
    shell(world, *words)


@pytest.mark.parametrize("codec", ["gzip", "snappy"])
def test_compressed_messages(world: World, codec: str) -> None:
    topic = world.make_topic(1)
    world.send(topic, [(b"%d" % i, b"value") for i in range(50)], codec)
    words = ("--broker-list", world.broker.bootstrap, "--topic", topic, "--partition", "0", "--no-wait-at-logend")
    printed = world.both("simple-consumer-shell", *words, "--print-offsets")
    assert printed.count("value") == 50
    later = world.ours("simple-consumer-shell", *words, "--print-offsets", "--offset", "7").stdout.decode()
    assert later == printed[printed.index("next offset = 8\n") :], "theirs begins with the batch"


@pytest.mark.parametrize(("topic", "partition"), [("TOPIC", "5"), ("no-such-topic", "0")])
def test_missing_partition(world: World, topic: str, partition: str) -> None:
    place = ("--topic", topic.replace("TOPIC", world.topic), "--partition", partition)
    done = world.ours("simple-consumer-shell", "--broker-list", world.broker.bootstrap, *place)
    same = world.theirs("simple-consumer-shell", "--broker-list", world.broker.bootstrap, *place)
    assert done.stderr == same.stderr.splitlines(keepends=True)[-1] and done.returncode == same.returncode == 1


def copied(world: World, run: Any, *words: str, partitions: int = 1) -> list[str]:
    """Keys and values of a topic that `run` has copied the topic of the world to, sorted."""
    copy = world.make_topic(partitions)
    addresses = ("--broker-list", world.broker.bootstrap, "--zookeeper", world.zookeeper.connect)
    done = run("replay-log-producer", *addresses, "--inputtopic", world.topic, "--outputtopic", copy, *words)
    assert (done.returncode, done.stdout) == (0, b""), done.stderr
    read = ("--topic", copy, "--from-beginning", "--timeout-ms", "3000", "--property", "print.key=true")
    lines = world.ours("console-consumer", "--bootstrap-server", world.broker.bootstrap, *read).stdout
    return sorted(lines.decode(errors="replace").splitlines())


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["--threads", "2", "--property", "acks=all"],
        *(pytest.param(words, marks=pytest.mark.long) for words in ([], ["--messages", "3", "--sync"])),
    ],
)
def test_topic_is_copied(world: World, words: list[str]) -> None:
    assert copied(world, world.ours, *words) == copied(world, world.theirs, *words) != []


def test_message_that_cannot_be_copied_is_an_error(world: World) -> None:
    """Theirs ends with 0."""
    words = ("--inputtopic", world.topic, "--outputtopic", "bad name", "--messages", "1")
    done = world.ours("replay-log-producer", "--broker-list", world.broker.bootstrap, *words)
    assert done.returncode == 1 and b"Traceback" not in done.stderr, done.stderr
    done = world.ours(
        "replay-log-producer", "--broker-list", world.broker.bootstrap, "--inputtopic", "none", "--outputtopic", "o"
    )
    assert done.returncode == 1 and b"there is no topic none" in done.stderr


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("consumer-offset-checker", ["--group", "g"]),
        ("consumer-offset-checker", ["--zookeeper", "h:1"]),
        ("simple-consumer-shell", ["--topic", "t"]),
        ("simple-consumer-shell", ["--broker-list", "h:1"]),
        ("replay-log-producer", ["--broker-list", "h:1", "--inputtopic", "t"]),
        ("replay-log-producer", ["--broker-list", "h:1", "--inputtopic", "t", "--outputtopic", "o",
                                 "--zk-tls-config-file", "f"]),
    ],
)  # fmt: skip
def test_usage(world: World, command: str, words: list[str]) -> None:
    done = world.ours(command, *words)
    assert done.returncode == 2 and done.stdout == b"", done
