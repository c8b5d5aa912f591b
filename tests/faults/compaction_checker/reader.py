"""A fresh read_committed consumer of a whole topic."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from .ledger import Found, Reading

STUCK_S = 120


def read(bootstrap: str, topic: str, partitions: int) -> list[Reading]:
    """Read every partition from its start to its last stable offset. AssertionError if the reader makes no progress."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "isolation.level": "read_committed",
        "enable.partition.eof": True, "enable.auto.commit": False, "log_level": 0, "reconnect.backoff.max.ms": 500,
        "auto.offset.reset": "error",
    })  # fmt: skip
    try:
        consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)])
        return list(_all(consumer, partitions))
    finally:
        consumer.close()


def _all(consumer: Consumer, partitions: int) -> Iterator[Reading]:
    records: dict[int, list[Found]] = {index: [] for index in range(partitions)}
    open_, deadline = set(records), time.monotonic() + STUCK_S
    while open_:
        message = consumer.poll(1.0)
        if message is None:
            assert time.monotonic() < deadline, f"a reader gets no further in partitions {open_}"
            continue
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            if not error.retriable() and error.code() not in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
                raise KafkaException(error)
            continue
        index, offset = message.partition(), message.offset()
        assert index is not None and offset is not None
        if error is None:
            key = message.key()
            assert key is not None
            records[index].append(Found(offset, key, message.value()))
            deadline = time.monotonic() + STUCK_S
        elif index in open_:
            open_.discard(index)
            yield Reading(index, offset, list(records[index]))
