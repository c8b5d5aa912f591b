"""`odradek top` in a terminal of 80 by 24 with a real broker, and its errors where it cannot run."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from ...harness.broker import Broker
from ..conftest import command_line
from .terminal import top

pytestmark = pytest.mark.live


def _load(broker: Broker) -> None:
    with KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all") as producer:
        for _ in range(30):
            producer.send("flights", b"x").get(30)
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id="readers", enable_auto_commit=False)
    consumer.commit({TopicPartition("flights", 0): OffsetAndMetadata(10, "", -1)})
    consumer.close()


def test_views_of_a_running_broker(fresh_broker: Callable[..., Broker]) -> None:
    broker = fresh_broker(num_partitions=1)
    _load(broker)
    with top(broker) as (terminal, process):
        assert terminal.await_line("worker-0", "running")
        assert terminal.await_line("broker 0", "requests/s")
        assert terminal.await_line("q quit", "/ filter")
        terminal.type("4/flights\r")
        assert " 1/1 " in terminal.await_line("flights-0", "leader")
        terminal.type("\x1b")
        terminal.await_line("__consumer_offsets-0")
        terminal.type("5")
        assert "20" in terminal.await_line("readers", "flights-0").split()
        terminal.type("6")
        terminal.await_line("PROCESS", "CONN")
        terminal.type("q")
        assert process.wait(30) == 0


@pytest.mark.parametrize("term", ["dumb", ""])
def test_unusable_terminal_is_one_line(fresh_broker: Callable[..., Broker], term: str) -> None:
    broker = fresh_broker()
    master, slave = pty.openpty()
    done = subprocess.run(
        command_line("top", str(broker.properties_file)), stdin=slave, stdout=slave, stderr=subprocess.PIPE,
        env={**os.environ, "TERM": term}, timeout=60,
    )  # fmt: skip
    os.close(master)
    os.close(slave)
    assert done.returncode == 1
    assert done.stderr.count(b"\n") == 1 and f"TERM={term}: set TERM".encode() in done.stderr


def test_missing_terminal_is_one_line(fresh_broker: Callable[..., Broker]) -> None:
    done = fresh_broker().command("top", stdin=subprocess.DEVNULL)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and "odradek status --json" in done.stderr


def test_missing_broker_is_one_line(tmp_path: Path) -> None:
    words = command_line("top", "--override", f"log.dirs={tmp_path}")
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and f"no broker is running on {tmp_path}" in done.stderr
