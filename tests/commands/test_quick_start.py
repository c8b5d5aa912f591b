"""The quick start of the Kafka 0.8.2 manual, steps 2 to 6, verbatim except ports and paths."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..harness.checkout import Checkout
from ..harness.process import family, wait_dead, wait_until

pytestmark = [pytest.mark.live, pytest.mark.needs("java-3.9.1")]

DESCRIBE = "bin/kafka-topics.sh --describe --zookeeper localhost:2181 --topic {}"
HEADER = "Topic:{}\tPartitionCount:1\tReplicationFactor:{}\tConfigs:\n"
ROW = r"\tTopic: {}\tPartition: 0\tLeader: (\S+)\tReplicas: (\S+)\tIsr: (\S*)\n"
CREATE = "bin/kafka-topics.sh --create --zookeeper localhost:2181 --replication-factor {} --partitions 1 --topic {}"


class Terminal:
    """Runs lines of the manual; the end of the test stops programs that still run."""

    def __init__(self, folder: Path) -> None:
        self.here = Checkout(folder)
        for name in ("server-1", "server-2"):
            self.here.config(name).unlink()
        self.started: list[subprocess.Popen[bytes]] = []

    def begin(self, line: str) -> subprocess.Popen[bytes]:
        self.started.append(self.here.start(line, f"log-{len(self.started)}"))
        return self.started[-1]

    def start_broker(self, name: str) -> None:
        self.begin(f"bin/kafka-server-start.sh config/{name}.properties")
        log = self.here.folder / f"log-{len(self.started) - 1}"
        wait_until(lambda: "\nREADY " in "\n" + log.read_text(), 60, f"{name} is ready")

    def described(self, topic: str, factor: int) -> tuple[str, list[str], list[str]]:
        """The leader, the replicas and the ISR."""
        printed = self.here.run(DESCRIBE.format(topic))
        header, row = printed.splitlines(keepends=True)
        assert header == HEADER.format(topic, factor)
        found = re.fullmatch(ROW.format(topic), row)
        assert found, row
        return found[1], found[2].split(","), found[3].split(",")

    def await_described(self, topic: str, factor: int, in_sync: int) -> tuple[str, list[str], list[str]]:
        """The same as `described`, once `in_sync` replicas are in sync."""
        check = lambda: (found := self.described(topic, factor)) and len(found[2]) == in_sync and found  # noqa: E731
        return wait_until(check, 60, f"{in_sync} in-sync replicas of {topic}")

    def produce(self, topic: str, *messages: str) -> None:
        line = f"bin/kafka-console-producer.sh --broker-list localhost:9092 --topic {topic}"
        self.here.run(line, stdin="".join(f"{message}\n" for message in messages))

    def consume(self, options: str, *messages: str) -> None:
        """Consume all messages, then send Ctrl-C."""
        consumer = self.begin(f"bin/kafka-console-consumer.sh --zookeeper localhost:2181 {options} 2>errors")
        log = self.here.folder / f"log-{len(self.started) - 1}"
        wait_until(lambda: all(message in log.read_text() for message in messages), 60, f"{messages} in {log}")
        os.killpg(consumer.pid, signal.SIGINT)
        assert consumer.wait(30) == 130
        assert log.read_text().splitlines()[: len(messages)] == list(messages)

    def supervisors(self, name: str) -> list[int]:
        """The pids that `ps | grep NAME.properties` finds, of processes of this test only."""
        shown = self.here.run(f"ps -axwwo pid=,args= | grep 'odradek start .*config/{name}.properties'")
        pids = [int(line.split()[0]) for line in shown.splitlines() if "grep" not in line]
        return [pid for pid in pids if Path(f"/proc/{pid}/cwd").resolve() == self.here.folder.resolve()]

    def end(self) -> None:
        for process in reversed(self.started):  # ZooKeeper was started first and ends last
            members = family(process.pid)
            process.terminate()
            process.wait(60)
            assert not wait_dead(members)
        self.here.sweep()


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    opened = Terminal(tmp_path)
    yield opened
    opened.end()


def test_quick_start_of_kafka_082_works(terminal: Terminal) -> None:
    start_the_server(terminal)
    create_send_consume(terminal)
    set_up_a_cluster(terminal)
    replicate(terminal)
    lose_a_broker(terminal)


def start_the_server(terminal: Terminal) -> None:
    terminal.begin("bin/zookeeper-server-start.sh config/zookeeper.properties")
    terminal.start_broker("server")


def create_send_consume(terminal: Terminal) -> None:
    assert terminal.here.run(CREATE.format(1, "test")) == 'Created topic "test".\n'
    assert terminal.here.run("bin/kafka-topics.sh --list --zookeeper localhost:2181") == "test\n"
    messages = ("This is a message", "This is another message")
    terminal.produce("test", *messages)
    terminal.consume("--topic test --from-beginning", *messages)


def set_up_a_cluster(terminal: Terminal) -> None:
    for number in (1, 2):
        terminal.here.run(f"cp config/server.properties config/server-{number}.properties")
        edit = f"broker.id={number}\nport={9092 + number}\nlog.dir=/tmp/kafka-logs-{number}\n"
        with terminal.here.config(f"server-{number}").open("a") as file:
            file.write(terminal.here.own(edit))
        terminal.start_broker(f"server-{number}")


def replicate(terminal: Terminal) -> None:
    terminal.here.run(CREATE.format(3, "my-replicated-topic"))
    leader, replicas, _ = terminal.await_described("my-replicated-topic", 3, in_sync=3)
    assert sorted(replicas) == ["0", "1", "2"] and leader in replicas
    assert terminal.described("test", 1) == ("0", ["0"], ["0"])
    messages = ("my test message 1", "my test message 2")
    terminal.produce("my-replicated-topic", *messages)
    terminal.consume("--from-beginning --topic my-replicated-topic", *messages)


def lose_a_broker(terminal: Terminal) -> None:
    """Kill the leader, which is broker 1 in the manual."""
    leader, replicas, _ = terminal.described("my-replicated-topic", 3)
    (pid,) = terminal.supervisors("server" if leader == "0" else f"server-{leader}")
    members = family(pid)
    terminal.here.run(f"kill -9 {pid}")
    assert not wait_dead(members)
    left = [broker for broker in replicas if broker != leader]
    now, same, in_sync = terminal.await_described("my-replicated-topic", 3, in_sync=2)
    assert (now in left, same, sorted(in_sync)) == (True, replicas, sorted(left))
    line = "--from-beginning --topic my-replicated-topic"
    terminal.consume(line, "my test message 1", "my test message 2")
