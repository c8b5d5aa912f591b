"""Shared by tests of client quotas: set quotas, and clients that send or read as fast as quotas allow."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPartition
from kafka.errors import KafkaTimeoutError
from kafka.protocol.admin import AlterClientQuotasRequest, DescribeClientQuotasRequest

from ..harness.broker import Broker

VALUE = b"x" * 1000
FLOOD = "flood"


def alter(broker: Any, entity: Mapping[str, str | None], **quotas: float | None) -> int:
    """Set quotas of an entity, None: remove; the error code."""
    make = AlterClientQuotasRequest.EntryData
    operations = [make.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()]
    parts = [make.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    request = AlterClientQuotasRequest[1](entries=[make(entity=parts, ops=operations)], validate_only=False)
    with broker.wire() as wire:
        return int(wire.call(request).entries[0].error_code)


def described(broker: Any, entity: Mapping[str, str | None]) -> dict[str, float]:
    """The quotas of an entity."""
    make = DescribeClientQuotasRequest.ComponentData
    components = [make(entity_type=kind, match_type=int(name is None), match=name) for kind, name in entity.items()]
    with broker.wire() as wire:
        answer = wire.call(DescribeClientQuotasRequest[1](components=components, strict=True))
    assert answer.error_code == 0
    return {value.key: value.value for entry in answer.entries for value in entry.values}


class Meter:
    """Counts the bytes of all threads of a client, until their rate over some seconds is within 5 % of a target.

    The total must also stay below the target's rate since the start, plus the burst of a few seconds that a quota
    allows. A busy machine delays this, and does not prevent it.
    """

    def __init__(self, target: float, seconds: float = 8, most_ahead: float = 4) -> None:
        self._target = target
        self._seconds = seconds
        self._most = most_ahead * target
        self._began = time.monotonic()
        self._marks = deque([(self._began, 0)])  # (time, total at that time), of the last seconds
        self._lock = threading.Lock()
        self.total = 0
        self.done = threading.Event()

    def add(self, size: int) -> None:
        with self._lock:
            now = time.monotonic()
            self.total += size
            self._marks.append((now, self.total))
            if now - self._marks[0][0] < self._seconds:
                return
            since, before = self._marks.popleft()
            close = abs((self.total - before) / (now - since) - self._target) <= self._target * 0.05
            if close and self.total <= self._most + self._target * (now - self._began):
                self.done.set()


@contextlib.contextmanager
def running(target: Callable[[int], None], threads: int, meter: Meter) -> Iterator[None]:
    """Call `target(number)` in threads, which end when the meter is done."""
    workers = [threading.Thread(target=target, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        meter.done.set()
        for worker in workers:
            worker.join()


def confluent_sends(broker: Broker, topic: str, meter: Meter) -> Callable[[int], None]:
    def send(number: int) -> None:
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "client.id": FLOOD, "batch.size": 16_384, "linger.ms": 5,
             "max.in.flight": 5, "queue.buffering.max.kbytes": 1000}
        )  # fmt: skip
        while not meter.done.is_set():
            with contextlib.suppress(BufferError):
                producer.produce(topic, VALUE, partition=number, on_delivery=lambda error, _: meter.add(len(VALUE)))
            producer.poll(0.01 if len(producer) > 500 else 0)
        producer.purge()
        producer.flush(30)

    return send


def kafka_python_sends(broker: Broker, topic: str, meter: Meter) -> Callable[[int], None]:
    def send(number: int) -> None:
        producer = KafkaProducer(
            bootstrap_servers=broker.bootstrap, client_id=FLOOD, batch_size=16_384, linger_ms=5, acks=1,
            max_block_ms=60_000, delivery_timeout_ms=60_000,
        )  # fmt: skip
        waiting: deque[Any] = deque()
        while not meter.done.is_set():
            waiting.append(producer.send(topic, VALUE, partition=number))
            if len(waiting) > 200:
                waiting.popleft().get(60)
                meter.add(len(VALUE))
        with contextlib.suppress(KafkaTimeoutError):
            producer.close(timeout=0)

    return send


def confluent_reads(broker: Broker, topic: str, meter: Meter) -> Callable[[int], None]:
    def read(number: int) -> None:
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap, "client.id": FLOOD, "group.id": "none",
             "enable.auto.commit": False, "fetch.message.max.bytes": 50_000, "queued.max.messages.kbytes": 200,
             "fetch.queue.backoff.ms": 5}
        )  # fmt: skip
        consumer.assign([TopicPartition(topic, number, 0)])
        while not meter.done.is_set():
            for message in consumer.consume(100, 0.1):
                meter.add(len(message.value() or b""))
        consumer.close()

    return read


def kafka_python_reads(broker: Broker, topic: str, meter: Meter) -> Callable[[int], None]:
    def read(number: int) -> None:
        consumer = KafkaConsumer(
            bootstrap_servers=broker.bootstrap, client_id=FLOOD, max_partition_fetch_bytes=50_000,
            enable_auto_commit=False, consumer_timeout_ms=100, retry_backoff_ms=5,
        )  # fmt: skip
        partition = KafkaPartition(topic, number)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        while not meter.done.is_set():
            for message in consumer:
                meter.add(len(message.value))
                if meter.done.is_set():
                    break
        consumer.close()

    return read


def fill(broker: Broker, topic: str, partitions: int, size: int) -> None:
    """Write `size` bytes into each partition, as a client without a quota."""
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "client.id": "filler", "linger.ms": 5, "batch.size": 16_384}
    )
    for number in range(partitions * (size // len(VALUE))):
        producer.produce(topic, VALUE, partition=number % partitions)
        if number % 1000 == 0:
            producer.poll(0)
        if len(producer) > 50_000:
            producer.flush()
    assert producer.flush(60) == 0
