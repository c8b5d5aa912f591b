"""confluent-kafka: librdkafka under Python, idempotent producer."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..records import Record
from .base import WAIT_SECONDS, Make, Read


class Confluent:
    """See `base.Driver`."""

    name = "confluent-kafka"
    tool: str | None = None
    flavour = "binary"

    def write(
        self,
        bootstrap: str,
        topic: str,
        partition: int,
        numbers: Iterable[int],
        make: Make,
        codec: str,
    ) -> None:
        """Deliver all records; AssertionError if one fails."""
        errors: list[Any] = []

        def delivered(error: Any, _: Any) -> None:
            if error:
                errors.append(error)

        producer = _producer(bootstrap, codec)
        for number in numbers:
            record = make(number)
            arguments = (topic, record.value, record.key, partition, delivered)
            while not _try_produce(producer, arguments, list(record.headers)):
                producer.poll(0.1)
        left = producer.flush(WAIT_SECONDS)
        assert not errors and not left, f"{left} not delivered, errors: {errors[:3]}"

    def read(self, bootstrap: str, topic: str, partition: int, count: int) -> Iterator[Read]:
        """In order from offset 0."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
        try:
            consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
            deadline = time.monotonic() + WAIT_SECONDS
            while count:
                for message in consumer.consume(min(count, 1000), 1.0):
                    assert message.error() is None, message.error()
                    yield _read(message)
                    count -= 1
                    deadline = time.monotonic() + WAIT_SECONDS
                assert time.monotonic() < deadline, f"{count} records of {topic}-{partition} did not come"
        finally:
            consumer.close()

    def member(self, bootstrap: str, topic: str, group: str, folder: Path) -> ConfluentMember:
        """A thread of its own."""
        return ConfluentMember(bootstrap, topic, group)


def _read(message: Any) -> Read:
    return Read(message.offset(), Record(message.key(), message.value(), tuple(message.headers() or ())))


def _producer(bootstrap: str, codec: str) -> Any:
    from confluent_kafka import Producer

    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": codec,
            "linger.ms": 5,
            "message.timeout.ms": WAIT_SECONDS * 1000,
        }
    )


def _try_produce(producer: Any, arguments: tuple[Any, ...], headers: list[tuple[str, bytes | None]]) -> bool:
    try:
        producer.produce(*arguments, headers=headers)
    except BufferError:
        return False
    producer.poll(0)
    return True


class ConfluentMember:
    """See `base.Member`; `kill` leaves too, since librdkafka cannot end without leaving."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        from confluent_kafka import Consumer

        self._values: list[bytes] = []
        self._stop = threading.Event()
        self._errors: list[str] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 200,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 500,
            }
        )
        self._consumer.subscribe([topic])
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            message: Any = self._consumer.poll(0.2)
            if message is not None and message.error() is None:
                self._values.append(message.value())
            elif message is not None and not message.error().retriable():
                self._errors.append(str(message.error()))
        self._consumer.close()

    def leave(self) -> None:
        """Close, which commits and leaves."""
        self._stop.set()
        self._thread.join(30)
        assert not self._thread.is_alive(), "the consumer did not close"
        assert not self._errors, self._errors[:3]

    kill = leave

    def seen(self) -> list[bytes]:
        """Values so far."""
        return self._values
