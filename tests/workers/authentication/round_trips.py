"""Each client writes values to a topic of a secured broker, and reads them back."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any

from ...clients.admin import unique
from ...clients.drivers.java import CONSUMER, PRODUCER
from ...harness import java
from ...harness.process import wait_until
from . import client_settings
from .client_settings import Way
from .secured_broker import SecuredBroker

SECONDS = 60
VALUES = [b"%d " % number + b"." * 100 for number in range(50)]
RoundTrip = Callable[[SecuredBroker, Way, str], list[bytes]]
"""Returns the values of `VALUES` that the client reads."""


def confluent(broker: SecuredBroker, way: Way, topic: str) -> list[bytes]:
    from confluent_kafka import Consumer, Producer

    config = client_settings.librdkafka(broker, way)
    if way.mechanism == "OAUTHBEARER":
        config["oauth_cb"] = lambda _: (broker.token(), time.time() + 600)
    producer = Producer(config)
    errors: list[Any] = []
    for value in VALUES:
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error) if error else None)
    assert producer.flush(SECONDS) == 0
    assert not errors
    consumer = Consumer({**config, "group.id": unique("g"), "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[Any] = []
    wait_until(lambda: found.extend(_values(consumer)) or len(found) >= len(VALUES), SECONDS)
    consumer.close()
    return found


def _values(consumer: Any) -> list[bytes]:
    return [message.value() for message in consumer.consume(len(VALUES), 0.1)]


def kafka_python(broker: SecuredBroker, way: Way, topic: str) -> list[bytes]:
    from kafka import KafkaConsumer, KafkaProducer

    config = client_settings.kafka_python(broker, way)
    producer = KafkaProducer(**config)
    for value in VALUES:
        producer.send(topic, value)
    producer.flush(SECONDS)
    producer.close()
    consumer = KafkaConsumer(topic, **config, auto_offset_reset="earliest", consumer_timeout_ms=SECONDS * 1000)
    found = [record.value for record in islice(consumer, len(VALUES))]
    consumer.close()
    return found


def aiokafka(broker: SecuredBroker, way: Way, topic: str) -> list[bytes]:
    return asyncio.run(_through_aiokafka(client_settings.aiokafka(broker, way), topic))


async def _through_aiokafka(config: dict[str, Any], topic: str) -> list[bytes]:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    async with AIOKafkaProducer(**config) as producer:
        await asyncio.gather(*[await producer.send(topic, value) for value in VALUES])
    found: list[bytes] = []
    async with AIOKafkaConsumer(topic, **config, auto_offset_reset="earliest") as consumer:
        while len(found) < len(VALUES):
            found.append((await asyncio.wait_for(consumer.getone(), SECONDS)).value)
    return found


def kcat(broker: SecuredBroker, way: Way, topic: str) -> list[bytes]:
    config = client_settings.librdkafka_file(broker, way)
    _run_kcat("-F", config, "-P", "-t", topic, input=_lines())
    return _run_kcat("-F", config, "-C", "-e", "-q", "-t", topic).splitlines()


def _lines() -> bytes:
    return b"".join(value + b"\n" for value in VALUES)


def _run_kcat(*words: str, **options: Any) -> bytes:
    done = subprocess.run(["kcat", *words], capture_output=True, timeout=SECONDS, **options)
    assert done.returncode == 0, done.stderr
    assert b"%3|" not in done.stderr, done.stderr
    return done.stdout


def console_tools(version: str, broker: SecuredBroker, way: Way, topic: str) -> list[bytes]:
    """Apache Kafka's console producer and consumer."""
    config = client_settings.java_file(broker, way)
    words = ["--bootstrap-server", broker.address(way.protocol), "--topic", topic]
    options = [*java.OPTIONS, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={client_settings.token_url(broker)}"]
    run = partial(java.run, version, options=options)
    done = run(PRODUCER[version], *words, "--producer.config", config, input=_lines())
    assert b"ERROR" not in done.stdout + done.stderr, done.stderr
    words += ["--consumer.config", config, "--from-beginning", "--max-messages", str(len(VALUES))]
    return run(CONSUMER, *words, "--timeout-ms", str(SECONDS * 1000)).stdout.splitlines()


CLIENTS: dict[str, RoundTrip] = {
    "confluent-kafka": confluent,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
    "kcat": kcat,
    "java-3.9.1": partial(console_tools, "3.9.1"),
    "java-4.1.0": partial(console_tools, "4.1.0"),
}
