"""`odradek consumer-groups --describe --lag-seconds`: the age of the record that a group reads next."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka.structs import OffsetAndMetadata, TopicPartition

from odradek.broker.commands._shared.client import Cluster, Partition
from odradek.broker.commands.consumer_groups.lag_seconds import lag_seconds, timestamps

from ..clients.admin import create_named, leads, unique
from ..harness.apache import Apache
from ..harness.process import wait_until
from ..harness.wire import Wire
from .conftest import Run

pytestmark = pytest.mark.live

HOUR_MS = 3_600_000
BEGIN_MS = int(time.time() * 1000) - HOUR_MS  # retention deletes records of 1970
SMALL, LARGE, HUGE = 10, 300_000, 2_500_000  # bytes of a record: within a pass, or of a later one
SIZES = [SMALL, LARGE, SMALL, HUGE, HUGE, LARGE, SMALL, LARGE]  # of the records of each partition
RECORDS = 6


class Counting(Cluster):
    """Counts the Fetch requests."""

    sent = 0

    def send_each(self, requests: Mapping[int, Any]) -> dict[int, Any]:
        self.sent += len(requests)
        return super().send_each(requests)


@pytest.fixture(scope="module", params=["odradek", pytest.param("4.1.0", marks=pytest.mark.needs("java-4.1.0"))])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Ours, and Apache's."""
    if request.param == "odradek":
        yield request.getfixturevalue("broker").bootstrap
        return
    apache = Apache(request.param, tmp_path_factory.mktemp("apache"))
    try:
        yield apache.start().bootstrap
    finally:
        apache.kill()


@pytest.fixture(scope="module")
def cluster(bootstrap: str) -> Iterator[Counting]:
    opened = Counting(bootstrap)
    with opened:
        yield opened


def make_topic(cluster: Cluster, partitions: int, **configs: str) -> str:
    name = unique("lag")
    (node,) = cluster.metadata([]).brokers
    with Wire(f"{node.host}:{node.port}") as wire:
        create_named(wire, name, partitions, 1, **configs)
        wait_until(lambda: all(leads(wire, name, at) for at in range(partitions)), what=f"{name} is led")
    return name


