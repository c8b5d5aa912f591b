"""kafka-python."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..records import Record
from .base import WAIT_SECONDS, Make, Read

MAX_REQUEST = 1_000_000


class KafkaPython:
    """See `base.Driver`."""

    name = "kafka-python"
    tool: str | None = None
    flavour = "binary_without_null_headers"

    def write(
        self,
        bootstrap: str,
        topic: str,
        partition: int,
        numbers: Iterable[int],
        make: Make,
        codec: str,
    ) -> None:
        """Wait for every future; raise the first error."""
        from kafka import KafkaProducer

        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all",
            compression_type=None if codec == "none" else codec,
            linger_ms=5,
            batch_size=65_536,
            max_request_size=MAX_REQUEST,
        )
        try:
            futures = [self._send(producer, topic, partition, make(number)) for number in numbers]
            producer.flush(WAIT_SECONDS)
            for future in futures:
                future.get(WAIT_SECONDS)
        finally:
            producer.close(timeout=5)

    def _send(self, producer: Any, topic: str, partition: int, record: Record) -> Any:
        return producer.send(topic, record.value, key=record.key, headers=list(record.headers), partition=partition)

    def read(self, bootstrap: str, topic: str, partition: int, count: int) -> Iterator[Read]:
        """In order from offset 0."""
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
        try:
            consumer.assign([TopicPartition(topic, partition)])
            consumer.seek_to_beginning()
            deadline = time.monotonic() + WAIT_SECONDS
            while count > 0:
                for found in consumer.poll(timeout_ms=1000).values():
                    for message in found[:count]:
                        yield Read(message.offset, Record(message.key, message.value, tuple(message.headers or ())))
                    count -= len(found)
                    deadline = time.monotonic() + WAIT_SECONDS
                assert time.monotonic() < deadline, f"{count} records of {topic}-{partition} did not come"
        finally:
            consumer.close()

    def member(self, bootstrap: str, topic: str, group: str, folder: Path) -> KafkaPythonMember:
        """A thread of its own."""
        return KafkaPythonMember(bootstrap, topic, group)


class KafkaPythonMember:
    """See `base.Member`."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        from kafka import KafkaConsumer

        self._make = KafkaConsumer  # not in the member's thread, which may see a half-imported package
        self._values: list[bytes] = []
        self._stop = threading.Event()
        self._silent = False
        self._error: BaseException | None = None
        self._arguments = (bootstrap, topic, group)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._consume()
        except BaseException as error:
            self._error = error

    def _consume(self) -> None:
        bootstrap, topic, group = self._arguments
        consumer = self._make(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=200,
            session_timeout_ms=6000,
            heartbeat_interval_ms=500,
        )
        while not self._stop.is_set():
            for found in consumer.poll(timeout_ms=200).values():
                self._values.extend(message.value for message in found)
        consumer.close(autocommit=not self._silent)

    def leave(self) -> None:
        """Close, which commits and leaves."""
        self._stop.set()
        self._thread.join(30)
        assert not self._thread.is_alive(), "the consumer did not close"
        if self._error:
            raise self._error

    def kill(self) -> None:
        """Leave without a last commit: records processed since the previous commit are delivered again."""
        self._silent = True
        self.leave()

    def seen(self) -> list[bytes]:
        """Values so far."""
        return self._values
