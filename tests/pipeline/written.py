"""The records of a topic, read by a librdkafka consumer."""

from __future__ import annotations

from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from ..clients.transactions import await_stable

WAIT = 30


class Written(NamedTuple):
    """A record as read."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def id(self) -> bytes | None:
        """The record's stamp; AssertionError if there are several."""
        found = [value for name, value in self.headers if name == "odradek.id"]
        assert len(found) <= 1, found
        return found[0] if found else None


def written(broker: Any, topic: str, isolation: str = "read_uncommitted") -> list[Written]:
    """All records of `topic`, by partition and offset; with `read_committed` up to the last stable offset."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "isolation.level": isolation}
    consumer = Consumer({**settings, "enable.auto.commit": False, "enable.partition.eof": True})
    try:
        parts = [TopicPartition(topic, at, 0) for at in consumer.list_topics(topic, WAIT).topics[topic].partitions]
        consumer.assign(parts)
        return _read(consumer, {part.partition for part in parts})
    finally:
        consumer.close()


def committed(broker: Any, topic: str) -> list[Written]:
    """All committed records of `topic`, which has no active producers."""
    await_stable(broker, topic)
    return written(broker, topic, "read_committed")


def _read(consumer: Consumer, partitions: set[int]) -> list[Written]:
    found: list[Written] = []
    while partitions:
        messages = consumer.consume(10_000, 0.1) or consumer.consume(1, WAIT)
        assert messages, f"the consumer did not reach the ends of {partitions}"
        partitions -= {message.partition() for message in messages if _ends(message)}
        found += [_record(message) for message in messages if not _ends(message)]
    return sorted(found, key=lambda record: record.partition)  # stable: by offset within a partition


def _ends(message: Message) -> bool:
    error = message.error()
    return error is not None and error.code() == KafkaError._PARTITION_EOF


def _record(message: Message) -> Written:
    assert not message.error(), message.error()
    headers: Any = message.headers() or ()
    partition: Any = message.partition()
    return Written(partition, message.key(), message.value(), tuple(headers))
