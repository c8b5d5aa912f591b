"""A load that gives each panel of the dashboard something to show."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewTopic

TOPICS = {"flights": 60, "orders": 25, "payments": 10}  # and the records of 500 bytes for each turn
REFUSES = "refuses"  # old records; too large ones are no failure of the broker, says Kafka
_TURN_SECONDS = 0.1


@contextmanager
def running(bootstrap: str) -> Iterator[None]:
    """Producers and two groups, of which one falls behind, until the block ends; raises what they raised."""
    _create(bootstrap)
    ends = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        parts = [pool.submit(part, bootstrap, ends) for part in (_produce, _consume)]
        try:
            yield
        finally:
            ends.set()
    for part in parts:
        part.result()


def _create(bootstrap: str) -> None:
    refuses = NewTopic(REFUSES, 1, 1, topic_configs={"message.timestamp.before.max.ms": "1000"})
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        admin.create_topics([*(NewTopic(topic, 6, 3) for topic in TOPICS), refuses])


def _produce(bootstrap: str, ends: threading.Event) -> None:
    with KafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=False) as producer:
        while not ends.wait(_TURN_SECONDS):
            producer.send(REFUSES, b"late", timestamp_ms=1)
            for topic in (topic for topic, count in TOPICS.items() for _ in range(count)):
                producer.send(topic, bytes(500))


def _consume(bootstrap: str, ends: threading.Event) -> None:
    settings = {"bootstrap_servers": bootstrap, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with (
        closing(KafkaConsumer(*TOPICS, group_id="reports", **settings)) as quick,
        closing(KafkaConsumer("flights", group_id="billing", max_poll_records=10, **settings)) as slow,
    ):
        while not ends.wait(_TURN_SECONDS):
            for consumer in (quick, slow):
                if consumer.poll(100):
                    consumer.commit()
