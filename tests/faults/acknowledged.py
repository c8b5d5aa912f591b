"""A producer that remembers acknowledged records, and a reader that expects every one of them.

confluent-kafka, idempotent, acks=all, with retries: a record reported as delivered must be in the log exactly once,
in the order of sending; a record that it could not deliver may be missing.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from ..clients.admin import create_topic
from ..clients.drivers import DRIVERS

PARTITIONS = 4


class Load:
    """A stream of numbered records over all partitions of a topic until `finish`."""

    def __init__(self, broker: Any, *, pause: float = 0.001, **config: Any) -> None:
        self.broker = broker
        self.topic = create_topic(broker, "load", PARTITIONS)
        self.acked: dict[int, list[tuple[int, int]]] = {partition: [] for partition in range(PARTITIONS)}
        self.failed: list[str] = []
        self._pause = pause
        self._stop = threading.Event()
        self._producer = _producer(broker.bootstrap, config)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            self._send(number)
            number += 1
            self._producer.poll(0)
            time.sleep(self._pause)

    def _send(self, number: int) -> None:
        try:
            self._producer.produce(
                self.topic, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._delivered
            )
        except BufferError:
            self._producer.poll(0.5)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        self.acked[message.partition()].append((int(message.value()), message.offset()))

    @property
    def count(self) -> int:
        """The number of acknowledged records so far."""
        return sum(len(rows) for rows in self.acked.values())

    def await_more(self, more: int = 200, seconds: float = 60) -> None:
        """Wait until `more` further records are acknowledged."""
        wanted, deadline = self.count + more, time.monotonic() + seconds
        while self.count < wanted:
            assert time.monotonic() < deadline, f"no progress: {self.failed[-3:]}\n{self.broker.log[-4000:]}"
            time.sleep(0.02)

    def finish(self) -> None:
        """Stop sending and wait until no request is in flight."""
        self._stop.set()
        self._thread.join(30)
        left = self._producer.flush(90)
        assert not left, f"{left} records neither delivered nor refused"

    def verify(self) -> None:
        """Finish, then read back: no record is lost or duplicated, all are in order at their acknowledged offsets."""
        self.finish()
        assert not self.failed, f"{len(self.failed)} refused: {self.failed[:3]}"
        for partition, rows in self.acked.items():
            self._verify_partition(partition, rows)

    def _verify_partition(self, partition: int, rows: list[tuple[int, int]]) -> None:
        assert rows, f"partition {partition} has no acknowledged record"
        found = DRIVERS["confluent-kafka"].read(self.broker.bootstrap, self.topic, partition, len(rows))
        stored = [(int(read.record.value or b""), read.offset) for read in found]
        numbers = [number for number, _ in stored]
        assert len(set(numbers)) == len(numbers), "some records are duplicated"
        assert numbers == sorted(numbers), "records are out of order"
        lost = {number for number, _ in rows} - set(numbers)
        assert not lost, f"{len(lost)} acknowledged records are lost: {sorted(lost)[:5]}"
        assert sorted(rows) == stored, "records are not at their acknowledged offsets"


def _producer(bootstrap: str, config: dict[str, Any]) -> Any:
    from confluent_kafka import Producer

    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 2,
            "message.timeout.ms": 120_000,
            "retry.backoff.ms": 50,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
            **config,
        }
    )
