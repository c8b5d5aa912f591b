"""Implements `odradek verifiable-producer`; the events are those of Kafka's VerifiableProducer."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from kafka import KafkaProducer
from kafka.errors import InvalidTopicError, KafkaError

from odradek.broker.commands._shared.codecs import register
from odradek.broker.commands._shared.events import emit
from odradek.broker.commands._shared.java_errors import java_class
from odradek.broker.commands._shared.pace import pacing
from odradek.broker.commands._shared.properties import client_config
from odradek.broker.errors import OdradekError

WINDOW = 50_000  # records in flight: KafkaProducer itself has no limit


def run(options: Mapping[str, Any], properties: Mapping[str, str]) -> None:
    """Send until the options' limit or a signal, and print the totals."""
    producer = _producer(options, properties)
    sending = Sending(producer, options)
    try:
        emit("startup_complete")
        sending.send_all(options["max_messages"], options["throughput"])
    finally:
        producer.close()
        emit("shutdown_complete")
        sending.emit_totals(options["throughput"])


def _producer(options: Mapping[str, Any], properties: Mapping[str, str]) -> KafkaProducer:
    register()
    config = client_config(properties, KafkaProducer.DEFAULT_CONFIG)
    config.setdefault("bootstrap_servers", options["bootstrap_server"].split(","))
    config.setdefault("enable_idempotence", False)  # it needs retries
    config.setdefault("metrics_enabled", False)
    try:
        return KafkaProducer(**config)
    except (KafkaError, ValueError, AssertionError) as error:
        raise OdradekError(f"no producer for {options['bootstrap_server']}: {error}") from error


class Sending:
    """Sends records and counts them; the producer's own thread counts acknowledgements and failures."""

    def __init__(self, producer: KafkaProducer, options: Mapping[str, Any]) -> None:
        self._producer = producer
        self._topic = options["topic"]
        self._prefix = "" if options["value_prefix"] is None else f"{options['value_prefix']}."
        self._keys = options["repeating_keys"]
        self._timestamps = _timestamps(options["message_create_time"])
        self._started = time.time()
        self.sent = self.acked = self.failed = 0

    def send_all(self, most: int, throughput: int) -> None:
        """Send `most` records, without end if that is negative."""
        pace = pacing(throughput)
        for number in range(sys.maxsize if most < 0 else most):
            self._send(number)
            pace(number + 1)
            while self.sent - self.acked - self.failed > WINDOW:
                time.sleep(0.001)

    def _send(self, number: int) -> None:
        key = None if self._keys is None else str(number % self._keys)
        value = f"{self._prefix}{number}"
        self.sent += 1
        try:
            future = self._producer.send(
                self._topic, value.encode(), None if key is None else key.encode(), timestamp_ms=next(self._timestamps)
            )
        except ValueError as error:
            self._on_error(key, value, InvalidTopicError(str(error)))
            return
        except KafkaError as error:
            self._on_error(key, value, error)
            return
        future.add_callback(partial(self._on_success, key, value))
        future.add_errback(partial(self._on_error, key, value))

    def _on_success(self, key: str | None, value: str, record: Any) -> None:
        self.acked += 1
        place = {"offset": record.offset, "topic": record.topic, "partition": record.partition}
        emit("producer_send_success", key=key, value=value, **place)

    def _on_error(self, key: str | None, value: str, error: Exception) -> None:
        self.failed += 1
        code = getattr(error, "errno", None)
        kind = f"class {java_class(code) if code is not None else type(error).__name__}"
        emit("producer_send_error", topic=self._topic, key=key, value=value, exception=kind, message=str(error))

    def emit_totals(self, throughput: int) -> None:
        """Print the last event."""
        average = self.acked / max(time.time() - self._started, 1e-3)
        emit("tool_data", sent=self.sent, acked=self.acked, target_throughput=throughput, avg_throughput=average)


def _timestamps(first: int) -> Iterator[int | None]:
    """The timestamp of each record: `first`, then more by what has passed; None leaves it to the producer."""
    started, now = time.time(), first
    while True:
        yield None if first < 0 else now
        now += int((time.time() - started) * 1000)
