"""Real clients whose sessions expire repeatedly, and workers that start and stop while TLS clients are connected."""

from __future__ import annotations

import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ...clients.admin import create_topic, unique
from ...harness import java
from ...harness.process import wait_until
from .client_settings import Way, java_file, librdkafka
from .secured_broker import SecuredBroker

pytestmark = pytest.mark.live

SECONDS = 120
LIFETIME_MS = 2000
RENEWALS = 30


def authentications(broker: SecuredBroker, since: int) -> int:
    return broker.log[since:].count("SASL_SSL): authenticated as User:alice")


def failures(broker: SecuredBroker, since: int) -> list[str]:
    words = ("authentication failed", "has expired", "Traceback")
    return [line for line in broker.log[since:].splitlines() if any(word in line for word in words)]


def test_confluent_kafka_re_authenticates(tmp_path: Path) -> None:
    """Its producer and consumer continue over many sessions, without an error."""
    from confluent_kafka import Consumer, Producer

    broker = SecuredBroker(tmp_path, odradek_log_level="DEBUG", connections_max_reauth_ms=LIFETIME_MS)
    errors: list[Any] = []

    def delivered(error: Any, _: Any) -> None:
        if error:
            errors.append(error)

    try:
        broker.start()
        topic, since, count = create_topic(broker, "sessions"), len(broker.log), 0
        config = librdkafka(broker, Way("SASL_SSL", "PLAIN")) | {"error_cb": errors.append}
        producer = Producer(config)
        consumer = Consumer(config | {"group.id": unique("g"), "auto.offset.reset": "earliest"})
        consumer.subscribe([topic])
        found: list[bytes] = []
        deadline = time.monotonic() + SECONDS
        while authentications(broker, since) < RENEWALS:
            assert time.monotonic() < deadline
            producer.produce(topic, b"%d" % count, on_delivery=delivered)
            count += 1
            found += _values(consumer, 0.02)
        assert producer.flush(SECONDS) == 0
        wait_until(lambda: found.extend(_values(consumer, 0.5)) or len(found) >= count, SECONDS)
        consumer.close()
        assert found == [b"%d" % number for number in range(count)]
        assert not errors
        assert not failures(broker, since)
    finally:
        broker.close()


def _values(consumer: Any, seconds: float) -> list[bytes]:
    return [message.value() for message in consumer.consume(500, seconds) if not message.error()]


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.9.1", "4.1.0"])
@pytest.mark.needs("java-3.9.1", "java-4.1.0")
def test_java_producer_re_authenticates(tmp_path: Path, version: str) -> None:
    """The producer runs for 20 seconds with sessions of two."""
    broker = SecuredBroker(tmp_path, odradek_log_level="DEBUG", connections_max_reauth_ms=LIFETIME_MS)
    try:
        broker.start()
        topic, since = create_topic(broker, "sessions"), len(broker.log)
        words = ["--topic", topic, "--num-records", "4000", "--record-size", "100", "--throughput", "200"]
        words += ["--producer-props", f"bootstrap.servers={broker.address('SASL_SSL')}", "acks=all"]
        words += ["--producer.config", java_file(broker, Way("SASL_SSL", "PLAIN"))]
        done = java.run(version, "org.apache.kafka.tools.ProducerPerformance", *words)
        output = done.stdout + done.stderr
        assert b"4000 records sent" in output
        assert b"rror" not in output, output
        assert b"Exception" not in output, output
        assert authentications(broker, since) >= 4, "a JVM may take half of the time to start"
        assert not failures(broker, since)
    finally:
        broker.close()


def test_scaling_of_workers_loses_no_record_of_secured_producers(tmp_path: Path) -> None:
    """TLS connections close between requests, and clients reconnect to another worker without an error."""
    from confluent_kafka import Producer

    broker = SecuredBroker(tmp_path)
    fatal: list[Any] = []

    def delivered(error: Any, _: Any) -> None:
        if error:
            fatal.append(error)

    try:
        broker.start()
        topic = create_topic(broker, "scale")
        producers = [
            Producer(librdkafka(broker, Way(*way)) | {"enable.idempotence": True})
            for way in (("SSL", ""), ("SASL_SSL", "PLAIN"), ("SASL_PLAINTEXT", "PLAIN"))
            for _ in range(4)
        ]
        sent = 0
        for workers in (2, 1, 3):
            if workers != 2:
                done = broker.command("scale", str(broker.properties_file), "--workers", str(workers))
                assert done.returncode == 0, done.stdout + done.stderr
            for _ in range(40):
                for producer in producers:
                    producer.produce(
                        topic, b"%d" % sent, on_delivery=lambda error, _: fatal.append(error) if error else None
                    )
                    sent += 1
                    producer.poll(0)
                time.sleep(0.05)
            wait_until(partial(_has_workers, broker, workers), SECONDS)
        assert all(producer.flush(SECONDS) == 0 for producer in producers)
        assert not fatal
        assert _count(broker, topic) == sent
        assert "Traceback" not in broker.log
    finally:
        broker.close()


def _has_workers(broker: SecuredBroker, workers: int) -> bool:
    return len(broker.pids("worker")) == workers


def _count(broker: SecuredBroker, topic: str) -> int:
    done = subprocess.run(
        ["kcat", "-C", "-e", "-q", "-b", broker.bootstrap, "-t", topic], capture_output=True, timeout=60, check=True
    )
    return len(set(done.stdout.split())) if len(done.stdout.split()) == len(set(done.stdout.split())) else -1
