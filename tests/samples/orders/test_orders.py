"""A project that tests with Odradek, as its users do: it knows the installed package, and nothing of its repository."""

from __future__ import annotations

import json
import logging

import pyarrow as pa
import pytest
from kafka import KafkaConsumer, KafkaProducer

from odradek import Broker, arrow
from odradek.logging import KafkaHandler


def first_of(bootstrap: str, topic: str) -> bytes:
    """The value of the topic's first record."""
    consumer = KafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    value: bytes = next(consumer).value
    consumer.close()
    return value


@pytest.mark.kafka_topic(partitions=2)
def test_client_of_the_fixtures_broker(kafka_broker: Broker, kafka_topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=kafka_broker.bootstrap)
    assert producer.partitions_for(kafka_topic) == {0, 1}
    assert producer.send(kafka_topic, b"order 7").get(timeout=60).offset == 0
    producer.close()
    assert first_of(kafka_broker.bootstrap, kafka_topic) == b"order 7"


def test_broker_of_its_own() -> None:
    with Broker({"auto.create.topics.enable": False}) as broker:
        broker.create_topic("orders")
        with broker.failing("Produce", error="NOT_LEADER_OR_FOLLOWER", times=1) as fault:
            producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
            assert producer.send("orders", b"order 8").get(timeout=60).offset == 0
            producer.close()
        assert fault.hits == 1


def test_log_in_a_topic(kafka_broker: Broker, kafka_topic: str) -> None:
    log, handler = logging.getLogger("orders"), KafkaHandler(kafka_broker.bootstrap, kafka_topic)
    log.addHandler(handler)
    log.error("order %d is lost", 9)
    log.removeHandler(handler)
    assert handler.flush()
    handler.close()
    assert json.loads(first_of(kafka_broker.bootstrap, kafka_topic))["message"] == "order 9 is lost"


def test_topic_as_a_table(kafka_broker: Broker, kafka_topic: str) -> None:
    orders = pa.table({"key": ["ann", "bob"], "value": ["9.5", "1.0"]})
    assert arrow.write(orders, kafka_topic, bootstrap_servers=kafka_broker.bootstrap) == 2
    schema = {"key": "text", "value": "text"}
    read = arrow.read(kafka_topic, schema=schema, bootstrap_servers=kafka_broker.bootstrap)
    assert read.read_all().select(["key", "value"]).to_pylist() == orders.to_pylist()
