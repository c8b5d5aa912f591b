"""What is in a topic, by a consumer of librdkafka."""

from __future__ import annotations

from typing import Any, NamedTuple

from confluent_kafka import Consumer, Message, TopicPartition

WAIT = 30


class Written(NamedTuple):
    """A record as read."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def id(self) -> bytes | None:
        """Its stamp; AssertionError when there are several."""
        found = [value for name, value in self.headers if name == "odradek.id"]
        assert len(found) <= 1, found
        return found[0] if found else None


def written(broker: Any, topic: str) -> list[Written]:
    """All records of `topic`, by partition and offset."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False})
    try:
        parts = [TopicPartition(topic, at, 0) for at in consumer.list_topics(topic, WAIT).topics[topic].partitions]
        consumer.assign(parts)
        return _read(consumer, sum(consumer.get_watermark_offsets(part, WAIT)[1] for part in parts))
    finally:
        consumer.close()


def _read(consumer: Consumer, left: int) -> list[Written]:
    found: list[Written] = []
    while len(found) < left:
        messages = consumer.consume(min(left - len(found), 10_000), WAIT)
        assert messages, f"{left - len(found)} records did not come"
        found += [_record(message) for message in messages]
    return sorted(found, key=lambda record: record.partition)  # stable: by offset within a partition


def _record(message: Message) -> Written:
    assert not message.error(), message.error()
    headers: Any = message.headers() or ()
    partition: Any = message.partition()
    return Written(partition, message.key(), message.value(), tuple(headers))