def send(bootstrap: str, topic: str, sizes: list[int], codec: str = "none", first_ms: int = BEGIN_MS) -> None:
    """RECORDS records to each partition; the time of each is one second more than that of the record before."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap, "compression.type": codec, "message.max.bytes": 9_000_000, "linger.ms": 50,
            "acks": "all",
        }
    )  # fmt: skip
    for offset in range(RECORDS):
        for index, size in enumerate(sizes):
            producer.produce(topic, b"x" * size, partition=index, timestamp=first_ms + 1000 * offset)
    assert producer.flush(60) == 0


def test_each_record_has_its_own_time_whatever_its_batch(cluster: Counting, bootstrap: str) -> None:
    topic = make_topic(cluster, len(SIZES), max_message_bytes="9000000")
    send(bootstrap, topic, SIZES)
    for offset in (0, 3, RECORDS - 1):
        found = timestamps(cluster, {(topic, index): offset for index in range(len(SIZES))})
        assert found.times == {(topic, index): BEGIN_MS + 1000 * offset for index in range(len(SIZES))}
        assert not found.failed


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_records(cluster: Counting, bootstrap: str, codec: str) -> None:
    topic = make_topic(cluster, 1)
    send(bootstrap, topic, [1000], codec)
    assert timestamps(cluster, {(topic, 0): 4}).times == {(topic, 0): BEGIN_MS + 4000}


def test_where_there_is_no_record(cluster: Counting, bootstrap: str) -> None:
    """At the log end there is none yet; before the log start the first one left counts."""
    topic = make_topic(cluster, 2)
    send(bootstrap, topic, [SMALL, SMALL])
    cluster.admin.delete_records({TopicPartition(topic, 1): 2})
    asked: dict[Partition, int] = {(topic, 0): RECORDS, (topic, 1): 0, ("no-such-topic", 0): 0}
    found = timestamps(cluster, asked)
    assert found.times == {(topic, 0): -1, (topic, 1): BEGIN_MS + 2000}
    assert list(found.failed) == [("no-such-topic", 0)] and "UNKNOWN_TOPIC" in found.failed["no-such-topic", 0].upper()


def test_thousands_of_partitions_are_few_requests(broker: Any) -> None:
    count = 2500
    cluster = Counting(broker.bootstrap)
    with cluster:
        topic = make_topic(cluster, count)
        send(broker.bootstrap, topic, [SMALL] * count)
        found = timestamps(cluster, {(topic, index): 2 for index in range(count)})
        assert found.times == {(topic, index): BEGIN_MS + 2000 for index in range(count)}
        assert cluster.sent == 3
        assert set(timestamps(cluster, {(topic, index): RECORDS for index in range(count)}).times.values()) == {-1}
        assert cluster.sent == 6, "an end of a log is no reason to ask for more"


def test_append_time_counts_where_the_topic_has_it(cluster: Counting, bootstrap: str) -> None:
    topic = make_topic(cluster, 1, message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    send(bootstrap, topic, [SMALL])
    after = int(time.time() * 1000)
    assert before <= timestamps(cluster, {(topic, 0): 2}).times[topic, 0] <= after


def described(run: Run, group: str, *words: str) -> Any:
    return json.loads(run("consumer-groups", "--describe", "--group", group, "--json", *words).stdout)


@pytest.fixture
def group(run: Run, broker: Any, name: str) -> tuple[str, str, int]:
    """A group that has read 4 of the records of partition 0 and all of partition 1; its topic; the next one's time."""
    with Cluster(broker.bootstrap) as cluster:
        topic = make_topic(cluster, 2)
        first_ms = int(time.time() * 1000) - HOUR_MS
        send(broker.bootstrap, topic, [SMALL, SMALL], first_ms=first_ms)
        offsets = {TopicPartition(topic, i): OffsetAndMetadata(o, "", -1) for i, o in enumerate((4, RECORDS))}
        cluster.admin.alter_group_offsets(name, offsets)
    return name, topic, first_ms + 4000


def test_lag_in_seconds_is_the_last_column(run: Run, group: tuple[str, str, int]) -> None:
    name, _topic, at_ms = group
    before = time.time()
    printed = run("consumer-groups", "--describe", "--group", name, "--lag-seconds").stdout.decode().split("\n")
    after = time.time()
    kafkas = run("consumer-groups", "--describe", "--group", name).stdout.decode().split("\n")
    assert printed[1].split() == [*kafkas[1].split(), "LAG-SECONDS"]
    behind, level = (line.split() for line in printed[2:4])
    assert [behind[:-1], level[:-1]] == [line.split() for line in kafkas[2:4]]
    assert int((before - at_ms / 1000) * 1000) <= float(behind[-1]) * 1000 <= (after - at_ms / 1000) * 1000
    assert float(level[-1]) == 0


def test_json_has_it_only_if_asked(run: Run, group: tuple[str, str, int]) -> None:
    first, second = described(run, group[0], "--lag-seconds")
    assert first["lagSeconds"] >= HOUR_MS / 1000 - 4 and second["lagSeconds"] == 0
    assert all("lagSeconds" not in row for row in described(run, group[0]))


def test_unknown_lag_is_one_line(cluster: Counting, capsys: pytest.CaptureFixture[str]) -> None:
    places: list[Partition] = [("no-such-topic", index) for index in range(3)]
    found = lag_seconds(cluster, dict.fromkeys(places, 4), dict.fromkeys(places[:2], 9))
    assert found == dict.fromkeys(places[:2]), "without a log end there is no lag at all"
    assert capsys.readouterr().err.startswith("Warning: no lag in seconds of 2 partition(s) of no-such-topic: ")


@pytest.mark.parametrize("words", [["--describe", "--members"], ["--describe", "--state"], ["--delete"]])
def test_usage(run: Run, words: list[str]) -> None:
    done = run("consumer-groups", *words, "--group", "g", "--lag-seconds", code=2)
    assert b"--lag-seconds cannot be given with" in done.stderr
