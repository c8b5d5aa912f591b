"""Counters by topic of a real broker: what real clients sent and read, also when processes are killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

from odradek.protocol import errors

from ...clients.raw import batches, calls
from ...harness.broker import Broker
from ...harness.process import wait_until
from .conftest import Metered, await_exporter
from .scraping import OPENMETRICS, Values, of, scrape

pytestmark = pytest.mark.live

TOPICS = {"flights": 300, "bookings": 70}  # records
PARTITIONS = 2
_JMX = "kafka_server_brokertopicmetrics"


@pytest.fixture
def used(metered: Metered) -> Iterator[tuple[Broker, str]]:
    """Two workers; each topic has records of a producer of its own, and a consumer has read them all."""
    broker, address = metered(odradek_workers=2)
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in TOPICS])
    admin.close()
    producers = {topic: KafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=5) for topic in TOPICS}
    for topic, count in TOPICS.items():
        send(producers[topic], topic, count)
    for topic, count in TOPICS.items():
        read(broker, topic, count)
        producers[topic].close()
    yield broker, address


def send(producer: KafkaProducer, topic: str, count: int) -> None:
    sent = [producer.send(topic, b"%d" % number, partition=number % PARTITIONS) for number in range(count)]
    for future in sent:
        future.get(30)


def read(broker: Broker, topic: str, count: int) -> None:
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=30_000
    )
    consumer.assign([TopicPartition(topic, partition) for partition in range(PARTITIONS)])
    for _ in range(count):
        next(consumer)
    consumer.close()


def stored(broker: Broker, topic: str) -> int:
    """Bytes in the topic's logs."""
    return sum(path.stat().st_size for path in broker.data_dir.glob(f"{topic}-*/*.log"))


def of_topic(values: Values, topic: str) -> dict[str, float]:
    """Our counters of a topic, by name."""
    begin, labels = "odradek_topic_", (("topic", topic),)
    return {
        name.removeprefix(begin): value
        for (name, found), value in values.items()
        if name.startswith(begin) and found == labels
    }


def test_counters_are_what_clients_sent_and_read(used: tuple[Broker, str]) -> None:
    broker, address = used
    values, jmx = scrape(address), scrape(address, "jmx")
    for topic, count in TOPICS.items():
        shown, size = of_topic(values, topic), stored(broker, topic)
        assert shown["messages_in_total"] == count
        assert shown["bytes_in_total"] == size == shown["bytes_out_total"]
        assert PARTITIONS <= shown["produce_requests_total"] <= count
        assert shown["fetch_requests_total"] >= PARTITIONS
        assert shown["failed_produce_requests_total"] == shown["failed_fetch_requests_total"] == 0
        assert of(jmx, f"{_JMX}_messagesin_total", topic=topic) == count
        assert of(jmx, f"{_JMX}_bytesout_total", topic=topic) == size
    assert of(jmx, f"{_JMX}_messagesin_total") == sum(TOPICS.values())
    assert of(jmx, f"{_JMX}_bytesin_total") == sum(stored(broker, topic) for topic in TOPICS)
    assert of(jmx, f"{_JMX}_replicationbytesout_total") == 0
    assert scrape(address, "jmx", OPENMETRICS).keys() >= {(f"{_JMX}_bytesin_total", (("topic", "flights"),))}


def test_requests_that_fail_count_for_their_topic(used: tuple[Broker, str]) -> None:
    broker, address = used
    with broker.wire() as wire:
        before = of_topic(scrape(address), "flights")
        invalid = batches.batch([b"x"], count=5, last_delta=4)
        assert calls.produce(wire, "flights", invalid).error_code == errors.INVALID_RECORD
        assert calls.produce(wire, "flights", batches.batch([b"x"], break_crc=True)).error_code
    after = of_topic(scrape(address), "flights")
    changed = {name: after[name] - before[name] for name in after if after[name] != before[name]}
    assert changed == {"produce_requests_total": 2, "failed_produce_requests_total": 1}
    assert of_topic(scrape(address), "bookings")["failed_produce_requests_total"] == 0
    jmx = scrape(address, "jmx")
    assert of(jmx, f"{_JMX}_failedproducerequests_total") == 1
    assert of(jmx, f"{_JMX}_failedproducerequests_total", topic="flights") == 1


def test_killed_processes_lose_no_counts(used: tuple[Broker, str]) -> None:
    broker, address = used
    before = {topic: of_topic(scrape(address), topic) for topic in TOPICS}
    dead = broker.pids("worker")
    for pid in dead:
        os.kill(pid, signal.SIGKILL)
    assert {topic: of_topic(scrape(address), topic) for topic in TOPICS} == before
    with KafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
        send(producer, "flights", 10)
    assert not set(broker.pids("worker")) & set(dead)
    exporter = broker.kill_role("exporter")
    broker.await_respawn("exporter", exporter)
    await_exporter(address)
    after = {topic: of_topic(scrape(address), topic) for topic in TOPICS}
    assert after["bookings"] == before["bookings"]
    assert after["flights"]["messages_in_total"] == before["flights"]["messages_in_total"] + 10
    assert after["flights"]["bytes_in_total"] == stored(broker, "flights")


def test_a_recreated_topic_begins_at_zero(used: tuple[Broker, str]) -> None:
    broker, address = used
    before = of(scrape(address, "jmx"), f"{_JMX}_messagesin_total")
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.delete_topics(["flights"])
    admin.create_topics([NewTopic("flights", PARTITIONS, 1)])
    admin.close()
    assert set(of_topic(scrape(address), "flights").values()) == {0}
    assert of(scrape(address, "jmx"), f"{_JMX}_messagesin_total") == before


def test_what_the_coordinator_appends_counts(used: tuple[Broker, str]) -> None:
    broker, address = used
    consumer = KafkaConsumer("flights", bootstrap_servers=broker.bootstrap, group_id="g", enable_auto_commit=False)
    consumer.poll(1000)
    consumer.commit()
    consumer.close()
    topic = "__consumer_offsets"
    wait_until(lambda: of_topic(scrape(address), topic).get("messages_in_total"), 20, "the commit is counted")
    shown = of_topic(scrape(address), topic)
    assert shown["bytes_in_total"] == stored(broker, "__consumer_offsets")
    assert shown["produce_requests_total"] > 0
